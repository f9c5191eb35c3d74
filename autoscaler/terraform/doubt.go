package terraform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	tfjson "github.com/hashicorp/terraform-json"
)

// doubtSuffix makes the name of the variable, beside that of the nodes, that a
// module declares which can look for nodes in doubt.
const doubtSuffix = "_in_doubt"

// missingObject is what Terraform says of an import of something that is not there.
const missingObject = "non-existent remote object"

// Doubt is a node that an apply was to make which was cut short: it may exist, and
// the state does not know it.
type Doubt struct {
	Value
	// Since is when that apply began.
	Since time.Time `json:"since"`
	// Looks is how often it was looked for in vain, Looked when that was tried last.
	Looks  int       `json:"looks"`
	Looked time.Time `json:"looked,omitzero"`
}

// DoubtVariable is the name of the variable by which the directory's module is asked
// to look for nodes in doubt.
func (d *Directory) DoubtVariable() string { return d.cfg.Variable + doubtSuffix }

func (d *Directory) doubtName() string     { return d.cfg.Variable + ".doubt.json" }
func (d *Directory) doubtVarsName() string { return d.cfg.Variable + ".doubt.vars.json" }

// Doubts are the nodes in doubt, by name.
func (d *Directory) Doubts() (map[string]Doubt, error) {
	out := map[string]Doubt{}
	if _, err := d.store.read(d.doubtName(), &out); err != nil {
		return nil, err
	}
	return out, nil
}

// doubt notes nodes of which an apply that was cut short may have made something.
func (d *Directory) doubt(j *Journal, known State) error {
	all, err := d.Doubts()
	if err != nil {
		d.log.Warn("which nodes were in doubt cannot be read", "error", err)
		all = map[string]Doubt{}
	}
	before := len(all)
	for name, v := range j.To {
		if _, there := known[name]; there || slices.Contains(j.From, name) {
			continue
		}
		if _, already := all[name]; !already {
			all[name] = Doubt{Value: v, Since: j.Started}
		}
	}
	if len(all) == before {
		return nil
	}
	return d.store.write(d.doubtName(), all)
}

// Resolve forgets nodes in doubt: they are in the state, or were never made.
func (h *Held) Resolve(names ...string) error {
	all, err := h.d.Doubts()
	if err != nil {
		return err
	}
	for _, name := range names {
		delete(all, name)
	}
	if len(all) == 0 {
		return h.d.store.remove(h.d.doubtName())
	}
	return h.d.store.write(h.d.doubtName(), all)
}

// ErrBlind says that a directory's module cannot look for nodes in doubt.
var ErrBlind = errors.New("the module cannot look for nodes in doubt")

// Look has the module look for nodes in doubt, and takes those into the state that
// are there: by import, or by making what is idempotent. Nothing else is touched. What
// it did is in the change, Made are those that were found. An error that is ErrBlind
// says that the directory declares no variable for it.
func (h *Held) Look(ctx context.Context, names []string) (Change, error) {
	all, err := h.d.Doubts()
	if err != nil {
		return Change{}, err
	}
	ask := map[string]Value{}
	for _, name := range names {
		if d, ok := all[name]; ok {
			ask[name] = d.Value
		}
	}
	c, err := h.lookFor(ctx, ask)
	if missing(err) && len(ask) > 1 {
		// One that is not there keeps the others from being found: each by itself.
		c, err = h.lookForEach(ctx, ask)
	}
	if missing(err) {
		err = nil
	}
	for name := range ask {
		d := all[name]
		d.Looked = h.d.now()
		if err == nil {
			d.Looks++
		}
		all[name] = d
	}
	return c, errors.Join(err, h.d.store.write(h.d.doubtName(), all))
}

func missing(err error) bool {
	return errors.Is(err, ErrPlan) && strings.Contains(err.Error(), missingObject)
}

func (h *Held) lookForEach(ctx context.Context, ask map[string]Value) (Change, error) {
	var sum Change
	for _, name := range slices.Sorted(maps.Keys(ask)) {
		c, err := h.lookFor(ctx, map[string]Value{name: ask[name]})
		sum.Made, sum.After = append(sum.Made, c.Made...), c.After
		if err != nil && !missing(err) {
			return sum, err
		}
	}
	return sum, nil
}

func (h *Held) lookFor(ctx context.Context, ask map[string]Value) (Change, error) {
	var c Change
	err := h.with(ctx, func(r *run) error {
		var err error
		c, err = h.look(ctx, r, ask)
		return err
	})
	return c, err
}

// look is one plan, and its apply, with nothing wanted beside what is there.
func (h *Held) look(ctx context.Context, r *run, ask map[string]Value) (Change, error) {
	before, err := r.nodes(ctx)
	if err != nil {
		return Change{}, err
	}
	w := wanted{variable: h.d.cfg.Variable, resources: h.d.cfg.Resources, keep: map[string]bool{}, adopt: map[string]bool{}}
	values := map[string]Value{}
	for name := range before {
		w.keep[name], values[name] = true, before[name].Value
	}
	told := maps.Clone(values)
	for name, v := range ask {
		if !w.keep[name] {
			w.adopt[name], told[name] = true, v
		}
	}
	if len(w.adopt) == 0 {
		return Change{After: before}, nil
	}
	w.purchases(before, told)
	j := h.journal(r, before, told)
	vars := map[string]map[string]Value{h.d.DoubtVariable(): {}}
	for name := range w.adopt {
		vars[h.d.DoubtVariable()][name] = told[name]
	}
	if err := errors.Join(h.d.writeValues(h.d.nextName(), values), h.d.store.write(h.d.doubtVarsName(), vars), h.d.store.write(h.d.journalName(), j)); err != nil {
		return Change{}, err
	}
	defer func() { _ = h.d.store.remove(h.d.doubtVarsName()) }() // it is written anew before it is read
	plan, err := r.plan(ctx, h.d.store.path(h.d.doubtVarsName()))
	if err == nil {
		if _, can := plan.Variables[h.d.DoubtVariable()]; !can {
			err = fmt.Errorf("%w: %s declares no variable %q", ErrBlind, h.d.cfg.Dir, h.d.DoubtVariable())
		} else {
			err = checkPlan(plan, w)
		}
	}
	if err != nil {
		return Change{After: before}, errors.Join(err, h.planned(err))
	}
	if !changes(plan) {
		return Change{After: before}, h.finish(before, values)
	}
	for _, name := range w.found(plan) {
		values[name] = told[name]
	}
	return h.carryOut(ctx, r, j, before, values)
}

// found are the nodes in doubt that a plan takes into the state.
func (w wanted) found(p *tfjson.Plan) []string {
	var out []string
	for _, rc := range p.ResourceChanges {
		if name, ok := parseAddress(rc.Address).node(w.resources); ok && w.adopt[name] && rc.Change != nil && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// cut says whether Terraform, or a provider, was cut short: what it was doing may be
// done, and the state not know it. Terraform that comes to its end says with 1 what
// has failed.
func cut(err error) bool {
	if err == nil {
		return false
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || errors.Is(err, ErrHung) {
		return true
	}
	exit, ok := errors.AsType[*exec.ExitError](e.Cause)
	if !ok {
		return true
	}
	for _, text := range []string{"Plugin did not respond", "Request cancelled"} {
		if strings.Contains(e.Message, text) {
			return true
		}
	}
	return exit.ExitCode() != 1
}
