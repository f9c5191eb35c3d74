package hclspec

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/hclspecpb"
)

// maxDepth bounds nesting: a spec comes from another process.
const maxDepth = 64

// ErrSpec is wrapped by every error about a spec itself, as opposed to one
// about the configuration that is read by it.
var ErrSpec = errors.New("invalid hclspec")

// Convert turns a spec into the one that the hcldec package reads by.
func Convert(spec *Spec) (hcldec.Spec, error) {
	c := converter{}
	out := c.spec(spec, "", 0)
	if err := errors.Join(c.errs...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	return out, nil
}

type converter struct{ errs []error }

func (c *converter) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// spec converts one spec; implied is the name that an enclosing object gives.
func (c *converter) spec(s *Spec, implied string, depth int) hcldec.Spec {
	if depth > maxDepth {
		c.fail("nested deeper than %d", maxDepth)
		return nil
	}
	nested := func(s *Spec) hcldec.Spec { return c.spec(s, "", depth+1) }
	switch b := s.GetBlock().(type) {
	case *hclspecpb.Spec_Object:
		out := hcldec.ObjectSpec{}
		attributes := b.Object.GetAttributes()
		for _, name := range slices.Sorted(maps.Keys(attributes)) {
			out[name] = c.spec(attributes[name], name, depth+1)
		}
		return out
	case *hclspecpb.Spec_Array:
		out := hcldec.TupleSpec{}
		for _, v := range b.Array.GetValues() {
			out = append(out, nested(v))
		}
		return out
	case *hclspecpb.Spec_Attr:
		a := b.Attr
		return &hcldec.AttrSpec{Name: c.name("attr", a.GetName(), implied), Type: c.typ(a.GetType()), Required: a.GetRequired()}
	case *hclspecpb.Spec_Default:
		return &hcldec.DefaultSpec{Primary: nested(b.Default.GetPrimary()), Default: nested(b.Default.GetDefault())}
	case *hclspecpb.Spec_Literal:
		return &hcldec.LiteralSpec{Value: c.literal(b.Literal.GetValue())}
	default:
		return c.block(s, implied, nested)
	}
}

// block converts the kinds of spec that read blocks.
func (c *converter) block(s *Spec, implied string, nested func(*Spec) hcldec.Spec) hcldec.Spec {
	switch b := s.GetBlock().(type) {
	case *hclspecpb.Spec_BlockValue:
		v := b.BlockValue
		return &hcldec.BlockSpec{TypeName: c.name("block", v.GetName(), implied), Required: v.GetRequired(), Nested: nested(v.GetNested())}
	case *hclspecpb.Spec_BlockAttrs:
		v := b.BlockAttrs
		return &hcldec.BlockAttrsSpec{TypeName: c.name("block_attrs", v.GetName(), implied), ElementType: c.typ(v.GetType()), Required: v.GetRequired()}
	case *hclspecpb.Spec_BlockList:
		v := b.BlockList
		return &hcldec.BlockListSpec{
			TypeName: c.name("block_list", v.GetName(), implied), Nested: nested(v.GetNested()),
			MinItems: int(v.GetMinItems()), MaxItems: int(v.GetMaxItems()),
		}
	case *hclspecpb.Spec_BlockSet:
		v := b.BlockSet
		return &hcldec.BlockSetSpec{
			TypeName: c.name("block_set", v.GetName(), implied), Nested: nested(v.GetNested()),
			MinItems: int(v.GetMinItems()), MaxItems: int(v.GetMaxItems()),
		}
	case *hclspecpb.Spec_BlockMap:
		v := b.BlockMap
		if len(v.GetLabels()) == 0 {
			c.fail("block_map %q has no labels; at least one is needed", v.GetName())
		}
		return &hcldec.BlockMapSpec{TypeName: c.name("block_map", v.GetName(), implied), LabelNames: v.GetLabels(), Nested: nested(v.GetNested())}
	default:
		c.fail("a spec is empty; one of object, array, attr, block, block_attrs, block_list, block_set, block_map, default, literal is needed")
		return nil
	}
}

func (c *converter) name(kind, own, implied string) string {
	if own != "" {
		return own
	}
	if implied == "" {
		c.fail("%s has no name", kind)
	}
	return implied
}

func (c *converter) typ(expression string) cty.Type {
	e, diags := hclsyntax.ParseExpression([]byte(expression), "type", hcl.InitialPos)
	if diags.HasErrors() {
		c.fail("type %q: %s", expression, diags.Error())
		return cty.DynamicPseudoType
	}
	t, diags := typeexpr.TypeConstraint(e)
	if diags.HasErrors() {
		c.fail("type %q: %s", expression, diags.Error())
		return cty.DynamicPseudoType
	}
	return t
}

func (c *converter) literal(expression string) cty.Value {
	e, diags := hclsyntax.ParseExpression([]byte(expression), "literal", hcl.InitialPos)
	if diags.HasErrors() {
		c.fail("literal %q: %s", expression, diags.Error())
		return cty.NullVal(cty.DynamicPseudoType)
	}
	v, diags := e.Value(&hcl.EvalContext{Functions: functions()})
	if diags.HasErrors() {
		c.fail("literal %q: %s", expression, diags.Error())
		return cty.NullVal(cty.DynamicPseudoType)
	}
	return v
}
