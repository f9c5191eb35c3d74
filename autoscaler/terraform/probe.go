package terraform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// ProbeName is the node, and the purchase, that a probe plans and nobody makes.
const ProbeName = "caravan-check"

// Probe is what was found out of a working directory before anything is bought.
type Probe struct {
	Dir, Binary, Version, Workspace string
	// Nodes are those of the state.
	Nodes []string
	// Faults are what keeps nodes from being made, Warnings what may cost later.
	Faults   []error
	Warnings []string
}

// Examine plans one node more than the state has, as if it were bought in a market,
// and says everything that is wrong. It writes nothing into the directory, selects no
// workspace, and applies nothing; while it plans, Terraform holds the state's lock.
func Examine(ctx context.Context, cfg Config, market string, log hclog.Logger) (p Probe) {
	p.Dir, p.Workspace = cfg.Dir, cmp.Or(cfg.Workspace, DefaultWorkspace)
	d, err := Open(cfg, log)
	if err != nil {
		p.Faults = append(p.Faults, err)
		return p
	}
	p.Dir, p.Binary, p.Workspace = d.cfg.Dir, d.cfg.Binary, d.cfg.Workspace
	dir, err := os.MkdirTemp("", "caravan-check-")
	if err != nil {
		p.Faults = append(p.Faults, fmt.Errorf("make a folder for the plan: %w", err))
		return p
	}
	defer func() { _ = os.RemoveAll(dir) }() // nothing in it is needed
	fault := func(err error) {
		if err != nil {
			p.Faults = append(p.Faults, err)
		}
	}
	fault(d.applied())
	if j, err := d.journal(); err != nil || j != nil {
		p.Warnings = append(p.Warnings, "an apply was interrupted here; the plugin finishes it when it starts")
	}
	r, err := d.aside(dir)
	if err != nil {
		fault(err)
		return p
	}
	version, _, err := r.tf.Version(ctx, true)
	if err != nil {
		fault(fmt.Errorf("%s does not say its version, as terraform and tofu do: %s", d.cfg.Binary, strings.TrimSpace(d.redact.clean(err.Error()))))
		return p
	}
	p.Version = version.String()
	if err := r.workspaceThere(ctx); err != nil {
		// To look into a workspace that is not there would make it.
		fault(err)
		return p
	}
	state, err := r.nodes(ctx)
	fault(err)
	p.Nodes = state.Names()
	if err := r.probe(ctx, d, state, market, &p); !repeats(err, p.Faults) {
		fault(err)
	}
	return p
}

// repeats says that a fault has been told: what keeps a state from being read keeps a
// plan from being made.
func repeats(err error, told []error) bool {
	for _, kind := range []error{ErrUninitialised, ErrState} {
		for _, t := range told {
			if errors.Is(err, kind) && errors.Is(t, kind) {
				return true
			}
		}
	}
	return false
}

// applied says who applies the directory now. It takes no lock that is free.
func (d *Directory) applied() error {
	f, err := os.OpenFile(filepath.Join(d.cfg.Dir, folder, "lock"), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the directory's lock cannot be read: %w; run this as the user that the autoscaler runs as", err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		who := "another process"
		if o := readOwner(f); o != nil {
			who = o.String()
		}
		return &Error{Reason: ReasonError, Kind: ErrBusy, Message: fmt.Sprintf("%s applies %s: check again when it has ended", who, d.cfg.Dir)}
	}
	return nil
}

// aside is a run whose files are in another folder than the directory's own. The
// workspace is told by the environment, so that none has to be selected.
func (d *Directory) aside(dir string) (*run, error) {
	other := *d
	other.store = store{dir}
	r, err := other.newRun()
	if err != nil {
		return nil, err
	}
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	script := "#!/bin/sh\n"
	if d.cfg.Workspace != DefaultWorkspace || d.selected() != DefaultWorkspace {
		// To list the workspaces in one that is not there would make it, too.
		script += "[ \"$1\" = workspace ] || { TF_WORKSPACE=" + quote(d.cfg.Workspace) + "; export TF_WORKSPACE; }\n"
	}
	if _, err := other.store.install("run", script+"exec "+quote(d.cfg.Binary)+" \"$@\"\n"); err != nil {
		return nil, err
	}
	r.lockWait = 0
	return r, nil
}

// workspaceThere says that the workspace is not there; one that cannot be looked for is
// found out by what follows.
func (r *run) workspaceThere(ctx context.Context) error {
	if r.d.cfg.Workspace == DefaultWorkspace {
		return nil
	}
	var all []string
	err := r.step(ctx, "workspace", r.d.cfg.PlanLimit, func(ctx context.Context, _ io.Writer) error {
		var err error
		all, _, err = r.tf.WorkspaceList(ctx)
		return err
	})
	if err != nil || slices.Contains(all, r.d.cfg.Workspace) {
		return nil
	}
	return &Error{Reason: ReasonError, Kind: ErrConfig, Message: fmt.Sprintf(
		"there is no workspace %q, only %s: run terraform workspace new %s in %s", r.d.cfg.Workspace, strings.Join(all, ", "), r.d.cfg.Workspace, r.d.cfg.Dir)}
}

// probe plans one node more. What is there stays.
func (r *run) probe(ctx context.Context, d *Directory, state State, market string, p *Probe) error {
	w := wanted{variable: d.cfg.Variable, resources: d.cfg.Resources, keep: map[string]bool{}, add: map[string]bool{ProbeName: true}, begun: map[string]bool{ProbeName: true}}
	told, values := d.values(), map[string]Value{ProbeName: {Purchase: ProbeName, Market: market}}
	for name := range state {
		w.keep[name], values[name] = true, told[name]
	}
	doubts := map[string]map[string]Value{d.DoubtVariable(): {}}
	if err := errors.Join(r.d.writeValues(r.d.nextName(), values), r.d.store.write(r.d.doubtVarsName(), doubts)); err != nil {
		return err
	}
	files := d.varFiles()
	// Those of other pools in the directory count too.
	plan, err := r.plan(ctx, append(files[len(d.cfg.VarFiles):len(files)-1], r.d.store.path(r.d.doubtVarsName()))...)
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == ErrVariable && strings.Contains(e.Message, "var."+d.cfg.Variable+" ") {
		e.Message = strings.TrimSuffix(e.Message, ". Set it in a var file") + fmt.Sprintf(". Declare variable %q as map(object({ purchase = optional(string, \"\"), market = optional(string, \"on_demand\") }))", d.cfg.Variable)
	}
	if err != nil {
		return err
	}
	if _, can := plan.Variables[d.DoubtVariable()]; !can {
		p.Warnings = append(p.Warnings, fmt.Sprintf("the directory declares no variable %q: nodes that a killed apply has made cannot be found by it", d.DoubtVariable()))
	}
	return checkPlan(plan, w)
}
