package jobhcl

import (
	"fmt"
	"maps"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/agext/levenshtein"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/nomad/api"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/gocty"
)

// fields are a struct's places for attributes, blocks and labels, by its hcl
// tags.
type fields struct {
	attrs    map[string]int
	required map[string]bool
	blocks   map[string]int
	labels   []int
}

func fieldsOf(t reflect.Type) fields {
	f := fields{attrs: map[string]int{}, required: map[string]bool{}, blocks: map[string]int{}}
	for i := range t.NumField() {
		name, kind, _ := strings.Cut(t.Field(i).Tag.Get("hcl"), ",")
		switch kind {
		case "label":
			f.labels = append(f.labels, i)
		case "block":
			f.blocks[name] = i
		case "optional", "":
			if name == "" || name == "-" {
				continue
			}
			f.attrs[name] = i
			f.required[name] = kind == "" && t.Field(i).Type.Kind() != reflect.Pointer
		}
	}
	return f
}

// decode fills a struct from a block, by the struct's hcl tags. handled are
// attribute and block names that the caller has read already.
func (p *parser) decode(b block, v reflect.Value, handled ...string) {
	f := fieldsOf(v.Type())
	done := map[string]bool{}
	for _, name := range handled {
		done[name] = true
	}
	for _, attr := range sortedAttrs(b.body) {
		if done[attr.Name] {
			continue
		}
		if i, ok := f.attrs[attr.Name]; ok {
			p.decodeExpr(attr.Expr, b.ctx, v.Field(i).Addr())
		} else if _, ok := f.blocks[attr.Name]; ok {
			p.fault(attr.NameRange, "Unsupported argument", "%q is a block: write `%s { … }` without the equals sign.", attr.Name, attr.Name)
		} else {
			p.fault(attr.NameRange, "Unsupported argument", "%q is not expected in a %s block.%s", attr.Name, b.typ, suggest(attr.Name, f, handled))
		}
	}
	for _, name := range sortedNames(f.required) {
		if f.required[name] && b.body.Attributes[name] == nil && !done[name] {
			p.fault(b.at, "Missing required argument", "A %s block needs %q.", b.typ, name)
		}
	}
	byType := map[string][]block{}
	for _, sub := range p.blocks(b.body, b.ctx) {
		if done[sub.typ] {
			continue
		}
		if _, ok := f.blocks[sub.typ]; ok {
			byType[sub.typ] = append(byType[sub.typ], sub)
		} else if _, ok := f.attrs[sub.typ]; ok {
			p.fault(sub.at, "Unsupported block type", "%q is an argument: write `%s = …`.", sub.typ, sub.typ)
		} else {
			p.fault(sub.at, "Unsupported block type", "Blocks of type %q are not expected in a %s block.%s", sub.typ, b.typ, suggest(sub.typ, f, handled))
		}
	}
	for _, name := range sortedNames(byType) {
		p.decodeBlocks(byType[name], v.Field(f.blocks[name]))
	}
}

// decodeBlocks puts blocks of one type into their field: a slice, a map by
// label, or a single value.
func (p *parser) decodeBlocks(blocks []block, v reflect.Value) {
	t := v.Type()
	if t.Kind() == reflect.Map && elem(t.Elem()).Kind() == reflect.Struct {
		v.Set(reflect.MakeMap(t))
		for _, b := range blocks {
			e := reflect.New(elem(t.Elem()))
			if p.decodeStruct(b, e.Elem()) && len(b.labels) == 1 {
				v.SetMapIndex(reflect.ValueOf(b.labels[0]), e)
			}
		}
		return
	}
	if t.Kind() == reflect.Slice {
		for _, b := range blocks {
			e := reflect.New(elem(t.Elem()))
			p.decodeStruct(b, e.Elem())
			if t.Elem().Kind() != reflect.Pointer {
				e = e.Elem()
			}
			v.Set(reflect.Append(v, e))
		}
		return
	}
	if len(blocks) > 1 {
		p.fault(blocks[1].at, "Duplicate block", "Only one %s block is allowed; another was defined at %s.", blocks[0].typ, blocks[0].at)
		return
	}
	switch {
	case t == reflect.TypeFor[map[string]any]():
		p.wantLabels(blocks[0], 0)
		m := p.anyMap(blocks[0])
		// An argument set to null is one that is not there.
		maps.DeleteFunc(m, func(_ string, val any) bool { return val == nil })
		v.Set(reflect.ValueOf(m))
	case t.Kind() == reflect.Map:
		p.decodeMap(blocks[0], v)
	case t.Kind() == reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		p.decodeStruct(blocks[0], v.Elem())
	default:
		p.decodeStruct(blocks[0], v)
	}
}

// decodeStruct fills a struct with a block's labels and content. It is false
// when the labels are wrong.
func (p *parser) decodeStruct(b block, v reflect.Value) bool {
	labels := fieldsOf(v.Type()).labels
	if !p.wantLabels(b, len(labels)) {
		return false
	}
	switch target := v.Addr().Interface().(type) {
	case *api.Constraint:
		p.constraint(b, target)
	case *api.Affinity:
		p.affinity(b, target)
	case *api.TaskGroup:
		p.group(b, target)
	case *api.Task:
		p.task(b, target)
	default:
		p.decode(b, v)
	}
	for i, label := range b.labels {
		f := v.Field(labels[i])
		if f.Kind() == reflect.Pointer {
			f.Set(reflect.ValueOf(&label))
		} else {
			f.SetString(label)
		}
	}
	return true
}

func (p *parser) wantLabels(b block, want int) bool {
	if len(b.labels) == want {
		return true
	}
	p.fault(b.at, "Wrong number of labels", "A %s block takes %d label(s), this one has %d.", b.typ, want, len(b.labels))
	return false
}

// decodeMap fills a map from a block of `name = value` lines.
func (p *parser) decodeMap(b block, v reflect.Value) {
	p.wantLabels(b, 0)
	for _, sub := range b.body.Blocks {
		p.fault(sub.TypeRange, "Unsupported block type", "A %s block holds `name = value` lines, not blocks.", b.typ)
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, attr := range sortedAttrs(b.body) {
		e := reflect.New(v.Type().Elem())
		p.decodeExpr(attr.Expr, b.ctx, e)
		v.SetMapIndex(reflect.ValueOf(attr.Name), e.Elem())
	}
}

// mapAttr reads `name = { … }`, the form of a map that takes any key. It is
// nil when the block has no such attribute.
func (p *parser) mapAttr(b block, name string) map[string]string {
	attr := b.body.Attributes[name]
	if attr == nil {
		return nil
	}
	for _, sub := range b.body.Blocks {
		if sub.Type == name {
			p.fault(sub.DefRange(), "Duplicate block", "Only one %s is allowed; another was defined at %s.", name, attr.NameRange)
		}
	}
	m := map[string]string{}
	p.decodeExpr(attr.Expr, b.ctx, reflect.ValueOf(&m))
	return m
}

// decodeExpr evaluates an expression into what ptr points to.
func (p *parser) decodeExpr(e hcl.Expression, ctx *hcl.EvalContext, ptr reflect.Value) {
	val, diags := e.Value(ctx)
	p.diags = append(p.diags, diags...)
	if diags.HasErrors() {
		return
	}
	t := ptr.Type().Elem()
	if elem(t) == reflect.TypeFor[time.Duration]() {
		var ok bool
		if val, ok = p.durationValue(e, val); !ok {
			return
		}
	}
	target := ptr.Interface()
	want, err := gocty.ImpliedType(target)
	if err == nil {
		val, err = convert.Convert(val, want)
	}
	if err == nil && !val.IsWhollyKnown() {
		err = fmt.Errorf("the value is not known before the job runs")
	}
	if err == nil {
		err = gocty.FromCtyValue(val, target)
	}
	if err != nil {
		p.fault(e.Range(), "Unsuitable value", "This argument does not take the value: %s.", err)
	}
}

// durationValue turns "1m30s" into nanoseconds; a plain number is taken as
// nanoseconds.
func (p *parser) durationValue(e hcl.Expression, val cty.Value) (cty.Value, bool) {
	if !val.IsNull() && val.Type() == cty.String && val.IsKnown() {
		d, err := time.ParseDuration(val.AsString())
		if err != nil {
			p.fault(e.Range(), "Unsuitable value", "%q is no duration; write one like \"30s\" or \"1h30m\".", val.AsString())
			return val, false
		}
		return cty.NumberIntVal(int64(d)), true
	}
	if val.IsNull() || val.Type() != cty.Number {
		p.fault(e.Range(), "Unsuitable value", "A duration like \"30s\" or \"1h30m\" is needed.")
		return val, false
	}
	return val, true
}

// suggest names the argument or block that was meant, if one is close.
func suggest(name string, f fields, more []string) string {
	best, distance := "", 3
	for _, known := range append(append(sortedNames(f.attrs), sortedNames(f.blocks)...), more...) {
		if d := levenshtein.Distance(name, known, nil); d < distance {
			best, distance = known, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" Did you mean %q?", best)
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// elem is what a pointer type points to, and any other type itself.
func elem(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// asBlock is a syntax block in a context.
func asBlock(b *hclsyntax.Block, ctx *hcl.EvalContext) block {
	return block{typ: b.Type, labels: b.Labels, at: b.DefRange(), body: b.Body, ctx: ctx}
}
