package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/autoscaler/target"
	"github.com/caravan-sched/caravan/autoscaler/terraform"
)

// terraformProcess is Terraform, with what outlives it: state, locks and our records.
type terraformProcess struct {
	state   terraform.State
	journal *terraform.Journal
	notes   map[string][]byte
	doubts  map[string]terraform.Doubt
	locked  bool
	// runs says that an apply runs, of which todo is left; first is that it has done
	// something. failed: it was killed.
	runs, failed bool
	making       bool
	todo         []func()
	after        terraform.State
	// shot says that the next run is killed.
	shot bool
	died chan struct{}
}

var errShot = errors.New("signal: killed")

// spared is what a run of Terraform other than an apply ends with.
func (w *world) spared() error {
	if !w.tf.shot {
		return nil
	}
	w.tf.shot = false
	w.say("terraform: killed")
	return errShot
}

// step lets an apply that runs do one thing.
func (p *terraformProcess) step(w *world) {
	if !p.runs {
		return
	}
	if len(p.todo) > 0 {
		p.todo[0]()
		if p.runs {
			p.todo = p.todo[1:]
		}
		return
	}
	// All is done, and the state not written yet.
	w.trigger.reach(w, map[bool]step{true: stepMade, false: stepDestroyed}[p.making])
	if p.runs {
		p.runs, p.state = false, p.after
	}
}

// kill ends what Terraform does; what it did is in no state.
func (p *terraformProcess) kill(w *world) {
	if !p.runs {
		p.shot = true
		return
	}
	w.say("terraform: killed")
	p.runs, p.failed, p.todo = false, true, nil
}

// killDirectory is the working directory, as a target's process sees it; it does what
// terraform.Directory does, whose own tests have Terraform killed.
type killDirectory struct {
	w    *world
	turn int
}

// Config implements target.Directory.
func (killDirectory) Config() terraform.Config {
	return terraform.Config{PlanLimit: 5 * time.Minute, ApplyLimit: time.Hour}
}

// Nodes implements target.Directory.
func (d killDirectory) Nodes(context.Context) (terraform.State, error) {
	d.w.lives(d.turn)
	if err := d.w.spared(); err != nil {
		return nil, &terraform.Error{Reason: terraform.ReasonError, Kind: terraform.ErrState, Message: err.Error()}
	}
	return maps.Clone(d.w.tf.state), nil
}

// Interrupted implements target.Directory, and target.Held by its record.
func (d killDirectory) Interrupted() (*terraform.Journal, error) {
	d.w.lives(d.turn)
	if d.w.tf.runs || d.w.tf.locked {
		return nil, nil
	}
	return d.w.tf.journal, nil
}

// Hold implements target.Directory.
func (d killDirectory) Hold(context.Context) (target.Held, error) {
	d.w.lives(d.turn)
	if d.w.tf.runs || d.w.tf.locked {
		return nil, &terraform.Error{Reason: terraform.ReasonError, Kind: terraform.ErrBusy, Message: "an apply still runs"}
	}
	d.w.tf.locked = true
	if j := d.w.tf.journal; j != nil && j.Phase == "apply" {
		d.w.tf.doubt(d.w, j.To)
	}
	return &killHeld{killDirectory: d, interrupted: d.w.tf.journal}, nil
}

// doubt notes nodes that a run was to make which was killed.
func (p *terraformProcess) doubt(w *world, to map[string]terraform.Value) {
	for name, v := range to {
		if _, known := p.state[name]; known {
			continue
		}
		if p.doubts == nil {
			p.doubts = map[string]terraform.Doubt{}
		}
		if _, already := p.doubts[name]; !already {
			p.doubts[name] = terraform.Doubt{Value: v, Since: w.now}
		}
	}
}

// Doubts implements target.Directory.
func (d killDirectory) Doubts() (map[string]terraform.Doubt, error) {
	d.w.lives(d.turn)
	return maps.Clone(d.w.tf.doubts), nil
}

// Look implements target.Held, as a module does that finds machines by their names.
func (h *killHeld) Look(_ context.Context, names []string) (terraform.Change, error) {
	w := h.w
	w.lives(h.turn)
	err := w.spared()
	if err != nil {
		err = &terraform.Error{Reason: terraform.ReasonError, Kind: terraform.ErrPlan, Message: err.Error()}
	}
	var c terraform.Change
	for _, name := range names {
		d, doubted := w.tf.doubts[name]
		m := w.named(name)
		if !doubted {
			continue
		}
		if d.Looked = w.now; err == nil {
			d.Looks++
		}
		w.tf.doubts[name] = d
		if _, known := w.tf.state[name]; err == nil && !known && m != nil && m.purchase == d.Purchase {
			w.tf.state[name] = terraform.Node{Name: name, Value: d.Value}
			c.Made = append(c.Made, name)
			w.say("terraform: finds %s (%s)", name, m.id)
		}
	}
	if err == nil {
		w.tf.journal, h.interrupted = nil, nil
	}
	c.After = maps.Clone(w.tf.state)
	return c, err
}

// Resolve implements target.Held.
func (h *killHeld) Resolve(names ...string) error {
	h.w.lives(h.turn)
	for _, name := range names {
		delete(h.w.tf.doubts, name)
	}
	return nil
}

// ReadNote implements target.Directory.
func (d killDirectory) ReadNote(name string, to any) (bool, error) {
	d.w.lives(d.turn)
	raw, there := d.w.tf.notes[name]
	if !there {
		return false, nil
	}
	return true, json.Unmarshal(raw, to)
}

// WriteNote implements target.Directory.
func (d killDirectory) WriteNote(name string, from any) error {
	d.w.lives(d.turn)
	raw, err := json.Marshal(from)
	d.w.tf.notes[name] = raw
	return err
}

// killHeld is the directory while it is held.
type killHeld struct {
	killDirectory
	interrupted *terraform.Journal
}

// Interrupted implements target.Held.
func (h *killHeld) Interrupted() *terraform.Journal { return h.interrupted }

// Release implements target.Held.
func (h *killHeld) Release() error { h.w.lives(h.turn); h.w.tf.locked = false; return nil }

// Apply implements target.Held: Terraform plans, then does one thing after the other,
// and writes its state when all is done. It goes on when who has begun it is killed.
func (h *killHeld) Apply(_ context.Context, want map[string]terraform.Value) (terraform.Change, error) {
	w := h.w
	w.lives(h.turn)
	before := maps.Clone(w.tf.state)
	w.tf.journal = &terraform.Journal{Phase: "plan", Started: w.now, To: want}
	w.trigger.reach(w, stepPlanned)
	w.lives(h.turn)
	if err := w.spared(); err != nil {
		if h.interrupted == nil {
			w.tf.journal = nil
		}
		return terraform.Change{After: before}, &terraform.Error{Reason: terraform.ReasonError, Kind: terraform.ErrPlan, Message: err.Error()}
	}
	w.tf.journal.Phase = "apply"
	w.tf.begin(w, want)
	for w.tf.runs {
		w.advance()
		w.lives(h.turn)
	}
	failed := w.tf.failed
	if failed {
		w.tf.doubt(w, want)
	}
	w.tf.failed, w.tf.journal, h.interrupted = false, nil, nil
	c := terraform.Change{After: maps.Clone(w.tf.state)}
	for _, name := range w.tf.state.Names() {
		if _, was := before[name]; !was {
			c.Made = append(c.Made, name)
		}
	}
	for _, name := range before.Names() {
		if _, is := w.tf.state[name]; !is {
			c.Gone = append(c.Gone, name)
		}
	}
	if failed {
		return c, &terraform.Error{Reason: terraform.ReasonError, Kind: terraform.ErrApply, Message: errShot.Error()}
	}
	return c, nil
}

// begin starts an apply by what there is in the cloud.
func (p *terraformProcess) begin(w *world, want map[string]terraform.Value) {
	p.runs, p.failed, p.making, p.todo, p.after = true, false, false, nil, terraform.State{}
	for _, name := range p.state.Names() {
		if _, stays := want[name]; stays {
			continue
		}
		p.todo = append(p.todo, func() {
			if m := w.named(name); m != nil {
				w.destroy(m)
			}
			w.trigger.reach(w, stepDestroying)
		})
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		v := want[name]
		if known, there := p.state[name]; there {
			v = known.Value
		}
		p.after[name] = terraform.Node{Name: name, Value: v}
		if _, there := p.state[name]; there && w.named(name) != nil {
			continue
		}
		p.making = true
		p.todo = append(p.todo, func() {
			w.create(name, v.Purchase, v.Market)
			w.trigger.reach(w, stepApplying)
		})
	}
	if len(p.todo) == 0 {
		p.runs = false
		p.state = p.after
	}
}
