package jobhcl

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// keepRuntimeRefsInBody replaces every reference that this package cannot
// resolve by the text "${reference}", which Nomad's client resolves when it
// runs the task. scope holds the names bound by enclosing dynamic blocks.
//
// The syntax tree is changed in place, because the expression library has no
// hook for names that it does not know.
func (p *parser) keepRuntimeRefsInBody(body *hclsyntax.Body, scope []string) {
	for _, attr := range body.Attributes {
		// A dynamic block's iterator is a name, not a reference; it is bound
		// before its expressions are reached.
		attr.Expr = p.keepRuntimeRefs(attr.Expr, scope)
	}
	for _, b := range body.Blocks {
		if b.Type == "dynamic" && len(b.Labels) == 1 {
			p.keepRuntimeRefsInDynamic(b, scope)
			continue
		}
		p.keepRuntimeRefsInBody(b.Body, scope)
	}
}

func (p *parser) keepRuntimeRefsInDynamic(b *hclsyntax.Block, scope []string) {
	inner := append(slices.Clone(scope), iteratorName(b))
	for name, attr := range b.Body.Attributes {
		switch name {
		case "iterator":
		case "labels":
			attr.Expr = p.keepRuntimeRefs(attr.Expr, inner)
		default:
			attr.Expr = p.keepRuntimeRefs(attr.Expr, scope)
		}
	}
	for _, content := range b.Body.Blocks {
		p.keepRuntimeRefsInBody(content.Body, inner)
	}
}

// iteratorName is the name that a dynamic block binds.
func iteratorName(b *hclsyntax.Block) string {
	if attr := b.Body.Attributes["iterator"]; attr != nil {
		if name := hcl.ExprAsKeyword(attr.Expr); name != "" {
			return name
		}
	}
	return b.Labels[0]
}

// keepRuntimeRefs is keepRuntimeRefsInBody for one expression; it returns the
// expression to use in its place.
func (p *parser) keepRuntimeRefs(e hclsyntax.Expression, scope []string) hclsyntax.Expression {
	switch e := e.(type) {
	case *hclsyntax.ScopeTraversalExpr:
		root := e.Traversal.RootName()
		if root == "var" || root == "local" || slices.Contains(scope, root) {
			return e
		}
		return &hclsyntax.LiteralValueExpr{Val: cty.StringVal(p.referenceText(e.SrcRange)), SrcRange: e.SrcRange}
	case *hclsyntax.ForExpr:
		e.CollExpr = p.keepRuntimeRefs(e.CollExpr, scope)
		scope = append(slices.Clone(scope), e.KeyVar, e.ValVar)
	}
	for _, child := range children(e) {
		if *child != nil {
			*child = p.keepRuntimeRefs(*child, scope)
		}
	}
	return e
}

// children are the places of an expression's parts that may hold references.
// A for expression's collection is not among them: it does not see the names
// that the expression binds.
func children(e hclsyntax.Expression) []*hclsyntax.Expression {
	switch e := e.(type) {
	case *hclsyntax.TemplateExpr:
		return places(e.Parts)
	case *hclsyntax.TemplateWrapExpr:
		return []*hclsyntax.Expression{&e.Wrapped}
	case *hclsyntax.TemplateJoinExpr:
		return []*hclsyntax.Expression{&e.Tuple}
	case *hclsyntax.ParenthesesExpr:
		return []*hclsyntax.Expression{&e.Expression}
	case *hclsyntax.RelativeTraversalExpr:
		return []*hclsyntax.Expression{&e.Source}
	case *hclsyntax.IndexExpr:
		return []*hclsyntax.Expression{&e.Collection, &e.Key}
	case *hclsyntax.SplatExpr:
		return []*hclsyntax.Expression{&e.Source, &e.Each}
	case *hclsyntax.BinaryOpExpr:
		return []*hclsyntax.Expression{&e.LHS, &e.RHS}
	case *hclsyntax.UnaryOpExpr:
		return []*hclsyntax.Expression{&e.Val}
	case *hclsyntax.ConditionalExpr:
		return []*hclsyntax.Expression{&e.Condition, &e.TrueResult, &e.FalseResult}
	case *hclsyntax.ForExpr:
		return []*hclsyntax.Expression{&e.KeyExpr, &e.ValExpr, &e.CondExpr}
	case *hclsyntax.TupleConsExpr:
		return places(e.Exprs)
	case *hclsyntax.ObjectConsExpr:
		var out []*hclsyntax.Expression
		for i := range e.Items {
			out = append(out, &e.Items[i].KeyExpr, &e.Items[i].ValueExpr)
		}
		return out
	case *hclsyntax.ObjectConsKeyExpr:
		// A bare word is the key itself, not a reference.
		if _, bare := e.Wrapped.(*hclsyntax.ScopeTraversalExpr); bare && !e.ForceNonLiteral {
			return nil
		}
		return []*hclsyntax.Expression{&e.Wrapped}
	case *hclsyntax.FunctionCallExpr:
		// convert's second argument is a type, written like a reference.
		if e.Name == "convert" && len(e.Args) > 1 {
			return append(places(e.Args[:1]), places(e.Args[2:])...)
		}
		return places(e.Args)
	}
	return nil
}

func places(list []hclsyntax.Expression) []*hclsyntax.Expression {
	out := make([]*hclsyntax.Expression, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// referenceText is the source of a reference in "${…}", with the spaces that
// its author put inside the braces.
func (p *parser) referenceText(at hcl.Range) string {
	start, end := at.Start.Byte, at.End.Byte
	left := start
	for left > 0 && p.src[left-1] == ' ' {
		left--
	}
	if left < 2 || p.src[left-1] != '{' || p.src[left-2] != '$' {
		return "${" + string(p.src[start:end]) + "}"
	}
	right := end
	for right < len(p.src) && p.src[right] == ' ' {
		right++
	}
	if right >= len(p.src) || p.src[right] != '}' {
		right = end
	}
	return "${" + string(p.src[left:right]) + "}"
}
