package jobhcl

import (
	"fmt"
	"math/big"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// anyMap reads a block whose content only a plugin knows (config, policy).
// Nested blocks and object values become lists of maps, which is the form
// that Nomad hands to plugins.
func (p *parser) anyMap(b block) map[string]any {
	out := map[string]any{}
	for _, attr := range sortedAttrs(b.body) {
		if val, ok := p.anyValue(attr.Expr, b.ctx); ok {
			out[attr.Name] = val
		}
	}
	nested := map[string][]map[string]any{}
	for _, sub := range b.body.Blocks {
		m := p.anyMap(asBlock(sub, b.ctx))
		for i := len(sub.Labels) - 1; i >= 0; i-- {
			m = map[string]any{sub.Labels[i]: []map[string]any{m}}
		}
		nested[sub.Type] = append(nested[sub.Type], m)
	}
	for name, list := range nested {
		out[name] = list
	}
	return out
}

func (p *parser) anyValue(e hclsyntax.Expression, ctx *hcl.EvalContext) (any, bool) {
	val, diags := e.Value(ctx)
	p.diags = append(p.diags, diags...)
	if diags.HasErrors() {
		return nil, false
	}
	if _, object := e.(*hclsyntax.ObjectConsExpr); object {
		val = cty.TupleVal([]cty.Value{val})
	}
	out, err := toGo(val)
	if err != nil {
		p.fault(e.Range(), "Unsuitable value", "This argument does not take the value: %s.", err)
		return nil, false
	}
	return out, true
}

// toGo is a value in Go's plain types: nil, bool, string, int, float64,
// []any, []map[string]any and map[string]any.
func toGo(val cty.Value) (any, error) {
	t := val.Type()
	switch {
	case !val.IsKnown():
		return nil, fmt.Errorf("the value is not known before the job runs")
	case val.IsNull():
		return nil, nil
	case t == cty.String:
		return val.AsString(), nil
	case t == cty.Bool:
		return val.True(), nil
	case t == cty.Number:
		return number(val.AsBigFloat()), nil
	case t.IsMapType() || t.IsObjectType():
		out := map[string]any{}
		for it := val.ElementIterator(); it.Next(); {
			k, v := it.Element()
			g, err := toGo(v)
			if err != nil {
				return nil, err
			}
			out[k.AsString()] = g
		}
		return out, nil
	case t.IsListType() || t.IsSetType() || t.IsTupleType():
		return sequence(val)
	default:
		return nil, fmt.Errorf("a value of type %s cannot be part of a job", t.FriendlyName())
	}
}

// sequence is a list; one that holds maps only keeps their type, as plugins'
// schemas expect it for repeated blocks.
func sequence(val cty.Value) (any, error) {
	list := []any{}
	maps := []map[string]any{}
	for it := val.ElementIterator(); it.Next(); {
		_, v := it.Element()
		g, err := toGo(v)
		if err != nil {
			return nil, err
		}
		list = append(list, g)
		if m, ok := g.(map[string]any); ok {
			maps = append(maps, m)
		}
	}
	if len(maps) > 0 && len(maps) == len(list) {
		return maps, nil
	}
	return list, nil
}

// number is the smallest of int and float64 that holds the value.
func number(f *big.Float) any {
	if i, exact := f.Int64(); exact == big.Exact && int64(int(i)) == i {
		return int(i)
	}
	v, _ := f.Float64()
	return v
}
