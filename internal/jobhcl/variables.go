package jobhcl

import (
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// envPrefix marks an environment variable that sets a job's variable.
const envPrefix = "NOMAD_VAR_"

// variable is one declared variable.
type variable struct {
	name string
	at   hcl.Range
	typ  cty.Type // cty.NilType: any
	// declared is typ before anything was assigned from outside: it decides
	// how text is read.
	declared cty.Type
	value    cty.Value
	set      bool
	// from is where value was written, for the faults that it causes.
	from        hcl.Range
	validations []validation
}

// validation is a rule that a variable's value must obey.
type validation struct {
	condition hclsyntax.Expression
	message   string
	at        hcl.Range
}

// declareVariables reads a `variables { name = default }` block.
func (p *parser) declareVariables(b *hclsyntax.Block) {
	p.checkLabels(b, 0)
	p.noBlocks(b)
	for _, attr := range sortedAttrs(b.Body) {
		v := p.newVariable(attr.Name, attr.NameRange)
		if v == nil {
			continue
		}
		if val, ok := p.constant(attr.Expr); ok {
			v.typ = val.Type()
			p.assign(v, val, attr.Expr.Range())
		}
	}
}

// declareVariable reads a `variable "name" { … }` block.
func (p *parser) declareVariable(b *hclsyntax.Block) {
	if !p.checkLabels(b, 1) {
		return
	}
	v := p.newVariable(b.Labels[0], b.LabelRanges[0])
	if v == nil {
		return
	}
	v.at = b.DefRange()
	for _, attr := range sortedAttrs(b.Body) {
		switch attr.Name {
		case "type":
			typ, diags := typeexpr.TypeConstraint(attr.Expr)
			p.diags = append(p.diags, diags...)
			if !diags.HasErrors() {
				v.typ = typ
			}
		case "description":
			var description string
			p.diags = append(p.diags, gohcl.DecodeExpression(attr.Expr, nil, &description)...)
		case "default":
		default:
			p.fault(attr.NameRange, "Unsupported argument", "A variable block takes type, default, description and validation, not %q.", attr.Name)
		}
	}
	if attr := b.Body.Attributes["default"]; attr != nil {
		if val, ok := p.constant(attr.Expr); ok {
			p.assign(v, val, attr.Expr.Range())
		}
	}
	for _, sub := range b.Body.Blocks {
		if sub.Type != "validation" {
			p.fault(sub.TypeRange, "Unsupported block type", "A variable block takes validation blocks, not %q.", sub.Type)
			continue
		}
		p.declareValidation(v, sub)
	}
}

func (p *parser) declareValidation(v *variable, b *hclsyntax.Block) {
	rule := validation{at: b.DefRange()}
	if attr := b.Body.Attributes["condition"]; attr != nil {
		rule.condition = attr.Expr
	}
	if attr := b.Body.Attributes["error_message"]; attr != nil {
		p.diags = append(p.diags, gohcl.DecodeExpression(attr.Expr, nil, &rule.message)...)
	}
	if rule.condition == nil || strings.TrimSpace(rule.message) == "" {
		p.fault(b.DefRange(), "Incomplete validation", "A validation block needs a condition and an error_message.")
		return
	}
	for _, ref := range rule.condition.Variables() {
		name := ""
		if len(ref) > 1 && ref.RootName() == "var" {
			if step, ok := ref[1].(hcl.TraverseAttr); ok {
				name = step.Name
			}
		}
		if name != v.name {
			p.fault(ref.SourceRange(), "Invalid reference in validation", "The condition may refer to var.%s only.", v.name)
			return
		}
	}
	v.validations = append(v.validations, rule)
}

// newVariable registers a name; nil when it cannot be used.
func (p *parser) newVariable(name string, at hcl.Range) *variable {
	if !hclsyntax.ValidIdentifier(name) {
		p.fault(at, "Invalid variable name", "%q is not a name: use a letter or underscore, then letters, digits, underscores and dashes.", name)
		return nil
	}
	if old := p.vars[name]; old != nil {
		p.fault(at, "Duplicate variable", "Variable %q is declared at %s already.", name, old.at)
		return nil
	}
	v := &variable{name: name, at: at}
	p.vars[name] = v
	return v
}

// constant evaluates an expression that may refer to nothing.
func (p *parser) constant(e hcl.Expression) (cty.Value, bool) {
	val, diags := e.Value(nil)
	p.diags = append(p.diags, diags...)
	return val, !diags.HasErrors()
}

// assign sets a variable's value, converted to its type.
func (p *parser) assign(v *variable, val cty.Value, from hcl.Range) {
	if v.typ != cty.NilType {
		converted, err := convert.Convert(val, v.typ)
		if err != nil {
			p.fault(from, "Invalid value for variable", "Variable %q does not take this value: %s.", v.name, err)
			return
		}
		val = converted
	} else {
		v.typ = val.Type()
	}
	v.value, v.set, v.from = val, true, from
}

// assignVariables applies the values given from outside: environment, then
// files, then -var.
func (p *parser) assignVariables() {
	for _, v := range p.vars {
		v.declared = v.typ
	}
	for _, entry := range p.opts.Env {
		name, text, ok := strings.Cut(strings.TrimPrefix(entry, envPrefix), "=")
		if v := p.vars[name]; ok && v != nil && strings.HasPrefix(entry, envPrefix) {
			p.assignText(v, text, "environment")
		}
	}
	for _, f := range p.opts.VarFiles {
		p.assignFile(f)
	}
	names := make([]string, 0, len(p.opts.Vars))
	for name := range p.opts.Vars {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if v := p.vars[name]; v != nil {
			p.assignText(v, p.opts.Vars[name], "-var")
		} else if !p.opts.IgnoreUndeclared {
			p.fault(hcl.Range{Filename: "-var " + name}, "Undeclared variable", "The job file declares no variable %q%s.", name, p.declared())
		}
	}
	for _, name := range p.variableNames() {
		if v := p.vars[name]; !v.set && !p.diags.HasErrors() {
			p.fault(v.at, "Variable without a value", "Variable %q has no default; give it one with -var %s=VALUE.", name, name)
		} else if v.set {
			p.validate(v)
		}
	}
}

// assignText sets a variable from text: as it is for strings and numbers, as
// an expression for everything else.
func (p *parser) assignText(v *variable, text, source string) {
	from := hcl.Range{Filename: source + " " + v.name, Start: hcl.InitialPos, End: hcl.InitialPos}
	switch v.declared {
	case cty.String, cty.Number, cty.NilType:
		p.assign(v, cty.StringVal(text), from)
		return
	}
	if diags := checkNesting([]byte(text), from.Filename); diags.HasErrors() {
		p.diags = append(p.diags, diags...)
		return
	}
	expr, diags := hclsyntax.ParseExpression([]byte(text), from.Filename, hcl.InitialPos)
	p.diags = append(p.diags, diags...)
	if diags.HasErrors() {
		return
	}
	if val, ok := p.constant(expr); ok {
		p.assign(v, val, expr.Range())
	}
}

// assignFile sets variables from a file of `name = value` lines.
func (p *parser) assignFile(f VarFile) {
	file, diags := readHCL(f.Src, f.Name)
	p.diags = append(p.diags, diags...)
	if diags.HasErrors() {
		return
	}
	if file == nil {
		p.fault(hcl.Range{Filename: f.Name}, "Unsupported variable file", "The file is JSON; write `name = value` lines.")
		return
	}
	body := file.Body.(*hclsyntax.Body)
	for _, b := range body.Blocks {
		p.fault(b.TypeRange, "Unsupported block type", "A variable file holds `name = value` lines; variables are declared in the job file.")
	}
	for _, attr := range sortedAttrs(body) {
		v := p.vars[attr.Name]
		if v == nil {
			if !p.opts.IgnoreUndeclared {
				p.fault(attr.NameRange, "Undeclared variable", "The job file declares no variable %q%s.", attr.Name, p.declared())
			}
			continue
		}
		if val, ok := p.constant(attr.Expr); ok {
			p.assign(v, val, attr.Expr.Range())
		}
	}
}

func (p *parser) validate(v *variable) {
	for _, rule := range v.validations {
		ctx := &hcl.EvalContext{
			Functions: functions("", false),
			Variables: map[string]cty.Value{"var": cty.ObjectVal(map[string]cty.Value{v.name: v.value})},
		}
		val, diags := rule.condition.Value(ctx)
		p.diags = append(p.diags, diags...)
		if diags.HasErrors() {
			continue
		}
		ok, err := convert.Convert(val, cty.Bool)
		if err != nil || ok.IsNull() || !ok.IsKnown() {
			p.fault(rule.condition.Range(), "Invalid validation", "The condition must be true or false.")
		} else if ok.False() {
			p.fault(v.from, "Invalid value for variable", "Variable %q: %s (rule at %s).", v.name, rule.message, rule.at)
		}
	}
}

func (p *parser) variableNames() []string {
	names := make([]string, 0, len(p.vars))
	for name := range p.vars {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// declared is the end of a sentence that says which variables there are.
func (p *parser) declared() string {
	names := p.variableNames()
	if len(names) == 0 {
		return ", and no other"
	}
	return "; it declares " + strings.Join(names, ", ")
}

func (p *parser) variableValues() cty.Value {
	vals := map[string]cty.Value{}
	for name, v := range p.vars {
		vals[name] = v.value
	}
	return cty.ObjectVal(vals)
}

// evaluateLocals evaluates the locals blocks in an order in which each local's
// own references are known.
func (p *parser) evaluateLocals(blocks []*hclsyntax.Block) {
	attrs := map[string]*hclsyntax.Attribute{}
	var names []string
	for _, b := range blocks {
		p.checkLabels(b, 0)
		p.noBlocks(b)
		for _, attr := range sortedAttrs(b.Body) {
			if old := attrs[attr.Name]; old != nil {
				p.fault(attr.NameRange, "Duplicate local", "local.%s is defined at %s already.", attr.Name, old.NameRange)
				continue
			}
			attrs[attr.Name] = attr
			names = append(names, attr.Name)
		}
	}
	vals := map[string]cty.Value{}
	const visiting, done = 1, 2
	state := map[string]int{}
	var visit func(name string)
	visit = func(name string) {
		attr := attrs[name]
		state[name] = visiting
		for _, ref := range attr.Expr.Variables() {
			if ref.RootName() != "local" || len(ref) < 2 {
				continue
			}
			step, ok := ref[1].(hcl.TraverseAttr)
			if !ok || attrs[step.Name] == nil {
				continue
			}
			if state[step.Name] == visiting {
				p.fault(ref.SourceRange(), "Circular locals", "local.%s and local.%s need each other.", name, step.Name)
				continue
			}
			if state[step.Name] == 0 {
				visit(step.Name)
			}
		}
		state[name] = done
		if p.diags.HasErrors() {
			return
		}
		p.ctx.Variables["local"] = cty.ObjectVal(vals)
		val, diags := p.keepRuntimeRefs(attr.Expr, nil).Value(p.ctx)
		p.diags = append(p.diags, diags...)
		if !diags.HasErrors() {
			vals[name] = val
		}
	}
	for _, name := range names {
		if state[name] == 0 {
			visit(name)
		}
	}
	p.ctx.Variables["local"] = cty.ObjectVal(vals)
}

// noBlocks reports blocks in a body that holds attributes only.
func (p *parser) noBlocks(b *hclsyntax.Block) {
	for _, sub := range b.Body.Blocks {
		p.fault(sub.TypeRange, "Unsupported block type", "A %s block holds `name = value` lines; write `%s = …`.", b.Type, sub.Type)
	}
}
