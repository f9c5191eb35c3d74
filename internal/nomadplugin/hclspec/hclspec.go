// Package hclspec describes the HCL configuration of plugins and tasks, in the
// form in which Nomad asks plugins for it, and decodes a configuration by such
// a description.
package hclspec

import (
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/hclspecpb"
)

// Spec describes one HCL value or body.
type Spec = hclspecpb.Spec

// Object describes a body whose attributes and blocks are given by name; a
// nested spec without a name of its own takes its key.
func Object(attributes map[string]*Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_Object{Object: &hclspecpb.Object{Attributes: attributes}}}
}

// Array describes a list of values, each with a spec of its own.
func Array(values ...*Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_Array{Array: &hclspecpb.Array{Values: values}}}
}

// Attr describes an attribute. The type is an HCL type expression: "string",
// "number", "bool", "any", "list(string)", "map(number)", "object({a = bool})".
func Attr(name, typ string, required bool) *Spec {
	return &Spec{Block: &hclspecpb.Spec_Attr{Attr: &hclspecpb.Attr{Name: name, Type: typ, Required: required}}}
}

// Block describes a block that stands at most once.
func Block(name string, required bool, nested *Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_BlockValue{BlockValue: &hclspecpb.Block{Name: name, Required: required, Nested: nested}}}
}

// BlockAttrs describes a block of attributes with free names and one type.
func BlockAttrs(name, elementType string, required bool) *Spec {
	return &Spec{Block: &hclspecpb.Spec_BlockAttrs{BlockAttrs: &hclspecpb.BlockAttrs{Name: name, Type: elementType, Required: required}}}
}

// BlockList describes a block that may stand several times, in order.
func BlockList(name string, nested *Spec) *Spec {
	return BlockListLimited(name, 0, 0, nested)
}

// BlockListLimited is BlockList with bounds on the number of blocks; 0 is none.
func BlockListLimited(name string, least, most uint64, nested *Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_BlockList{BlockList: &hclspecpb.BlockList{
		Name: name, MinItems: least, MaxItems: most, Nested: nested,
	}}}
}

// BlockMap describes labelled blocks; the labels are the keys of the result.
func BlockMap(name string, labels []string, nested *Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_BlockMap{BlockMap: &hclspecpb.BlockMap{Name: name, Labels: labels, Nested: nested}}}
}

// Default describes a value with what to take when it is null.
func Default(primary, fallback *Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_Default{Default: &hclspecpb.Default{Primary: primary, Default: fallback}}}
}

// Literal describes a constant, an HCL expression: `"text"`, "8", "true".
func Literal(expression string) *Spec {
	return &Spec{Block: &hclspecpb.Spec_Literal{Literal: &hclspecpb.Literal{Value: expression}}}
}
