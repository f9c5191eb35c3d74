package jobhcl

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// block is one block with the context in which its expressions are evaluated:
// blocks that come out of a dynamic block see its iterator.
type block struct {
	typ    string
	labels []string
	at     hcl.Range
	body   *hclsyntax.Body
	ctx    *hcl.EvalContext
}

// blocks are a body's blocks with dynamic ones expanded, in the file's order.
func (p *parser) blocks(body *hclsyntax.Body, ctx *hcl.EvalContext) []block {
	var out []block
	for _, b := range body.Blocks {
		if b.Type == "dynamic" {
			out = append(out, p.expand(b, ctx)...)
			continue
		}
		out = append(out, block{typ: b.Type, labels: b.Labels, at: b.DefRange(), body: b.Body, ctx: ctx})
	}
	return out
}

// expand makes a dynamic block's blocks, one for each element of for_each.
func (p *parser) expand(b *hclsyntax.Block, ctx *hcl.EvalContext) []block {
	if !p.checkLabels(b, 1) {
		return nil
	}
	for _, attr := range sortedAttrs(b.Body) {
		switch attr.Name {
		case "for_each", "labels":
		case "iterator":
			if hcl.ExprAsKeyword(attr.Expr) == "" {
				p.fault(attr.Expr.Range(), "Invalid iterator", "The iterator is a single name, without quotes.")
			}
		default:
			p.fault(attr.NameRange, "Unsupported argument", "A dynamic block takes for_each, iterator, labels and one content block, not %q.", attr.Name)
		}
	}
	each := b.Body.Attributes["for_each"]
	if each == nil || len(b.Body.Blocks) != 1 || b.Body.Blocks[0].Type != "content" {
		p.fault(b.DefRange(), "Incomplete dynamic block", "A dynamic block needs for_each and one content block.")
		return nil
	}
	elements, diags := each.Expr.Value(ctx)
	p.diags = append(p.diags, diags...)
	if diags.HasErrors() {
		return nil
	}
	if elements.IsNull() || !elements.CanIterateElements() {
		p.fault(each.Expr.Range(), "Invalid for_each", "for_each takes a list, set, map or object, not %s.", elements.Type().FriendlyName())
		return nil
	}
	var out []block
	content := b.Body.Blocks[0]
	for it := elements.ElementIterator(); it.Next(); {
		key, val := it.Element()
		if elements.Type().IsSetType() {
			key = val
		}
		inner := ctx.NewChild()
		inner.Variables = map[string]cty.Value{
			iteratorName(b): cty.ObjectVal(map[string]cty.Value{"key": key, "value": val}),
		}
		labels, ok := p.dynamicLabels(b, inner)
		if !ok {
			return nil
		}
		out = append(out, block{typ: b.Labels[0], labels: labels, at: b.DefRange(), body: content.Body, ctx: inner})
	}
	return out
}

func (p *parser) dynamicLabels(b *hclsyntax.Block, ctx *hcl.EvalContext) ([]string, bool) {
	attr := b.Body.Attributes["labels"]
	if attr == nil {
		return nil, true
	}
	exprs, diags := hcl.ExprList(attr.Expr)
	p.diags = append(p.diags, diags...)
	if diags.HasErrors() {
		return nil, false
	}
	var labels []string
	for _, expr := range exprs {
		val, diags := expr.Value(ctx)
		p.diags = append(p.diags, diags...)
		if diags.HasErrors() {
			return nil, false
		}
		text, err := convert.Convert(val, cty.String)
		if err != nil || text.IsNull() || !text.IsKnown() {
			p.fault(expr.Range(), "Invalid label", "A label must be a string, not %s.", val.Type().FriendlyName())
			return nil, false
		}
		labels = append(labels, text.AsString())
	}
	return labels, true
}
