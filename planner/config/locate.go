package config

import (
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// locate finds the line of a key written "block.block.key", or of the last
// block on the way to it; 0 when the file has neither. A label is written in
// brackets: "level[rack].meta"; [#2] is the third block of the type.
func locate(body *hclsyntax.Body, key string) int {
	line := 0
	for body != nil {
		name, rest, more := strings.Cut(key, ".")
		if !more {
			if attr, ok := body.Attributes[name]; ok {
				return attr.SrcRange.Start.Line
			}
		}
		block := findBlock(body, name)
		if block == nil {
			return line
		}
		line = block.TypeRange.Start.Line
		if !more {
			return line
		}
		body, key = block.Body, rest
	}
	return line
}

func findBlock(body *hclsyntax.Body, name string) *hclsyntax.Block {
	label := ""
	if typ, rest, ok := strings.Cut(name, "["); ok {
		name, label = typ, strings.TrimSuffix(rest, "]")
	}
	if at, err := strconv.Atoi(strings.TrimPrefix(label, "#")); err == nil && strings.HasPrefix(label, "#") {
		for _, b := range body.Blocks {
			if b.Type == name {
				if at == 0 {
					return b
				}
				at--
			}
		}
		return nil
	}
	for _, b := range body.Blocks {
		if b.Type == name && (label == "" || (len(b.Labels) > 0 && b.Labels[0] == label)) {
			return b
		}
	}
	return nil
}

// locateExact reports whether the file has the key "block.key" itself.
func locateExact(body *hclsyntax.Body, key string) bool {
	if body == nil {
		return false
	}
	block, name, _ := strings.Cut(key, ".")
	b := findBlock(body, block)
	if b == nil {
		return false
	}
	_, ok := b.Body.Attributes[name]
	return ok
}
