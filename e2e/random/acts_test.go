package random

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

func (w *world) do(s step) {
	x := w.nodes[s.node]
	switch s.kind {
	case "submit":
		w.submit(w.user, s.job, s.spec.job(s.job))
	case "direct":
		w.submit(w.direct, s.job, s.spec.job(s.job))
	case "unmanaged":
		w.unmanagedJob(s)
	case "resubmit", "change":
		w.change(s)
	case "scale":
		w.scale(s)
	case "stop", "purge":
		w.stopJob(w.user, s.job, s.kind == "purge")
	case "finish", "fail member":
		w.end(s)
	case "stop member":
		if live := w.live(s.job); len(live) > 0 {
			a := &api.Allocation{ID: live[s.n%len(live)].id}
			if _, err := w.user.Allocations().Stop(a, nil); err != nil {
				w.tell("  %v", err)
			}
		}
	case "sick", "well":
		x.sick = 0
		if s.kind == "sick" {
			x.sick = 1 + s.n%gpusPerNode
		}
		if x.up {
			if err := x.start(); err != nil {
				w.fail("tell of a GPU's health: %v", err)
			}
		}
	case "drain", "drain off":
		w.drain(x, s)
	case "eligibility":
		if _, err := w.direct.Nodes().ToggleEligibility(x.id, s.flag, nil); err != nil {
			w.tell("  %v", err)
		}
	case "stop node":
		if x.up {
			x.stop()
		}
	case "start node":
		if !x.up {
			if err := x.start(); err != nil {
				w.fail("start node: %v", err)
			}
		}
	case "purge node":
		if !x.up {
			if _, _, err := w.direct.Nodes().Purge(x.id, nil); err != nil {
				w.tell("  %v", err)
			}
		}
	case "new ID":
		if !x.up {
			if err := x.renew(); err != nil {
				w.fail("start node under a new ID: %v", err)
			}
		}
	case "purge old ID":
		w.purgeOld(x)
	case "away":
		w.away(time.Hour)
	case "restart planner":
		if err := w.restartPlanner(); err != nil {
			w.fail("restart the planner: %v", err)
		}
	case "fault":
		kind := []fault{faultError, faultBusy, faultGarbage, faultLost, faultCut}[s.n%5]
		count := 1 + s.looks*2
		if s.flag {
			count += 3
		}
		w.faults.set(kind, s.node*3+s.n, count)
	case "interleave":
		w.interleave(s)
	case "pass":
		w.clock.Advance(time.Duration(1+s.n*8) * time.Second)
	case "pass long":
		w.pass(time.Duration(1+s.n)*20*time.Second, 10*time.Second)
	case "collect":
		if err := w.direct.System().GarbageCollect(); err != nil {
			w.fail("collect: %v", err)
		}
	case "rest":
		w.rest()
	}
}

// interleave has somebody act in the middle of the planner's writes.
func (w *world) interleave(s step) {
	act := func() { w.submit(w.direct, s.job, s.spec.job(s.job)) }
	if s.flag {
		act = func() { w.stopJob(w.direct, s.job, s.n%2 == 0) }
	}
	w.faults.mu.Lock()
	defer w.faults.mu.Unlock()
	w.faults.before, w.faults.beforeSkip = act, s.node
}

// submit registers a version of a job, and remembers what holds then.
func (w *world) submit(c *api.Client, key string, job *api.Job) {
	want := w.jobs[key]
	if want == nil {
		want = &wanted{sure: true}
		w.jobs[key] = want
	}
	fired, between := w.faults.fired(), w.between.Load()
	_, _, err := c.Jobs().Register(job, nil)
	if err != nil && w.faults.fired() == fired && w.between.Load() == between {
		w.tell("  %s: refused: %v", key, err)
		return
	}
	if err != nil {
		// Whether it was taken is not known.
		w.tell("  %s: %v", key, err)
		want.versions, want.sure = append(want.versions, job), false
		return
	}
	if w.between.Load() != between {
		// Two acted at the same time: either may have been the last.
		want.versions, want.sure = append(want.versions, job), false
		return
	}
	*want = wanted{versions: []*api.Job{job}, sure: true, direct: c == w.direct}
}

func (w *world) unmanagedJob(s step) {
	key := legacy + s.job[strings.Index(s.job, "/"):]
	s.spec.gang = ""
	if _, there := w.unmanaged[key]; there && s.flag {
		delete(w.unmanaged, key)
		_, id, _ := strings.Cut(key, "/")
		if _, _, err := w.direct.Jobs().Deregister(id, true, &api.WriteOptions{Namespace: legacy}); err != nil {
			w.fail("purge a job that is not managed: %v", err)
		}
		return
	}
	if _, _, err := w.direct.Jobs().Register(s.spec.job(key), nil); err != nil {
		w.fail("submit a job that is not managed: %v", err)
		return
	}
	w.settle()
	if job := w.job(key); job != nil {
		w.unmanaged[key] = *job.Version
	}
}

// last is the version that a user has at hand, if there is one for sure.
func (w *world) last(key string) *api.Job {
	want := w.jobs[key]
	if want == nil || len(want.versions) == 0 {
		return nil
	}
	return want.versions[len(want.versions)-1]
}

// change submits a job again, as it was or with something else in it.
func (w *world) change(s step) {
	old := w.last(s.job)
	if old == nil {
		return
	}
	job := clone(old)
	if s.kind == "change" {
		g := job.TaskGroups[s.node%len(job.TaskGroups)]
		switch s.n % 3 {
		case 0:
			g.Count = ptr(1 + s.node)
		case 1:
			g.Tasks[0].Env["VERSION"] = strconv.Itoa(s.n + 10*s.node)
		default:
			g.Tasks[0].Resources.Devices[0].Count = ptr(uint64(1 + s.node))
		}
	}
	w.submit(w.user, s.job, job)
}

func (w *world) scale(s step) {
	want := w.jobs[s.job]
	if want == nil || want.gone || !want.sure || len(want.versions) != 1 || want.direct {
		return
	}
	job := clone(want.versions[0])
	g := job.TaskGroups[s.node%len(job.TaskGroups)]
	count := 1 + s.n%4
	g.Count = &count
	fired, between := w.faults.fired(), w.between.Load()
	_, _, err := w.user.Jobs().Scale(*job.ID, *g.Name, &count, "", false, nil, nil)
	if err != nil && w.faults.fired() == fired && w.between.Load() == between {
		w.tell("  refused: %v", err)
		return
	}
	if err != nil {
		w.tell("  %v", err)
		want.versions, want.sure = append(want.versions, job), false
		return
	}
	if w.between.Load() != between {
		want.versions, want.sure = append(want.versions, job), false
		return
	}
	want.versions = []*api.Job{job}
}

func (w *world) stopJob(c *api.Client, key string, purge bool) {
	want := w.jobs[key]
	if want == nil {
		return
	}
	_, id, _ := strings.Cut(key, "/")
	between := w.between.Load()
	_, _, err := c.Jobs().Deregister(id, purge, nil)
	switch {
	case w.between.Load() != between:
		want.gone, want.sure = true, false
	case err == nil:
		*want = wanted{gone: true, sure: true}
	case strings.Contains(err.Error(), "404"):
	default:
		w.tell("  %v", err)
		want.gone, want.sure = true, false
	}
}

// end lets members of a job end by themselves: with success the whole of a
// batch job, or one; or one with a failure.
func (w *world) end(s step) {
	live := w.live(s.job)
	for i, r := range live {
		switch {
		case s.kind == "fail member" && i == s.n%len(live):
			r.status = api.AllocClientStatusFailed
		case s.kind == "finish" && r.batch && (s.flag || i == s.n%len(live)):
			r.status = api.AllocClientStatusComplete
			if want := w.jobs[s.job]; want != nil {
				want.ended = true
			}
		}
	}
}

// purgeOld has an operator purge the IDs that a client had before, after a look
// at the machine.
func (w *world) purgeOld(x *node) {
	var old []string
	w.server.Store().View(func(v *state.View) {
		for _, n := range v.Nodes() {
			if n.Name == x.name && n.ID != x.id {
				old = append(old, n.ID)
			}
		}
	})
	slices.Sort(old)
	for _, id := range old {
		for alloc, r := range x.runs {
			if r.of == id {
				delete(x.runs, alloc)
			}
		}
		if _, _, err := w.direct.Nodes().Purge(id, nil); err != nil {
			w.tell("  %v", err)
		}
	}
}

// away lets time pass without a planner; another one that knows nothing comes
// then.
func (w *world) away(long time.Duration) {
	for range long / time.Minute {
		w.clock.Advance(time.Minute)
		w.settle()
	}
	if err := w.restartPlanner(); err != nil {
		w.fail("restart the planner: %v", err)
	}
}

func (w *world) drain(x *node, s step) {
	var spec *api.DrainSpec
	if s.kind == "drain" {
		spec = &api.DrainSpec{Deadline: time.Hour}
	}
	var there bool
	w.server.Store().View(func(v *state.View) { there = v.Node(x.id) != nil })
	if !there {
		return
	}
	if _, err := w.direct.Nodes().UpdateDrain(x.id, spec, s.kind == "drain off", nil); err != nil {
		w.tell("  %v", err)
	}
}
