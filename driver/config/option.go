// Package config is the configuration of the task driver: what stands in the
// agent's plugin block and what stands in a task's config block. Each has its
// options in one table, which makes the schema that Nomad checks by, the
// defaults, and the tables of the documentation.
package config

import (
	"fmt"
	"strings"

	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// Option is an attribute or a block of a configuration.
type Option struct {
	// Key is the name in HCL.
	Key string
	// Type is an HCL type expression; "" for a block.
	Type string
	// Default is an HCL expression, "" for none.
	Default string
	// Doc says what it does.
	Doc string
	// Block are the options of a block; Free is the type of the values where
	// the block's names are the user's own.
	Block []Option
	Free  string
}

// Schema describes options to Nomad.
func Schema(options []Option) *hclspec.Spec {
	attributes := make(map[string]*hclspec.Spec, len(options))
	for _, o := range options {
		attributes[o.Key] = o.schema()
	}
	return hclspec.Object(attributes)
}

func (o Option) schema() *hclspec.Spec {
	switch {
	case o.Free != "":
		return hclspec.BlockAttrs(o.Key, o.Free, false)
	case o.Block != nil:
		return hclspec.Block(o.Key, false, Schema(o.Block))
	case o.Default == "":
		return hclspec.Attr(o.Key, o.Type, false)
	default:
		return hclspec.Default(hclspec.Attr(o.Key, o.Type, false), hclspec.Literal(o.Default))
	}
}

// Table is the options as a table in Markdown, those of blocks after their
// block's name and a dot.
func Table(options []Option) string {
	var b strings.Builder
	b.WriteString("| key | type | default | meaning |\n|---|---|---|---|\n")
	rows(&b, "", options)
	return b.String()
}

func rows(b *strings.Builder, prefix string, options []Option) {
	for _, o := range options {
		typ, fallback := o.Type, ""
		switch {
		case o.Free != "":
			typ = "block of " + o.Free + "s"
		case o.Block != nil:
			typ = "block"
		case o.Default != "":
			fallback = "`" + o.Default + "`"
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s | %s |\n", prefix, o.Key, typ, fallback, o.Doc)
		rows(b, prefix+o.Key+".", o.Block)
	}
}
