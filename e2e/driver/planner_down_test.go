package driver

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/httpapi"
)

// late keeps the members of a group from their tasks until the diary has the
// file "go".
func late(g *api.TaskGroup) *api.TaskGroup {
	k := api.NewTask("fetch", "raw_exec").SetConfig("command", "/bin/sh").
		SetConfig("args", []string{"-c", `while [ ! -e "$DIARY/go" ]; do sleep 0.1; done`})
	k.Resources = &api.Resources{CPU: new(20), MemoryMB: new(16)}
	k.Lifecycle = &api.TaskLifecycle{Hook: api.TaskLifecycleHookPrestart}
	g.Tasks = append([]*api.Task{k}, g.Tasks...)
	return g
}

// incomplete submits a gang of three, one of whose members is late, and waits
// until the other two wait for it.
func (r *rig) incomplete(whole bool) (job string, waiting []string) {
	r.t.Helper()
	n := uint64(1)
	if whole {
		n = 8
	}
	job = r.submit(r.job(group("w", 2, gpus(task("train", trainer), n)), late(group("late", 1, gpus(task("train", trainer), n)))))
	r.until("all are placed", func() (bool, any) { return len(r.allocs(job)) == 3, r.allocs(job) })
	for _, a := range r.allocs(job) {
		if !strings.HasPrefix(a.TaskGroup, "late") {
			waiting = append(waiting, a.ID)
		}
	}
	for _, a := range waiting {
		r.told(a, "train", "of 3 joined")
	}
	return job, waiting
}

// The planner is killed while a gang waits at the barrier, and another one takes
// over: all start together, once.
func TestStandbyTakesOver(t *testing.T) {
	onEachOf(t, "takeover", false, func(t *testing.T, r *rig) {
		first, standby := r.planners[0], r.planners[1]
		if err := standby.launch(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(standby.kill)
		if err := standby.await("follows", func(s httpapi.Status) bool { return !s.Leader }); err != nil {
			t.Fatal(err)
		}
		running := newRig(t, r.stage)
		before := running.start(running.named("running", group("w", 2, gpus(task("train", trainer), 1))), 2).ids()

		r.incomplete(false)
		first.kill()
		r.touch("go")
		d := r.await("all have started", func(d diary) bool { return len(d.with("start")) == 3 })
		if n := r.together(d, 3); n != 1 {
			t.Errorf("%d epochs:\n%s", n, d)
		}
		if d := running.goOn(before...); len(d.with("start")) != 2 {
			t.Errorf("the running gang was started again:\n%s", d)
		}
		if err := first.launch(); err != nil {
			t.Fatal(err)
		}
		if err := first.await("follows", func(s httpapi.Status) bool { return !s.Leader }); err != nil {
			t.Fatal(err)
		}
		if err := standby.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := first.await("leads again", func(s httpapi.Status) bool { return s.Leader && s.Nomad.OK }); err != nil {
			t.Fatal(err)
		}
		r.goOn(d.ids()...)
		running.goOn(before...)
		if n := len(r.read().with("start")) + len(running.read().with("start")); n != 5 {
			t.Errorf("%d starts, want 5", n)
		}
	})
}

// While the planner is away for longer than fence_after nothing that runs
// stops; while something else answers in its place, nothing starts either. A
// member that fails meanwhile takes the gang back when the planner is there.
func TestPlannerAway(t *testing.T) {
	onEachOf(t, "away", false, func(t *testing.T, r *rig) {
		t.Cleanup(func() { r.link(linkUp) })
		ids := r.start(r.job(group("w", 2, gpus(task("train", trainer), 1))), 2).ids()
		waiting := newRig(t, r.stage)
		waiting.suffix = "waiting"
		_, early := waiting.incomplete(false)

		r.link(linkDown)
		gone := time.Now()
		waiting.touch("go")
		waiting.told(early[0], "train", "no answer that can be used")
		r.link(linkNonsense)
		r.until("fence_after is over, and each kind of nonsense was answered", func() (bool, any) {
			n := int(r.babbled.Load())
			return n >= len(nonsense) && time.Since(gone) > fenceAfter+3*time.Second, n
		})
		d := r.goOn(ids...)
		r.steady(d, ids...)
		if len(d.with("start")) != 2 || len(d.with("end")) != 0 {
			t.Errorf("the gang did not run on:\n%s", d)
		}
		if d := waiting.read(); len(d) != 0 {
			t.Errorf("members started without a planner:\n%s", d)
		}

		r.touch("fail-1")
		r.until("the member has failed", func() (bool, any) {
			d := r.read()
			return len(d.with("fail")) == 1, d
		})
		r.link(linkUp)
		d = r.await("all have started again", func(d diary) bool { return len(d.with("start")) == 4 })
		if n := r.together(d, 2); n != 2 {
			t.Errorf("%d epochs:\n%s", n, d)
		}
		d = waiting.await("the waiting gang has started", func(d diary) bool { return len(d.with("start")) == 3 })
		if n := waiting.together(d, 3); n != 1 {
			t.Errorf("%d epochs:\n%s", n, d)
		}
	})
}

// steady checks that members have written all the time: that none was held for
// about as long as the planner was away.
func (r *rig) steady(d diary, allocs ...string) {
	r.t.Helper()
	const most = fenceAfter // of a busy machine
	for _, a := range allocs {
		ticks := d.of(a).with("tick")
		for i, e := range ticks[1:] {
			if gap := e.at.Sub(ticks[i].at); gap > most {
				r.t.Errorf("%s stood still for %v before %s", a, gap, e.at.Format("05.000"))
			}
		}
	}
}

// link sets both ways to the planners.
func (r *rig) link(s linkState) {
	for _, k := range r.links {
		k.set(s)
	}
}
