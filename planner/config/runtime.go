package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Parts of the configuration may be replaced while a planner runs, each by a
// text that holds nothing else.

// ParsePolicy reads one policy block. What it does not name has its default. The
// error joins every fault, each with its line in the text called name.
func ParsePolicy(src []byte, name string) (Policy, error) {
	src, start := wrapped(src, name)
	if err := only(src, name, "policy", 1); err != nil {
		return Policy{}, err
	}
	none := func(string) (string, bool) { return "", false }
	c, err := parseFrom(start, src, name, Default().Levels, none, func(string) ([]byte, error) { return nil, errors.New("no other file is read") })
	return c.Policy, err
}

// wrapped puts a policy block around what is only the inside of one, as the
// documents show it. Lines keep their numbers.
func wrapped(src []byte, name string) ([]byte, hcl.Pos) {
	file, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	body, ok := file.Body.(*hclsyntax.Body)
	if diags.HasErrors() || !ok || len(body.Attributes) == 0 && len(body.Blocks) == 0 {
		return src, hcl.InitialPos
	}
	inside := reflect.TypeFor[filePolicy]()
	known := map[string]bool{}
	for i := range inside.NumField() {
		key, _, _ := strings.Cut(inside.Field(i).Tag.Get("hcl"), ",")
		known[key] = true
	}
	for key := range body.Attributes {
		if !known[key] {
			return src, hcl.InitialPos
		}
	}
	for _, b := range body.Blocks {
		if !known[b.Type] {
			return src, hcl.InitialPos
		}
	}
	return slices.Concat([]byte("policy {\n"), src, []byte("\n}\n")), hcl.Pos{Line: 0, Column: 1}
}

// ParseQueues reads queue blocks, any number of them.
func ParseQueues(src []byte, name string) ([]model.Queue, error) {
	if err := only(src, name, "queue", 0); err != nil {
		return nil, err
	}
	none := func(string) (string, bool) { return "", false }
	c, err := parse(src, name, none, func(string) ([]byte, error) { return nil, errors.New("no other file is read") })
	return c.Queues, err
}

// only checks that a text has blocks of one type alone, and how many if that
// is limited.
func only(src []byte, name, typ string, most int) error {
	file, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	l := &loader{path: name}
	l.diags(diags)
	if body, ok := file.Body.(*hclsyntax.Body); ok {
		for _, key := range slices.Sorted(maps.Keys(body.Attributes)) {
			l.faults = append(l.faults, fmt.Errorf("%s:%d: %s: want %s blocks and nothing else", name, body.Attributes[key].SrcRange.Start.Line, key, typ))
		}
		n := 0
		for _, b := range body.Blocks {
			if b.Type != typ {
				l.faults = append(l.faults, fmt.Errorf("%s:%d: %s: want %s blocks and nothing else", name, b.TypeRange.Start.Line, b.Type, typ))
			} else {
				n++
			}
		}
		if most > 0 && n != most && len(l.faults) == 0 {
			l.faults = append(l.faults, fmt.Errorf("%s: %d %s blocks: want %d", name, n, typ, most))
		}
	}
	return errors.Join(l.faults...)
}
