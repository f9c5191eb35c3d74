package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// notesName is the file with what is remembered of the nodes.
const notesName = "notes"

var (
	// errUnderWay says that the pool's last pass has not ended.
	errUnderWay = errors.New("the pool is being scaled")
	// ErrHold says that everything stays as it is since somebody cannot be asked.
	ErrHold = errors.New("hold")
)

// order is what a pass is asked for; see input.
type order struct {
	count, floor int
	allowed      map[string]bool
	// dry says that nothing is to be touched.
	dry bool
}

// outcome is what a pass did, or would do.
type outcome struct {
	decision
	changed bool
	made    []string
	gone    []string
	// since is from when on nodes exist, or existed, as far as that is known, and
	// after what is there in the end; nil is not known.
	since map[string]time.Time
	after terraform.State
}

// did says it in words.
func (o outcome) did() string {
	var parts []string
	add := func(what string, names []string) {
		if len(names) > 0 {
			parts = append(parts, what+" "+strings.Join(names, ", "))
		}
	}
	add("make", o.add)
	add("drain", o.drain)
	add("use again", o.undrain)
	add("take away", o.remove)
	for _, f := range o.failed {
		parts = append(parts, "roll back "+cmp.Or(f.purchase, strings.Join(f.names, ", "))+": "+f.message)
	}
	if o.coming > 0 {
		parts = append(parts, fmt.Sprintf("%d nodes are coming", o.coming))
	}
	parts = append(parts, o.why...)
	if len(parts) == 0 {
		return "the nodes are those that are wanted"
	}
	return strings.Join(parts, "; ")
}

// leader holds where Nomad has no leader.
func (j *job) leader(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nomadLimit)
	defer cancel()
	if err := j.nomad.Leader(ctx); err != nil {
		return fmt.Errorf("%w: everything stays as it is: %w", ErrHold, err)
	}
	return nil
}

// wants asks the planner.
func (j *job) wants(ctx context.Context) (burstapi.Pool, error) {
	if j.planner == nil {
		return burstapi.Pool{}, nil
	}
	a, err := j.planner.Burst(ctx)
	if err != nil {
		return burstapi.Pool{}, fmt.Errorf("%w: everything stays as it is: %w", ErrHold, err)
	}
	if !a.Leader {
		return burstapi.Pool{}, fmt.Errorf("%w: everything stays as it is: the planner that answers does not lead: %s", ErrHold, cmp.Or(a.Why, "ask another copy"))
	}
	for _, p := range a.Pools {
		if p.Name == j.pool.Name {
			return p, nil
		}
	}
	return burstapi.Pool{}, fmt.Errorf("%w: everything stays as it is: the planner knows no pool %q; give it the same pools file", ErrHold, j.pool.Name)
}

// pass does what is due now.
func (j *job) pass(ctx context.Context, now func() time.Time, o order) (outcome, error) {
	// What a policy asks for waits for the pass before it; nobody waits for another.
	if o.count != noCount {
		j.worker.pass.Lock()
	} else if !j.worker.pass.TryLock() {
		return outcome{}, errUnderWay
	}
	defer j.worker.pass.Unlock()
	if err := j.leader(ctx); err != nil {
		return outcome{}, err
	}
	wants, err := j.wants(ctx)
	if err != nil {
		return outcome{}, err
	}
	in := input{now: now(), count: o.count, floor: o.floor, allowed: o.allowed, planned: j.planner != nil, wants: wants, lost: j.worker.lost, blocked: j.worker.blocked}
	if o.dry {
		see, err := j.look(ctx, j.dir.Nodes)
		in.see(see)
		return outcome{decision: decide(in)}, err
	}
	held, err := j.dir.Hold(ctx)
	if err != nil {
		return outcome{}, err
	}
	if err := j.settleDoubts(ctx, now, held); err != nil {
		return outcome{}, errors.Join(err, held.Release())
	}
	see, err := j.look(ctx, held.Nodes)
	if err != nil {
		return outcome{}, errors.Join(err, held.Release())
	}
	in.see(see)
	in.cutShort = held.Interrupted() != nil
	see.refresh(in.now, j.pool.JoinTimeout)
	out := outcome{decision: decide(in), since: map[string]time.Time{}, after: see.state}
	for name, n := range see.notes {
		if !n.Made.IsZero() {
			out.since[name] = n.Made
		}
	}
	err = j.act(ctx, now, held, see, &out)
	j.worker.mu.Lock()
	j.worker.why = strings.Join(out.why, "; ")
	j.worker.mu.Unlock()
	if err := j.dir.WriteNote(notesName, see.notes); err != nil {
		j.log.Warn("the nodes' times are not noted", "error", err)
	}
	return out, errors.Join(err, held.Release())
}

func (in *input) see(s sight) {
	in.state, in.nodes, in.notes, in.doubts = s.state, s.nodes, s.notes, s.doubts
}

// refresh notes which nodes have joined, begins notes for those that have none, and
// forgets those that are no more.
func (s sight) refresh(now time.Time, timeout time.Duration) {
	for name := range s.state {
		n, known := s.notes[name]
		if !known {
			n = note{Purchase: s.state[name].Value.Purchase, Ordered: now, JoinBy: now.Add(timeout)}
		}
		n.Joined = n.Joined || s.nodes[name].Ready
		s.notes[name] = n
	}
	for name := range s.notes {
		if _, there := s.state[name]; !there {
			delete(s.notes, name)
		}
	}
}

// act carries a decision out.
func (j *job) act(ctx context.Context, now func() time.Time, held Held, see sight, out *outcome) error {
	if u := see.unknown(); len(u) > 0 {
		j.log.Warn("nodes say they belong to the pool and Terraform does not know them; they are left alone", "nodes", u)
	}
	errs := []error{j.drainAll(ctx, see, out)}
	if len(out.add)+len(out.remove) > 0 || held.Interrupted() != nil {
		errs = append(errs, j.apply(ctx, now, held, see, out))
	}
	for _, f := range out.failed {
		j.log.Warn("a purchase is rolled back", "purchase", f.purchase, "nodes", f.names, "reason", f.reason, "message", f.message)
		j.lose(ctx, now(), f, out)
	}
	for _, id := range slices.Sorted(maps.Keys(out.vanished)) {
		j.log.Warn("nodes are neither in Terraform's state nor in Nomad; they count as gone", "purchase", id, "nodes", out.vanished[id])
		j.report(ctx, burstapi.Report{Purchase: id, Kind: burstapi.ReportGone, Nodes: out.vanished[id], Lived: out.lived(now(), out.vanished[id])})
	}
	for _, id := range out.present {
		if !j.report(ctx, burstapi.Report{Purchase: id, Kind: burstapi.ReportPresent, Message: "all nodes are ready with their devices"}) {
			continue
		}
		for name, n := range see.notes {
			if n.Purchase == id {
				n.Told = true
				see.notes[name] = n
			}
		}
	}
	j.log.Info("pass", "ready", out.ready, "coming", out.coming, "did", out.did())
	return errors.Join(errs...)
}

// lose notes and tells that a purchase failed.
func (j *job) lose(ctx context.Context, now time.Time, f failure, out *outcome) {
	w := j.worker
	if f.purchase == "" {
		w.pause = min(max(firstPause, 2*w.pause), maxPause)
		w.blocked = now.Add(w.pause)
		return
	}
	if told := w.lost[f.purchase]; told {
		return
	}
	r := burstapi.Report{Purchase: f.purchase, Kind: burstapi.ReportFailed, Reason: f.reason, Message: f.message}
	doubts, err := j.dir.Doubts()
	for _, name := range f.names {
		_, there := out.after[name]
		if _, doubted := doubts[name]; there || doubted || out.after == nil || err != nil {
			r.Nodes = append(r.Nodes, name)
		}
	}
	r.Lived = out.lived(now, f.names)
	w.lost[f.purchase] = j.report(ctx, r)
}

// lived is how long nodes have existed, in seconds, of which that is known.
func (o *outcome) lived(now time.Time, names []string) map[string]float64 {
	out := map[string]float64{}
	for _, name := range names {
		if since, known := o.since[name]; known {
			out[name] = max(0, now.Sub(since).Seconds())
		}
	}
	return out
}

// drainAll starts and ends drains.
func (j *job) drainAll(ctx context.Context, see sight, out *outcome) error {
	var errs []error
	for _, name := range out.drain {
		if err := j.nomad.Drain(ctx, see.nodes[name].ID, j.drain, j.ignoreSystem); err != nil {
			errs = append(errs, err)
			continue
		}
		out.changed = true
	}
	for _, name := range out.undrain {
		if err := j.nomad.Undrain(ctx, see.nodes[name].ID); err != nil {
			errs = append(errs, err)
			continue
		}
		out.changed = true
	}
	return errors.Join(errs...)
}

// apply makes the map what it is to be, and undoes the purchases that fail.
func (j *job) apply(ctx context.Context, now func() time.Time, held Held, see sight, out *outcome) error {
	begun, began := map[string][]string{}, now()
	for _, name := range out.add {
		v := out.want[name]
		begun[v.Purchase] = append(begun[v.Purchase], name)
		see.notes[name] = note{Purchase: v.Purchase, Ordered: began, JoinBy: began.Add(j.pool.JoinTimeout), Made: began}
	}
	for _, id := range slices.Sorted(maps.Keys(begun)) {
		if id != "" {
			j.report(ctx, burstapi.Report{Purchase: id, Kind: burstapi.ReportOrdered, Nodes: begun[id]})
		}
	}
	if err := j.dir.WriteNote(notesName, see.notes); err != nil {
		return err
	}
	change, err := held.Apply(ctx, maps.Clone(out.want))
	for _, name := range change.Made {
		if _, known := out.since[name]; !known {
			out.since[name] = began
		}
	}
	if err != nil && definite(err) {
		var more terraform.Change
		more, err = j.undo(ctx, held, out, begun, change, err)
		change.Gone, change.After = append(change.Gone, more.Gone...), more.After
	}
	out.made, out.gone, out.after = change.Made, change.Gone, change.After
	out.changed = out.changed || len(change.Made)+len(change.Gone) > 0
	for _, name := range change.Made {
		if n, ok := see.notes[name]; ok { // the machine boots from now on
			n.Ordered, n.JoinBy = now(), now().Add(j.pool.JoinTimeout)
			see.notes[name] = n
		}
	}
	j.bury(ctx, now(), see, out)
	if change.After != nil {
		for name := range see.notes {
			if _, there := change.After[name]; !there {
				delete(see.notes, name)
			}
		}
	}
	return err
}

// definite says that an error will not pass by itself: the planner is told, so that
// it tries elsewhere.
func definite(err error) bool {
	for _, kind := range []error{terraform.ErrApply, terraform.ErrHung, terraform.ErrPlan, terraform.ErrPlanRefused, terraform.ErrVariable, terraform.ErrUninitialised, terraform.ErrConfig} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// undo takes away what was made of purchases that could not be made whole.
func (j *job) undo(ctx context.Context, held Held, out *outcome, begun map[string][]string, change terraform.Change, failed error) (terraform.Change, error) {
	if change.After == nil {
		// What is there is not known: the next pass reads it, and finishes this.
		return terraform.Change{}, failed
	}
	want := map[string]terraform.Value{}
	for name, n := range change.After {
		want[name] = n.Value
	}
	for _, id := range slices.Sorted(maps.Keys(begun)) {
		names := begun[id]
		whole := !slices.ContainsFunc(names, func(name string) bool {
			n, there := change.After[name]
			return !there || n.Tainted
		})
		if whole {
			continue
		}
		for _, name := range names {
			delete(want, name)
		}
		out.failed = append(out.failed, failure{purchase: id, names: names, reason: burstapi.Reason(terraform.ReasonOf(failed)), message: failed.Error()})
	}
	if len(want) == len(change.After) && held.Interrupted() == nil {
		return terraform.Change{After: change.After}, failed
	}
	undone, err := held.Apply(context.WithoutCancel(ctx), want)
	if err != nil {
		return undone, errors.Join(failed, fmt.Errorf("roll back: %w", err))
	}
	return undone, failed
}

// bury lets Nomad forget the nodes that are no more, and tells the planner.
func (j *job) bury(ctx context.Context, now time.Time, see sight, out *outcome) {
	of := map[string][]string{}
	for _, name := range out.gone {
		if m, known := see.nodes[name]; known && j.purge && len(m.Twice) == 0 {
			if err := j.nomad.Purge(ctx, m.ID); err != nil {
				j.log.Warn("the node is no more and Nomad still knows it", "node", name, "error", err)
			}
		}
		if id := cmp.Or(see.notes[name].Purchase, see.state[name].Value.Purchase); id != "" {
			of[id] = append(of[id], name)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(of)) {
		j.report(ctx, burstapi.Report{Purchase: id, Kind: burstapi.ReportGone, Nodes: of[id], Lived: out.lived(now, of[id])})
	}
}

// report tells the planner, and says whether it knows now.
func (j *job) report(ctx context.Context, r burstapi.Report) bool {
	if j.planner == nil {
		return true
	}
	r.Pool = j.pool.Name
	// A purchase that the planner knows no more needs no report.
	if err := j.planner.BurstReport(ctx, r); err != nil && !errors.Is(err, httpapi.ErrNotFound) {
		j.log.Warn("the planner could not be told", "purchase", r.Purchase, "kind", r.Kind, "error", err)
		return false
	}
	return true
}
