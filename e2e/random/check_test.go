package random

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// calm is how long it takes at most until all is well again once nobody does
// anything: a node that is lost, a deadline, a back-off.
const calm = 7 * time.Minute

// check looks at what must hold at every moment. That no GPU is given twice is
// looked at when a client starts something.
func (w *world) check() {
	w.faults.mu.Lock()
	stops := w.faults.stops
	w.faults.stops = nil
	w.faults.mu.Unlock()
	w.server.Store().View(func(v *state.View) {
		for _, id := range stops {
			if a := v.Alloc(id); a != nil && a.Namespace == legacy {
				w.fail("allocation %s of job %s, which is not managed, was told to stop", id, a.JobID)
			}
		}
	})
	for _, key := range sortedKeys(w.unmanaged) {
		job := w.job(key)
		if job == nil || *job.Version != w.unmanaged[key] || rewrite.IsGated(job) || rewrite.IsPinned(job) {
			w.fail("job %s, which is not managed, was changed", key)
		}
	}
}

// rest heals nothing, ends the faults, waits until all is calm, and looks at
// what must hold then.
func (w *world) rest() {
	w.faults.set("", 0, 0)
	w.faults.mu.Lock()
	w.faults.before = nil
	w.faults.mu.Unlock()
	w.settle()
	w.cycle()
	w.pass(calm, 10*time.Second)
	w.check()
	if w.broken != nil {
		return
	}
	v, err := w.observer.Refresh(w.ctx())
	if err != nil {
		w.fail("the cluster cannot be observed: %v", err)
		return
	}
	for _, o := range v.Orphans {
		w.fail("the record of job %s outlived it", o.JobID)
	}
	plan, err := core.Decide(v.Snapshot, policy)
	if err != nil {
		w.fail("the core refuses what was observed: %v", err)
		return
	}
	reasons := map[string]string{}
	for _, d := range plan.Decisions {
		reasons[d.Namespace+"/"+d.Job] = d.Reason
	}
	for _, key := range sortedKeys(w.jobs) {
		w.checkJob(key, w.jobs[key], v, reasons[key])
	}
	for _, d := range plan.Decisions {
		m, ok := v.Job(d.Namespace, d.Job)
		if d.Action == model.ActionAdmit && ok && m.Record != nil && m.Record.Attempts == 0 {
			w.fail("job %s would fit (%s) and is not admitted: its record says %s, %q", d.Job, d.Reason, m.Record.Phase, m.Record.Reason)
		}
	}
}

// checkJob looks at one job when all is calm.
func (w *world) checkJob(key string, want *wanted, v *observe.View, reason string) {
	job := w.job(key)
	live := w.reachable(w.live(key))
	if want.gone && want.sure {
		if n := len(live); n > 0 {
			w.fail("job %s was stopped and %d members run", key, n)
		}
		return
	}
	if want.gone || len(want.versions) == 0 {
		return // anything may be
	}
	ns, id, _ := strings.Cut(key, "/")
	m, known := v.Job(ns, id)
	if job == nil {
		if want.sure && !want.ended {
			w.fail("job %s is gone from Nomad", key)
		}
		return
	}
	if deref(job.Stop) {
		if want.sure {
			w.fail("job %s is stopped and nobody stopped it", key)
		}
		return
	}
	if over(job) {
		return
	}
	if !known || m.Record == nil {
		w.fail("job %s is forgotten: no record; Nomad has it as %s", key, deref(job.Status))
		return
	}
	rec := m.Record
	var hashes []string
	for _, j := range want.versions {
		hashes = append(hashes, gangspec.Hash(j))
	}
	if !slices.Contains(hashes, rec.SpecHash) && rec.Rollout == nil {
		w.fail("job %s is not what its user submitted last: the record is of another version (%s)", key, versionOf(rec.Original))
	}
	if rec.Reason == "" && m.Model.Hold == "" && reason == "" {
		w.fail("job %s has no reason; phase %s", key, rec.Phase)
	}
	w.checkGangs(key, rec, m, live)
}

func over(job *api.Job) bool { return deref(job.Status) == state.JobDead }

// reachable are the runs that a client could end; what runs on a node that is
// cut off is not the planner's to count.
func (w *world) reachable(live []*run) (out []*run) {
	for _, x := range w.nodes {
		for _, r := range live {
			if x.up && x.runs[r.id] != nil && r.of == x.id {
				out = append(out, r)
			}
		}
	}
	return out
}

// checkGangs: each gang runs whole or not at all.
func (w *world) checkGangs(key string, rec *record.Record, m *observe.Managed, live []*run) {
	spec, err := gangspec.Parse(rec.Original)
	if err != nil {
		w.fail("job %s: %v", key, err)
		return
	}
	have, ended := map[string]int{}, 0
	for _, r := range live {
		have[r.group]++
	}
	byGroup := map[string]int{}
	for name, n := range have {
		g, _, _ := rewrite.OriginByName(rec.Original, name)
		byGroup[g] += n
	}
	for _, a := range w.allocs(key) {
		if a.ClientStatus == api.AllocClientStatusComplete && a.DesiredStatus == api.AllocDesiredStatusRun {
			ended++
		}
	}
	if ended > 0 || rec.Rollout != nil || rec.Phase == record.PhaseReleased {
		return
	}
	want, total := map[string]int{}, 0
	for _, g := range rec.Original.TaskGroups {
		want[*g.Name] = gangspec.Count(g)
		total += gangspec.Count(g)
	}
	var faults []string
	for g, n := range byGroup {
		if n > want[g] {
			faults = append(faults, fmt.Sprintf("group %s has %d members of %d", g, n, want[g]))
		}
		if spec.Gang != model.GangNone && n != 0 && n != want[g] {
			faults = append(faults, fmt.Sprintf("group %s has %d members of %d", g, n, want[g]))
		}
	}
	if spec.Gang == model.GangJob && len(live) != 0 && len(live) != total {
		faults = append(faults, fmt.Sprintf("%d members of %d", len(live), total))
	}
	if rec.Phase == record.PhaseQueued && len(live) > 0 {
		faults = append(faults, fmt.Sprintf("queued with %d members running", len(live)))
	}
	if spec.Gang == model.GangJob && rec.Phase == record.PhaseRunning && len(live) != total {
		faults = append(faults, fmt.Sprintf("running with %d members of %d", len(live), total))
	}
	if rec.Phase == record.PhaseRollback && len(live) > 0 || rec.Phase == record.PhaseAdmitted && spec.Gang == model.GangJob {
		faults = append(faults, "still "+string(rec.Phase))
	}
	if len(faults) > 0 {
		slices.Sort(faults)
		w.fail("job %s (gang %s, phase %s, %q, hold %q): %s", key, spec.Gang, rec.Phase, rec.Reason, m.Model.Hold, strings.Join(faults, "; "))
	}
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// versionOf tells versions of a job apart, for people.
func versionOf(job *api.Job) string {
	var out []string
	for _, g := range job.TaskGroups {
		t := g.Tasks[0]
		out = append(out, fmt.Sprintf("%d of %s with %d GPUs, VERSION %s", *g.Count, *g.Name, *t.Resources.Devices[0].Count, t.Env["VERSION"]))
	}
	return strings.Join(out, "; ")
}
