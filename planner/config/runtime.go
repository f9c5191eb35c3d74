package config

import (
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Parts of the configuration may be replaced while a planner runs, each by a
// text that holds nothing else.

// part is a text in which there are blocks of one type alone. It knows of no
// environment and of no other file.
func part(src []byte, name, only string, levels []Level) document {
	return document{
		src: src, path: name, start: hcl.InitialPos, levels: levels, only: only,
		env:  func(string) (string, bool) { return "", false },
		read: func(string) ([]byte, error) { return nil, errors.New("no other file is read") },
	}
}

// ParsePolicy reads one policy block, or what is inside of one. What it does not
// name has its default. levels are the cluster's. The error joins every fault, each
// with its line in the text called name.
func ParsePolicy(src []byte, name string, levels []Level) (Policy, error) {
	t := part(src, name, "policy", levels)
	if inside(src, name) {
		// Lines keep their numbers.
		t.src, t.start = slices.Concat([]byte("policy {\n"), src, []byte("\n}\n")), hcl.Pos{Line: 0, Column: 1}
	}
	c, err := t.parse()
	return c.Policy, err
}

// inside reports whether a text is the inside of a policy block without the block,
// as the documents show it: one of its keys is there, and the block is not.
func inside(src []byte, name string) (found bool) {
	file, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	body, ok := file.Body.(*hclsyntax.Body)
	if diags.HasErrors() || !ok {
		return false
	}
	known, _ := fieldsOf(reflect.ValueOf(filePolicy{}))
	for key := range body.Attributes {
		_, is := known[key]
		found = found || is
	}
	for _, b := range body.Blocks {
		if b.Type == "policy" {
			return false
		}
		_, is := known[b.Type]
		found = found || is
	}
	return found
}

// ParseQueues reads queue blocks, any number of them.
func ParseQueues(src []byte, name string) ([]model.Queue, error) {
	c, err := part(src, name, "queue", Default().Levels).parse()
	return c.Queues, err
}

// only takes out of a text what is no block of that type, and tells of it. Of a
// policy there is one.
func (l *loader) only(body *hclsyntax.Body, typ string) {
	for _, key := range slices.Sorted(maps.Keys(body.Attributes)) {
		l.add(body.Attributes[key].SrcRange.Start.Line, key+": want "+typ+" blocks and nothing else")
	}
	body.Attributes = nil
	var kept hclsyntax.Blocks
	for _, b := range body.Blocks {
		if b.Type != typ {
			l.add(b.TypeRange.Start.Line, b.Type+": want "+typ+" blocks and nothing else")
		} else {
			kept = append(kept, b)
		}
	}
	body.Blocks = kept
	if typ == "policy" && len(kept) == 0 && len(l.faults.list) == 0 {
		l.add(0, "0 policy blocks: want 1")
	}
}
