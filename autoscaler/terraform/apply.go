package terraform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/user"
	"slices"
	"time"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/hashicorp/terraform-exec/tfexec"
)

// Held is a directory that nobody else can apply until Release.
type Held struct {
	d    *Directory
	lock *lockFile
	// interrupted is the run that was killed and is not finished yet.
	interrupted *Journal
	// since is from when on a lock of the state may be one that a killed run of ours
	// has left.
	since time.Time
}

// Hold takes the directory. An error that is ErrBusy tells who has it.
func (d *Directory) Hold(_ context.Context) (*Held, error) {
	lock, stale, err := takeLock(d.cfg.Dir, d.now())
	if err != nil {
		return nil, err
	}
	if stale != nil {
		d.log.Warn("the directory's lock was left by a process that has ended; it is taken over", "owner", stale.String())
	}
	h := &Held{d: d, lock: lock}
	if h.interrupted, err = d.journal(); h.interrupted != nil && d.underWay(h.interrupted) {
		err := &Error{Reason: ReasonError, Kind: ErrBusy, Message: fmt.Sprintf(
			"an apply still runs in %s that %s has begun, which has ended: it may come to its end", d.cfg.Dir, h.interrupted.Owner)}
		return nil, errors.Join(err, h.Release())
	}
	if err != nil {
		// Whatever it was about, the state tells what is there.
		d.log.Warn("the record of an interrupted run cannot be read; the state decides", "error", err)
		h.interrupted = &Journal{Phase: phaseApply}
	}
	if j := h.interrupted; j != nil {
		h.since = j.Started
		n := killMarked(j.Mark)
		if j.Phase == phaseApply {
			if err := d.doubt(j, nil); err != nil {
				return nil, errors.Join(err, h.Release())
			}
		}
		d.log.Warn("a run was interrupted; it is finished now", "phase", j.Phase, "started", j.Started, "owner", j.Owner.String(),
			"from", j.From, "to", slices.Sorted(maps.Keys(j.To)), "killed", n)
	}
	return h, nil
}

// Interrupted is the run that was killed and not finished, nil if there is none.
func (h *Held) Interrupted() *Journal { return h.interrupted }

// Release lets others apply the directory.
func (h *Held) Release() error { return h.lock.release() }

// Nodes reads the state.
func (h *Held) Nodes(ctx context.Context) (State, error) {
	var state State
	err := h.with(ctx, func(r *run) error {
		var err error
		state, err = r.nodes(ctx)
		return err
	})
	return state, err
}

// with runs f in a directory that is prepared, and once more after it was
// initialised or unlocked.
func (h *Held) with(ctx context.Context, f func(*run) error) error {
	r, err := h.d.newRun()
	if err != nil {
		return err
	}
	if !h.since.IsZero() {
		r.lockWait = 0 // a lock that we have left does not go by itself
	}
	try := func() error {
		if err := r.prepare(ctx); err != nil {
			return err
		}
		return f(r)
	}
	tried := h.d.now()
	err = try()
	if errors.Is(err, ErrUninitialised) && h.d.cfg.Init {
		if err := r.init(ctx); err != nil {
			return err
		}
		err = try()
	}
	if locked, ok := errors.AsType[lockedError](err); ok && h.ours(locked.lock, tried) {
		h.d.log.Warn("the state's lock was left by a run of ours that was killed; it is taken away", "id", locked.lock.ID, "created", locked.lock.Created)
		unlock := r.step(ctx, "force-unlock", h.d.cfg.PlanLimit, func(ctx context.Context, _ io.Writer) error {
			return r.tf.ForceUnlock(ctx, locked.lock.ID)
		})
		if unlock != nil {
			return errors.Join(err, unlock)
		}
		err = try()
	}
	return err
}

// ours says whether a lock of the state was left by a run of this directory that
// was killed, before we tried: none other can be under way on this machine, since we
// hold it.
func (h *Held) ours(l StateLock, tried time.Time) bool {
	if h.since.IsZero() || l.ID == "" || l.Created.Before(h.since.Add(-time.Second)) || !l.Created.Before(tried) {
		return false
	}
	host, err := os.Hostname()
	if err != nil {
		return false
	}
	u, err := user.Current()
	return err == nil && l.Who == u.Username+"@"+host
}

// Change is what an Apply did.
type Change struct {
	// Made and Gone are the nodes that are there now and were not, and the other way
	// round.
	Made, Gone []string
	// After is the state that was read when all was done.
	After State
}

// Apply makes the nodes those of want. Values of nodes that are there stay what
// they were. Where it fails, the change tells what was done of it nonetheless, if
// the state could be read.
func (h *Held) Apply(ctx context.Context, want map[string]Value) (Change, error) {
	for name := range want {
		if !NodeName.MatchString(name) {
			return Change{}, &Error{Reason: ReasonError, Kind: ErrConfig, Message: fmt.Sprintf(
				"node name %q: want letters, digits and . _ -, a letter or digit at both ends, at most 63", name)}
		}
	}
	var c Change
	err := h.with(ctx, func(r *run) error {
		var err error
		c, err = h.apply(ctx, r, want)
		return err
	})
	return c, err
}

func (h *Held) apply(ctx context.Context, r *run, want map[string]Value) (Change, error) {
	before, err := r.nodes(ctx)
	if err != nil {
		return Change{}, err
	}
	w := wanted{variable: h.d.cfg.Variable, resources: h.d.cfg.Resources, keep: map[string]bool{}, add: map[string]bool{}, remove: map[string]bool{}}
	told, values := h.d.values(), map[string]Value{}
	for name, v := range want {
		values[name] = v
		if _, there := before[name]; there {
			w.keep[name] = true
			if old, ok := told[name]; ok {
				values[name] = old
			}
		} else {
			w.add[name] = true
		}
	}
	for name := range before {
		if _, stays := want[name]; !stays {
			w.remove[name] = true
		}
	}
	w.purchases(before, values)
	j := h.journal(r, before, values)
	if err := errors.Join(h.d.writeValues(h.d.nextName(), values), h.d.store.write(h.d.journalName(), j)); err != nil {
		return Change{}, err
	}
	plan, err := r.plan(ctx)
	if err == nil {
		err = checkPlan(plan, w)
	}
	if err != nil {
		if errors.Is(err, ErrHung) {
			h.since = j.Started
		}
		return Change{After: before}, errors.Join(err, h.planned(err))
	}
	if !changes(plan) {
		if !w.vanished(plan) {
			return Change{After: before}, h.finish(before, values)
		}
		return h.outcome(ctx, r, before, values, r.refresh(ctx))
	}
	return h.carryOut(ctx, r, j, before, values)
}

// journal is the record of a run that begins.
func (h *Held) journal(r *run, before State, to map[string]Value) *Journal {
	host, _ := os.Hostname()
	j := &Journal{Mark: r.mark, Started: h.d.now(), Owner: Owner{PID: os.Getpid(), Host: host, Since: h.d.now()},
		Variable: h.d.cfg.Variable, Phase: phasePlan, From: before.Names(), To: to}
	if !h.since.IsZero() {
		j.Started = h.since // a lock of the earlier run may still be there
	}
	return j
}

// carryOut applies the plan that was made and checked, and reads what came of it.
func (h *Held) carryOut(ctx context.Context, r *run, j *Journal, before State, values map[string]Value) (Change, error) {
	j.Phase = phaseApply
	if err := h.d.store.write(h.d.journalName(), j); err != nil {
		return Change{}, err
	}
	err := r.apply(ctx)
	if errors.Is(err, ErrHung) {
		h.since = j.Started
	}
	if cut(err) {
		// What it has begun must not go on while the state is read.
		killMarked(r.mark)
	}
	c, failed := h.outcome(ctx, r, before, values, err)
	if cut(err) && c.After != nil {
		failed = errors.Join(failed, h.d.doubt(j, c.After))
	}
	return c, failed
}

// purchases fills in which purchases begin and which end.
func (w *wanted) purchases(before State, after map[string]Value) {
	w.begun, w.ended = map[string]bool{}, map[string]bool{}
	for name := range w.remove {
		w.ended[before[name].Value.Purchase] = true
	}
	for name, v := range after {
		delete(w.ended, v.Purchase)
		if w.add[name] || w.adopt[name] {
			w.begun[v.Purchase] = true
		}
	}
	delete(w.begun, "")
	delete(w.ended, "")
}

// vanished says whether a node that is to go has gone already, so that the plan has
// nothing to do for it, and only the state still knows it.
func (w wanted) vanished(p *tfjson.Plan) bool {
	left := maps.Clone(w.remove)
	for _, rc := range p.ResourceChanges {
		if rc.Change != nil && rc.Change.Actions.Delete() {
			if name, ok := parseAddress(rc.Address).node(w.resources); ok {
				delete(left, name)
			}
		}
	}
	return len(left) > 0
}

// planned cleans up after a plan that came to nothing. A killed one may have left
// the state's lock: its record stays, so that the next run takes the lock away.
func (h *Held) planned(err error) error {
	errs := []error{h.d.store.remove(h.d.planName()), h.d.store.remove(h.d.nextName())}
	if !errors.Is(err, ErrHung) && !errors.Is(err, ErrLocked) && h.interrupted == nil {
		errs = append(errs, h.d.store.remove(h.d.journalName()))
	}
	return errors.Join(errs...)
}

// outcome reads what an apply has done, also when it was stopped.
func (h *Held) outcome(ctx context.Context, r *run, before State, values map[string]Value, failed error) (Change, error) {
	after, err := r.nodes(context.WithoutCancel(ctx))
	if err != nil {
		// The record stays: what was done is found by the next run.
		return Change{}, errors.Join(failed, err)
	}
	c := Change{After: after}
	for name := range after {
		if _, was := before[name]; !was {
			c.Made = append(c.Made, name)
		}
	}
	for name := range before {
		if _, is := after[name]; !is {
			c.Gone = append(c.Gone, name)
		}
	}
	slices.Sort(c.Made)
	slices.Sort(c.Gone)
	if failed != nil {
		known := h.d.values()
		for name := range after {
			if v, ok := known[name]; ok {
				if _, also := values[name]; !also {
					values[name] = v
				}
			}
		}
	}
	if err := h.finish(after, values); err != nil {
		return c, errors.Join(failed, err)
	}
	for name, n := range after {
		n.Value = values[name]
		after[name] = n
	}
	for name := range values {
		if n, there := after[name]; failed == nil && (!there || n.Tainted) {
			failed = &Error{Reason: ReasonError, Kind: ErrApply, Message: fmt.Sprintf("node %q is not in the state after the apply, or not made to its end: was the state edited meanwhile?", name)}
		}
	}
	return c, failed
}

// finish notes what Terraform was told of the nodes that are there, and that
// nothing is half-done any more.
func (h *Held) finish(after State, values map[string]Value) error {
	kept := map[string]Value{}
	for name := range after {
		kept[name] = values[name]
	}
	err := errors.Join(h.d.writeValues(h.d.valuesName(), kept), h.d.store.remove(h.d.planName()), h.d.store.remove(h.d.nextName()),
		h.d.store.remove(h.d.outputName()), h.d.store.remove(h.d.journalName()))
	if err == nil {
		h.interrupted = nil
	}
	return err
}

func changes(p *tfjson.Plan) bool {
	return slices.ContainsFunc(p.ResourceChanges, func(rc *tfjson.ResourceChange) bool {
		return rc.Change != nil && (rc.Change.Importing != nil || !rc.Change.Actions.NoOp() && !rc.Change.Actions.Read())
	})
}

// plan makes the plan and reads it. more are further files with variables' values.
func (r *run) plan(ctx context.Context, more ...string) (*tfjson.Plan, error) {
	file := r.d.store.path(r.d.planName())
	opts := []tfexec.PlanOption{tfexec.Out(file), tfexec.LockTimeout(r.lockWait.String())}
	for _, f := range append(r.d.varFiles(), more...) {
		opts = append(opts, tfexec.VarFile(f))
	}
	err := r.step(ctx, "plan", r.d.cfg.PlanLimit, func(ctx context.Context, w io.Writer) error {
		_, err := r.tf.PlanJSON(ctx, w, opts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(file, 0o600); err != nil { // it may hold secrets
		return nil, fmt.Errorf("protect plan: %w", err)
	}
	var plan *tfjson.Plan
	err = r.step(ctx, "show", r.d.cfg.PlanLimit, func(ctx context.Context, _ io.Writer) error {
		var err error
		plan, err = r.tf.ShowPlanFile(ctx, file)
		return err
	})
	return plan, err
}

// refresh writes into the state what is there.
func (r *run) refresh(ctx context.Context) error {
	return r.step(ctx, "refresh", r.d.cfg.PlanLimit, func(ctx context.Context, _ io.Writer) error {
		opts := []tfexec.RefreshCmdOption{tfexec.LockTimeout(r.lockWait.String())}
		for _, f := range r.d.varFiles() {
			opts = append(opts, tfexec.VarFile(f))
		}
		return r.tf.Refresh(ctx, opts...)
	})
}

// apply applies the plan that was made, and no other.
func (r *run) apply(ctx context.Context) error {
	return r.step(ctx, "apply", r.d.cfg.ApplyLimit, func(ctx context.Context, w io.Writer) error {
		return r.tf.ApplyJSON(ctx, w, tfexec.DirOrPlan(r.d.store.path(r.d.planName())), tfexec.LockTimeout(r.lockWait.String()))
	})
}
