package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/gocty"
)

// The file is read into the structs of the schema here, and not by gohcl, which
// names neither key nor value where a value has the wrong type, tells of one fault
// in a list, and reads nothing behind a block that is there twice.

// field is one key or block that a struct has.
type field struct {
	name  string
	kind  string // "optional", "block" or "label", as in gohcl
	value reflect.Value
}

// fieldsOf are the fields of a struct of the schema.
func fieldsOf(v reflect.Value) (keys map[string]field, labels []field) {
	keys = map[string]field{}
	for i := range v.NumField() {
		name, kind, _ := strings.Cut(v.Type().Field(i).Tag.Get("hcl"), ",")
		f := field{name, kind, v.Field(i)}
		if kind == "label" {
			labels = append(labels, f)
		} else {
			keys[name] = f
		}
	}
	return keys, labels
}

// decode reads a body into a struct of the schema. Every fault in it is told, and
// what cannot be read is left as if it were not there.
func (l *loader) decode(body *hclsyntax.Body, dst any) {
	l.body(body, reflect.ValueOf(dst).Elem(), "", "")
}

// body reads a body. prefix is the way to it with a dot behind, as faults write it;
// place is the same with numbers for labels.
func (l *loader) body(body *hclsyntax.Body, dst reflect.Value, prefix, place string) {
	keys, _ := fieldsOf(dst)
	byPlace := func(a, b *hclsyntax.Attribute) int {
		return cmp.Compare(a.SrcRange.Start.Byte, b.SrcRange.Start.Byte)
	}
	for _, attr := range slices.SortedFunc(maps.Values(body.Attributes), byPlace) {
		f, known := keys[attr.Name]
		switch {
		case !known:
			l.unknown(attr.SrcRange, prefix, attr.Name, keys)
			continue
		case f.kind == "block":
			l.skip(attr.SrcRange, prefix, place, attr.Name, fmt.Sprintf("is %s: it is a block: write %s { … } without the equals sign", l.text(attr.Expr), attr.Name))
			continue
		}
		l.note(attr.SrcRange, prefix+attr.Name, place+attr.Name)
		if !l.value(attr.Expr, f.value, prefix+attr.Name) {
			l.unread[prefix+attr.Name], l.unread[place+attr.Name] = true, true
		}
	}
	numbers := map[string]int{}
	for _, block := range body.Blocks {
		f, known := keys[block.Type]
		switch {
		case !known:
			l.unknown(block.TypeRange, prefix, block.Type, keys)
		case f.kind != "block":
			l.skip(block.TypeRange, prefix, place, block.Type, fmt.Sprintf("is a block: write %s = …, %s", block.Type, wantOf(f.value.Type().Elem())))
		default:
			l.block(block, f, prefix, place, numbers[block.Type])
			numbers[block.Type]++
		}
	}
}

// note keeps where a key is, the first one if there are several.
func (l *loader) note(r hcl.Range, keys ...string) {
	for _, key := range keys {
		if l.lines[key] == 0 {
			l.lines[key] = r.Start.Line
		}
	}
}

// skip tells of something that is not read at all.
func (l *loader) skip(r hcl.Range, prefix, place, name, text string) {
	l.add(r.Start.Line, prefix+name+" "+text)
	l.note(r, prefix+name, place+name)
	l.unread[prefix+name], l.unread[place+name] = true, true
}

// unknown tells of a name that is none of the struct's. What was meant by it counts
// as there.
func (l *loader) unknown(r hcl.Range, prefix, name string, keys map[string]field) {
	known := slices.Sorted(maps.Keys(keys))
	if meant := nearest(name, known); meant != "" {
		l.unread[prefix+meant] = true
	}
	l.add(r.Start.Line, fmt.Sprintf("%s%s is not known here: %s", prefix, name, suggest(name, known)))
}

// block reads the block with that number of its type.
func (l *loader) block(block *hclsyntax.Block, f field, prefix, place string, number int) {
	typ, many := f.value.Type(), f.value.Kind() == reflect.Slice
	if many {
		typ = typ.Elem()
	}
	pointer := typ.Kind() == reflect.Pointer
	if pointer {
		typ = typ.Elem()
	}
	inside := reflect.New(typ).Elem()
	_, labels := fieldsOf(inside)
	name, numbered := block.Type, block.Type
	if len(labels) > 0 && len(block.Labels) == len(labels) {
		name, numbered = fmt.Sprintf("%s[%s]", block.Type, block.Labels[0]), fmt.Sprintf("%s[#%d]", block.Type, number)
	}
	switch {
	case len(block.Labels) != len(labels) && len(labels) == 0:
		l.skip(block.TypeRange, prefix, place, name, fmt.Sprintf("has the name %q: want none: write %s { … }", block.Labels[0], block.Type))
		return
	case len(block.Labels) != len(labels):
		// The others of its type are read: a block without its name is like none.
		l.add(block.TypeRange.Start.Line, fmt.Sprintf("%s%s has %d names: want one: write %s \"NAME\" { … }", prefix, name, len(block.Labels), block.Type))
		l.unread[fmt.Sprintf("%s%s[#%d]", place, name, number)] = true
	case !many && number > 0:
		l.add(block.TypeRange.Start.Line, fmt.Sprintf("%s%s is there twice, first in line %d: keep one", prefix, name, l.lines[prefix+name]))
		l.unread[prefix+name] = true
		return
	}
	for i, label := range labels {
		if i < len(block.Labels) {
			label.value.SetString(block.Labels[i])
		}
	}
	l.note(block.TypeRange, prefix+name, place+numbered)
	l.body(block.Body, inside, prefix+name+".", place+numbered+".")
	if pointer {
		inside = inside.Addr()
	}
	if many {
		inside = reflect.Append(f.value, inside)
	}
	f.value.Set(inside)
}

// value reads an expression into a pointer of the schema, and reports whether it
// could be read, all of it.
func (l *loader) value(expr hclsyntax.Expression, dst reflect.Value, key string) bool {
	if v, diags := expr.Value(nil); !diags.HasErrors() && v.IsNull() {
		return true // as if it were not there
	}
	into, ok := reflect.New(dst.Type().Elem()), false
	list, isList := expr.(*hclsyntax.TupleConsExpr)
	object, isObject := expr.(*hclsyntax.ObjectConsExpr)
	switch kind := into.Elem().Kind(); {
	case isList && kind == reflect.Slice:
		ok = l.list(list, into.Elem(), key)
	case isObject && kind == reflect.Map:
		ok = l.object(object, into.Elem(), key)
	default:
		ok = l.single(expr, into.Interface(), key)
	}
	if ok {
		dst.Set(into)
	}
	return ok
}

// list reads the parts of a list one by one, so that each fault is told.
func (l *loader) list(expr *hclsyntax.TupleConsExpr, dst reflect.Value, key string) bool {
	ok := true
	dst.Set(reflect.MakeSlice(dst.Type(), len(expr.Exprs), len(expr.Exprs)))
	for i, part := range expr.Exprs {
		ok = l.single(part, dst.Index(i).Addr().Interface(), fmt.Sprintf("%s[%d]", key, i)) && ok
	}
	return ok
}

// object reads numbers or texts by name.
func (l *loader) object(expr *hclsyntax.ObjectConsExpr, dst reflect.Value, key string) bool {
	ok := true
	dst.Set(reflect.MakeMap(dst.Type()))
	for _, item := range expr.Items {
		var name string
		if !l.single(item.KeyExpr, &name, key) {
			ok = false
			continue
		}
		if dst.MapIndex(reflect.ValueOf(name)).IsValid() {
			l.add(item.KeyExpr.Range().Start.Line, fmt.Sprintf("%s[%q] is there twice: keep one", key, name))
			ok = false
		}
		part := reflect.New(dst.Type().Elem())
		ok = l.single(item.ValueExpr, part.Interface(), fmt.Sprintf("%s[%q]", key, name)) && ok
		dst.SetMapIndex(reflect.ValueOf(name), part.Elem())
	}
	return ok
}

// single reads an expression into what dst points to.
func (l *loader) single(expr hclsyntax.Expression, dst any, key string) bool {
	typ, err := gocty.ImpliedType(dst)
	v, diags := expr.Value(nil)
	if err == nil && !diags.HasErrors() && v.IsWhollyKnown() && !v.IsNull() {
		if v, err = convert.Convert(v, typ); err == nil && gocty.FromCtyValue(v, dst) == nil {
			return true
		}
	}
	line := expr.Range().Start.Line
	l.add(line, fmt.Sprintf("%s is %s: %s", key, l.shown(key, expr), wantOf(reflect.TypeOf(dst).Elem())))
	return false
}

// wantOf says what a value of that type looks like.
func wantOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "want true or false"
	case reflect.Int:
		return "want a whole number"
	case reflect.Float64:
		return "want a number"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Float64 {
			return "want a list of numbers, like [1, 2.5]"
		}
		return `want a list of texts in quotes, like ["a", "b"]`
	case reflect.Map:
		if t.Elem().Kind() == reflect.String {
			return `want texts by name, like { "a" = "b" }`
		}
		return `want numbers by name, like { "a" = 1 }`
	default:
		return `want a text in quotes, like "a"`
	}
}

// maxValue bounds what a fault quotes of the file, in bytes.
const maxValue = 60

// secret are the keys whose values nobody is to read in a log.
var secret = []string{"nomad.token", "burst.carbon.url"}

// shown is a value as the file has it, where it may be shown.
func (l *loader) shown(key string, expr hclsyntax.Expression) string {
	if slices.Contains(secret, key) {
		return "no text in quotes"
	}
	return l.text(expr)
}

// text is an expression as the file has it, in one line.
func (l *loader) text(expr hclsyntax.Expression) string {
	r := expr.Range()
	text := strings.Join(strings.Fields(string(r.SliceBytes(l.src))), " ")
	if len(text) > maxValue {
		text = strings.ToValidUTF8(text[:maxValue], "") + "…"
	}
	return text
}
