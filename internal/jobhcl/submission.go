package jobhcl

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

// VariableText is the text of one variable file with the values of opts for
// a job file's variables, each once: the form in which Nomad's parse endpoint
// and a job's submission take them. It is "" when there are none. The job file
// itself is not evaluated.
func VariableText(src []byte, filename string, opts Options) (string, error) {
	file, diags := readHCL(src, filename)
	if diags.HasErrors() {
		return "", newError(diags)
	}
	if file == nil {
		return "", fmt.Errorf("parse %s: %w", filename, ErrJSON)
	}
	p := &parser{opts: opts, filename: filename, src: src, vars: map[string]*variable{}}
	for _, b := range file.Body.(*hclsyntax.Body).Blocks {
		switch b.Type {
		case "variable":
			p.declareVariable(b)
		case "variables":
			p.declareVariables(b)
		}
	}
	// Every value is read as Parse would, so that a fault shows here, with
	// the place of the user's own file.
	p.assignVariables()
	if p.diags.HasErrors() {
		return "", newError(p.diags)
	}
	texts := p.variableTexts()
	var out strings.Builder
	for _, name := range sortedNames(texts) {
		fmt.Fprintf(&out, "%s = %s\n", name, texts[name])
	}
	return out.String(), nil
}

// variableTexts are the values given from outside, as expressions.
func (p *parser) variableTexts() map[string]string {
	texts := map[string]string{}
	set := func(name, text string) {
		v := p.vars[name]
		if v == nil {
			return
		}
		switch v.declared {
		case cty.String, cty.Number, cty.NilType:
			text = string(hclwrite.TokensForValue(cty.StringVal(text)).Bytes())
		}
		texts[name] = text
	}
	for _, entry := range p.opts.Env {
		if name, text, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, envPrefix) {
			set(strings.TrimPrefix(name, envPrefix), text)
		}
	}
	for _, f := range p.opts.VarFiles {
		file, _ := readHCL(f.Src, f.Name)
		for _, attr := range sortedAttrs(file.Body.(*hclsyntax.Body)) {
			if p.vars[attr.Name] != nil {
				texts[attr.Name] = string(attr.Expr.Range().SliceBytes(f.Src))
			}
		}
	}
	for name, text := range p.opts.Vars {
		set(name, text)
	}
	return texts
}
