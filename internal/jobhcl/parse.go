// Package jobhcl reads Nomad job files (HCL2) into nomad/api's job, as Nomad's
// own /v1/jobs/parse does: variables, locals, functions and dynamic blocks are
// evaluated, and references that only a client can resolve (${attr.…},
// ${node.…}, ${meta.…}, ${device.…}, ${NOMAD_…}) stay in the job as written.
package jobhcl

import (
	"errors"
	"fmt"
	"path/filepath"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/nomad/api"
	"github.com/zclconf/go-cty/cty"
)

// ErrJSON is returned for a job file in JSON: those are registered as they
// are, so that there is nothing to parse.
var ErrJSON = errors.New("the job file is JSON, not HCL: submit it with `nomad job run -json`")

// Error lists everything that is wrong with a job file, in the file's order.
type Error struct {
	Diagnostics hcl.Diagnostics
}

// Error has one line for each fault: "file:line,columns: what; details".
func (e *Error) Error() string {
	lines := make([]string, len(e.Diagnostics))
	for i, d := range e.Diagnostics {
		lines[i] = d.Error()
	}
	return strings.Join(lines, "\n")
}

// Options are what a job file is parsed with, besides its text.
type Options struct {
	// Vars are values as given by -var; for a variable whose type is neither
	// string nor number, an HCL expression. They win over VarFiles.
	Vars map[string]string
	// VarFiles are HCL files of `name = value` lines; later ones win.
	VarFiles []VarFile
	// Env holds "NOMAD_VAR_name=value" entries, as in os.Environ. VarFiles and
	// Vars win over them, and entries that no variable asks for are ignored.
	Env []string
	// IgnoreUndeclared drops values for variables that the job file does not
	// declare instead of refusing them.
	IgnoreUndeclared bool
	// FileFunctions allows file(), fileset() and their kin, relative to the
	// job file's folder. It must stay off for files that come over a network.
	FileFunctions bool
}

// VarFile is a file with values for variables.
type VarFile struct {
	Name string
	Src  []byte
}

// Parse reads a job file. vars are values for its variables, as by -var. The
// error is an *Error that lists every fault with file and line, or ErrJSON.
func Parse(src []byte, filename string, vars map[string]string) (*api.Job, error) {
	return ParseWith(src, filename, Options{Vars: vars})
}

// ParseWith is Parse with every option.
func ParseWith(src []byte, filename string, opts Options) (job *api.Job, err error) {
	// The expression library panics on a few odd constructions; a job file
	// must never be able to end a long-running process.
	defer func() {
		if r := recover(); r != nil {
			job, err = nil, fmt.Errorf("parse %s: expression cannot be evaluated: %v", filename, r)
		}
	}()
	file, diags := readHCL(src, filename)
	if diags.HasErrors() {
		return nil, newError(diags)
	}
	if file == nil {
		return nil, fmt.Errorf("parse %s: %w", filename, ErrJSON)
	}
	p := &parser{opts: opts, filename: filename, src: src}
	job = p.file(file.Body.(*hclsyntax.Body))
	if p.diags.HasErrors() {
		return nil, newError(p.diags)
	}
	return job, nil
}

// readHCL parses the syntax only. The file is nil without a fault when the
// text is JSON.
func readHCL(src []byte, filename string) (*hcl.File, hcl.Diagnostics) {
	if strings.HasPrefix(strings.TrimLeft(string(src[:min(len(src), 256)]), " \t\r\n"), "{") {
		return nil, nil
	}
	if diags := checkNesting(src, filename); diags.HasErrors() {
		return nil, diags
	}
	return hclsyntax.ParseConfig(src, filename, hcl.InitialPos)
}

// newError keeps the faults, sorted and once each.
func newError(diags hcl.Diagnostics) *Error {
	var kept hcl.Diagnostics
	seen := map[string]bool{}
	for _, d := range diags {
		if d.Severity != hcl.DiagError || seen[d.Error()] {
			continue
		}
		seen[d.Error()] = true
		kept = append(kept, d)
	}
	sort.SliceStable(kept, func(i, j int) bool {
		a, b := kept[i].Subject, kept[j].Subject
		switch {
		case a == nil || b == nil:
			return a != nil && b == nil
		case a.Filename != b.Filename:
			return a.Filename < b.Filename
		default:
			return a.Start.Byte < b.Start.Byte
		}
	})
	return &Error{Diagnostics: kept}
}

// parser holds what one file's evaluation needs.
type parser struct {
	opts     Options
	filename string
	src      []byte
	vars     map[string]*variable
	ctx      *hcl.EvalContext
	diags    hcl.Diagnostics
}

func (p *parser) fault(at hcl.Range, summary, format string, args ...any) {
	p.diags = append(p.diags, &hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  summary,
		Detail:   fmt.Sprintf(format, args...),
		Subject:  at.Ptr(),
	})
}

// file evaluates the blocks of a job file.
func (p *parser) file(body *hclsyntax.Body) *api.Job {
	var job *hclsyntax.Block
	var locals []*hclsyntax.Block
	p.vars = map[string]*variable{}
	for _, attr := range sortedAttrs(body) {
		p.fault(attr.NameRange, "Unsupported argument", "%q is not expected here; a job file holds job, variable, variables and locals blocks.", attr.Name)
	}
	for _, b := range body.Blocks {
		switch b.Type {
		case "job":
			if job != nil {
				p.fault(b.DefRange(), "Duplicate job block", "A file holds one job; another was defined at %s.", job.DefRange())
				continue
			}
			if p.checkLabels(b, 1) {
				job = b
			}
		case "variable":
			p.declareVariable(b)
		case "variables":
			p.declareVariables(b)
		case "locals":
			locals = append(locals, b)
		default:
			p.fault(b.TypeRange, "Unsupported block type", "Blocks of type %q are not expected here; a job file holds job, variable, variables and locals blocks.", b.Type)
		}
	}
	if job == nil && !p.diags.HasErrors() {
		p.fault(body.EndRange, "Missing job block", "A job file needs a `job \"name\" { … }` block.")
	}
	p.assignVariables()
	if p.diags.HasErrors() {
		return nil
	}
	p.ctx = &hcl.EvalContext{
		Functions: functions(filepath.Dir(p.filename), p.opts.FileFunctions),
		Variables: map[string]cty.Value{"var": p.variableValues(), "local": cty.EmptyObjectVal},
	}
	p.evaluateLocals(locals)
	if p.diags.HasErrors() {
		return nil
	}
	p.keepRuntimeRefsInBody(job.Body, nil)
	return p.job(job)
}

// checkLabels reports a block that has not as many labels as it should.
func (p *parser) checkLabels(b *hclsyntax.Block, want int) bool {
	if len(b.Labels) == want {
		return true
	}
	p.fault(b.DefRange(), "Wrong number of labels", "A %s block takes %d label(s), this one has %d.", b.Type, want, len(b.Labels))
	return false
}

// sortedAttrs are a body's attributes in the order of the file.
func sortedAttrs(body *hclsyntax.Body) []*hclsyntax.Attribute {
	attrs := make([]*hclsyntax.Attribute, 0, len(body.Attributes))
	for _, a := range body.Attributes {
		attrs = append(attrs, a)
	}
	sort.Slice(attrs, func(i, j int) bool { return attrs[i].NameRange.Start.Byte < attrs[j].NameRange.Start.Byte })
	return attrs
}
