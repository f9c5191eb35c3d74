package apply_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/observe"
)

func TestFailuresOnNomad(t *testing.T) { failures(t, startReal(t, troubleOptions())) }

func TestFailuresOnStandIn(t *testing.T) {
	t.Parallel()
	failures(t, startStandIn(t, troubleOptions()))
}

func failures(t *testing.T, r *real) {
	t.Run("the others go on", func(t *testing.T) { r.t = t; r.goesOn("batch") })
	t.Run("a service, and the first fails", func(t *testing.T) { r.t = t; r.stays() })
	t.Run("a service fails as a whole", func(t *testing.T) { r.t = t; r.serviceAgain() })
}

// failable is a gang of three whose members fail when a file says so; Nomad
// itself does not start them again for an hour.
func (r *real) failable(id, kind string) *api.Job {
	j := realJob(id, kind, "job", 3, 8, "/bin/sh", "-c",
		fmt.Sprintf("while [ ! -e %s/%s-$NOMAD_ALLOC_INDEX ]; do sleep 0.1; done; rm %s/%s-$NOMAD_ALLOC_INDEX; exit 3", r.dir(), id, r.dir(), id))
	j.Meta["caravan_on_failure"] = "continue"
	j.TaskGroups[0].Meta = map[string]string{"caravan_min": "2", "caravan_max": "3"}
	j.TaskGroups[0].ReschedulePolicy = &api.ReschedulePolicy{Attempts: ptr(0), Interval: ptr(time.Duration(0)), MaxDelay: ptr(time.Duration(0)), Unlimited: ptr(true), Delay: ptr(time.Hour), DelayFunction: ptr("constant")}
	return j
}

// fail lets the member with that index fail.
func (r *real) fail(id string, index int) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir(), fmt.Sprintf("%s-%d", id, index)), nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// goesOn: the others keep their processes, and the gang is whole again later.
func (r *real) goesOn(kind string) {
	j := r.failable("goes-on", kind)
	r.register(gatedFile(j))
	r.until("running", func(v *observe.View) bool { return r.running("goes-on", 3)(v) && len(r.processes("goes-on")) == 3 })
	before := r.processes("goes-on")
	r.fail("goes-on", 0)
	r.until("it runs on with two", func(v *observe.View) bool {
		m, _ := v.Job("default", "goes-on")
		return len(m.Members) == 2 && r.running("goes-on", 2)(v)
	})
	then := r.processes("goes-on")
	for id, started := range then {
		if before[id] != started {
			r.t.Errorf("%v run, of %v", then, before)
		}
	}
	r.sized("goes-on", 3, then, 2)
	r.purge("goes-on")
}

// stays: Nomad would stop another member of a service in place of the one that
// has failed, so the gang keeps its size.
func (r *real) stays() {
	j := r.failable("stays", "service")
	r.register(gatedFile(j))
	r.until("running", func(v *observe.View) bool { return r.running("stays", 3)(v) && len(r.processes("stays")) == 3 })
	r.fail("stays", 0)
	r.until("one has failed", func(v *observe.View) bool {
		m, _ := v.Job("default", "stays")
		return len(r.processes("stays")) == 2 && m != nil
	})
	before := r.processes("stays")
	for end := time.Now().Add(troubleOptions().Settle + 3*time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		r.cycle()
	}
	if after := r.processes("stays"); len(before) != 2 || fmt.Sprint(after) != fmt.Sprint(before) {
		r.t.Errorf("%v run, want %v", after, before)
	}
	r.fail("stays", 2)
	r.until("too few are left", func(v *observe.View) bool { return len(r.processes("stays")) < 2 })
	r.sized("stays", 3, before, 0)
	r.purge("stays")
}

// serviceAgain: a gang of which too few are left is placed again as a whole,
// though Nomad would wait before it starts those again that have failed.
func (r *real) serviceAgain() {
	j := r.failable("again", "service")
	j.TaskGroups[0].Meta, j.Meta["caravan_on_failure"] = nil, "restart"
	r.register(gatedFile(j))
	r.until("running", func(v *observe.View) bool { return r.running("again", 3)(v) && len(r.processes("again")) == 3 })
	before := r.processes("again")
	r.fail("again", 1)
	r.until("it is taken back", func(v *observe.View) bool { return len(r.processes("again")) < 3 })
	r.sized("again", 3, before, 0)
	r.purge("again")
}
