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
	in := func(child *hclsyntax.Expression) {
		if *child != nil {
			*child = p.keepRuntimeRefs(*child, scope)
		}
	}
	switch e := e.(type) {
	case *hclsyntax.ScopeTraversalExpr:
		root := e.Traversal.RootName()
		if root == "var" || root == "local" || slices.Contains(scope, root) {
			return e
		}
		return &hclsyntax.LiteralValueExpr{Val: cty.StringVal(p.referenceText(e.SrcRange)), SrcRange: e.SrcRange}
	case *hclsyntax.TemplateExpr:
		for i := range e.Parts {
			in(&e.Parts[i])
		}
	case *hclsyntax.TemplateWrapExpr:
		in(&e.Wrapped)
	case *hclsyntax.TemplateJoinExpr:
		in(&e.Tuple)
	case *hclsyntax.ParenthesesExpr:
		in(&e.Expression)
	case *hclsyntax.RelativeTraversalExpr:
		in(&e.Source)
	case *hclsyntax.IndexExpr:
		in(&e.Collection)
		in(&e.Key)
	case *hclsyntax.SplatExpr:
		in(&e.Source)
		in(&e.Each)
	case *hclsyntax.BinaryOpExpr:
		in(&e.LHS)
		in(&e.RHS)
	case *hclsyntax.UnaryOpExpr:
		in(&e.Val)
	case *hclsyntax.ConditionalExpr:
		in(&e.Condition)
		in(&e.TrueResult)
		in(&e.FalseResult)
	case *hclsyntax.TupleConsExpr:
		for i := range e.Exprs {
			in(&e.Exprs[i])
		}
	case *hclsyntax.ObjectConsExpr:
		for i := range e.Items {
			in(&e.Items[i].KeyExpr)
			in(&e.Items[i].ValueExpr)
		}
	case *hclsyntax.ObjectConsKeyExpr:
		// A bare word is the key itself, not a reference.
		if _, bare := e.Wrapped.(*hclsyntax.ScopeTraversalExpr); !bare || e.ForceNonLiteral {
			in(&e.Wrapped)
		}
	case *hclsyntax.FunctionCallExpr:
		for i := range e.Args {
			// convert's second argument is a type, written in the same syntax
			// as a reference.
			if e.Name == "convert" && i == 1 {
				continue
			}
			in(&e.Args[i])
		}
	case *hclsyntax.ForExpr:
		in(&e.CollExpr)
		scope = append(slices.Clone(scope), e.KeyVar, e.ValVar)
		in(&e.KeyExpr)
		in(&e.ValExpr)
		in(&e.CondExpr)
	}
	return e
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
