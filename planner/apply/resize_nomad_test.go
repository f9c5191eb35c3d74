package apply_test

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

func TestResizeOnNomad(t *testing.T) { sizes(t, startReal(t, troubleOptions())) }

func TestResizeOnStandIn(t *testing.T) {
	t.Parallel()
	sizes(t, startStandIn(t, troubleOptions()))
}

func sizes(t *testing.T, r *real) {
	t.Run("replicas", func(t *testing.T) { r.t = t; r.sizeReplicas() })
	t.Run("pinned in the earlier form", func(t *testing.T) { r.t = t; r.sizeEarlierForm() })
	t.Run("an elastic gang", func(t *testing.T) { r.t = t; r.sizeGang() })
	t.Run("a gang that starts with fewer", func(t *testing.T) { r.t = t; r.sizeShort() })
	t.Run("past the gateway", func(t *testing.T) { r.t = t; r.sizePast() })
	t.Run("one gang of two", func(t *testing.T) { r.t = t; r.sizeOneOfTwo() })
	t.Run("a growth that is taken back", func(t *testing.T) { r.t = t; r.sizeUndone() })
	t.Run("a sweep in which one has ended", func(t *testing.T) { r.t = t; r.sizeSweep() })
	t.Run("a lost member", func(t *testing.T) { r.t = t; r.sizeLost() })
}

// scale gives the job's first group another count as the gateway does.
func (r *real) scale(job string, count int) {
	r.t.Helper()
	v := r.look()
	m, _ := v.Job("default", job)
	orig, err := gangspec.Copy(m.Record.Original)
	if err != nil {
		r.t.Fatal(err)
	}
	orig.TaskGroups[0].Count = &count
	kept, _, ok := rewrite.Resize(m.Current, m.Record.Original, orig, m.Record.Members, apply.Cluster(v))
	if !ok {
		r.t.Fatalf("%s cannot be resized", job)
	}
	next := m.Record.Resized()
	next.Original, next.Members = orig, kept
	next.SpecHash, next.PlacedHash = gangspec.Hash(orig), gangspec.Hash(orig)
	next.PriorIndex = *m.Current.JobModifyIndex
	mixed, err := apply.Mix(next, m.Current, apply.Cluster(v))
	if err != nil {
		r.t.Fatal(err)
	}
	if *orig.Type == "batch" && m.Model.Gang != "job" {
		var places []rewrite.Place
		for _, k := range kept {
			places = append(places, rewrite.Place{Group: k.Group, Index: k.Index})
		}
		rewrite.Hold(mixed, places)
	}
	if err := r.store.Put(r.t.Context(), next); err != nil {
		r.t.Fatal(err)
	}
	if _, _, err := r.client.Jobs().EnforceRegister(mixed, *m.Current.JobModifyIndex, nil); err != nil {
		r.t.Fatal(err)
	}
}

// sized turns the loop until the job runs with so many members and nothing
// else, and checks that of those before as many are still the same allocations
// with the same processes. It returns the allocations.
func (r *real) sized(job string, members int, before map[string]string, stay int) map[string]string {
	r.t.Helper()
	v := r.until(fmt.Sprintf("%d members", members), func(v *observe.View) bool {
		m, ok := v.Job("default", job)
		return ok && m.Record != nil && m.Record.Growth == nil && len(m.Members) == members && r.running(job, members)(v) && len(r.processes(job)) == members
	})
	r.exact(v, job, members)
	after := r.processes(job)
	same := 0
	for id, pid := range before {
		if after[id] == pid {
			same++
		}
	}
	if same != stay {
		r.t.Errorf("%d of %v run on, want %d: %v", same, before, stay, after)
	}
	m, _ := v.Job("default", job)
	if back, err := rewrite.Strip(m.Current, m.Record.Original); err != nil || gangspec.Hash(back) != m.Record.SpecHash {
		r.t.Errorf("the user's version cannot be told: %v", err)
	}
	return after
}

// processes are the job's allocations that run, with when their tasks were
// started.
func (r *real) processes(job string) map[string]string {
	r.t.Helper()
	list, _, err := r.client.Jobs().Allocations(job, true, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]string{}
	for _, a := range list {
		if s := a.TaskStates["t"]; s != nil && a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun {
			out[a.ID] = fmt.Sprint(s.StartedAt.UnixNano(), " restarts ", s.Restarts)
		}
	}
	return out
}

func (r *real) begin(j *api.Job) map[string]string {
	r.t.Helper()
	r.register(gatedFile(j))
	members := 0
	for _, g := range j.TaskGroups {
		members += *g.Count
	}
	return r.sized(*j.ID, members, nil, 0)
}

func (r *real) sizeReplicas() {
	for _, kind := range []string{"service", "batch"} {
		job := "replicas-" + kind
		procs := r.begin(realJob(job, kind, "none", 1, 4, "/bin/sleep", "600"))
		r.scale(job, 4)
		procs = r.sized(job, 4, procs, 1)
		r.scale(job, 5)
		procs = r.sized(job, 5, procs, 4)
		r.scale(job, 2)
		procs = r.sized(job, 2, procs, 2)
		r.scale(job, 3)
		r.sized(job, 3, procs, 2)
		r.purge(job)
	}
}

// sizeEarlierForm: a planner from before the count had a form of its own has
// pinned the job; this one neither registers nor restarts anything of it.
func (r *real) sizeEarlierForm() {
	procs := r.begin(realJob("old", "service", "none", 2, 8, "/bin/sleep", "600"))
	j, _, err := r.client.Jobs().Info("old", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, g := range j.TaskGroups {
		if g.Meta[gangspec.KeyCount] != "2" || slices.ContainsFunc(g.Constraints, func(c *api.Constraint) bool { return strings.HasPrefix(c.RTarget, "count-") }) {
			r.t.Fatalf("that is not the earlier form: %+v", g)
		}
	}
	version := r.versions("old")
	r.exec = apply.NewExecutor(r.client, r.store, troubleOptions())
	for range 3 {
		r.cycle()
	}
	if r.versions("old") != version {
		r.t.Error("the job was registered again")
	}
	r.scale("old", 3)
	r.sized("old", 3, procs, 2)
	r.purge("old")
}

func (r *real) elastic(id, kind, gang string, count int) *api.Job {
	j := realJob(id, kind, gang, count, 8, "/bin/sleep", "600")
	j.TaskGroups[0].Meta = map[string]string{"caravan_min": "1", "caravan_max": "4"}
	return j
}

func (r *real) sizeGang() {
	for _, kind := range []string{"service", "batch"} {
		job := "elastic-" + kind
		procs := r.begin(r.elastic(job, kind, "job", 2))
		r.scale(job, 3)
		procs = r.sized(job, 3, procs, 2)
		// It runs on at its size while there is no node for a fourth.
		r.scale(job, 4)
		for range 4 {
			r.cycle()
		}
		procs = r.sized(job, 3, procs, 3)
		r.scale(job, 1)
		procs = r.sized(job, 1, procs, 1)
		r.scale(job, 2)
		r.sized(job, 2, procs, 1)
		r.purge(job)
	}
}

// sizeShort: a gang that may run with fewer members starts with those for which
// there is room, and gets the others when there is.
func (r *real) sizeShort() {
	for _, kind := range []string{"service", "batch"} {
		for _, gang := range []string{"job", "group"} {
			r.begin(realJob("in-its-way", "batch", "job", 1, 1, "/bin/sleep", "600"))
			job := "short-" + kind + "-" + gang
			r.register(gatedFile(r.elastic(job, kind, gang, 3)))
			procs := r.sized(job, 2, nil, 0)
			r.purge("in-its-way")
			r.sized(job, 3, procs, 2)
			r.purge(job)
		}
	}
}

// sizePast: `nomad job scale` on Nomad itself.
func (r *real) sizePast() {
	procs := r.begin(r.elastic("past", "service", "job", 2))
	for _, step := range []struct{ to, stay int }{{3, 2}, {1, 1}, {2, 1}} {
		if _, _, err := r.client.Jobs().Scale("past", "w", &step.to, "by hand", false, nil, nil); err != nil {
			r.t.Fatal(err)
		}
		procs = r.sized("past", step.to, procs, step.stay)
	}
	r.purge("past")
}

func (r *real) sizeOneOfTwo() {
	for _, elastic := range []bool{true, false} {
		j := r.elastic("two", "service", "group", 1)
		if !elastic {
			j.TaskGroups[0].Meta = nil
		}
		second := realJob("", "service", "group", 1, 8, "/bin/sleep", "600").TaskGroups[0]
		second.Name = ptr("v")
		j.TaskGroups = append(j.TaskGroups, second)
		procs := r.begin(j)
		r.scale("two", 2)
		if elastic {
			r.sized("two", 3, procs, 2)
		} else {
			r.sized("two", 3, procs, 1)
		}
		r.purge("two")
	}
}

// sizeUndone: somebody else takes a node between dry-run and registration,
// which is played by writing the growth behind the dry-run's back.
func (r *real) sizeUndone() {
	procs := r.begin(r.elastic("undone", "service", "job", 1))
	v := r.look()
	m, _ := v.Job("default", "undone")
	var free []string
	for _, n := range v.Nodes {
		if n.ID != m.Members[0].Member.Node {
			free = append(free, n.ID)
		}
	}
	thief := realJob("thief", "sysbatch", "none", 1, 1, "/bin/sleep", "600")
	thief.Meta, thief.TaskGroups[0].Count, thief.TaskGroups[0].ReschedulePolicy = nil, nil, nil
	thief.Constrain(api.NewConstraint("${node.unique.id}", "=", free[1]))
	r.scale("undone", 3)
	v = r.look()
	m, _ = v.Job("default", "undone")
	rec := *m.Record
	rec.Members = slices.Clone(rec.Members)
	for i, node := range free {
		at := slices.IndexFunc(v.Snapshot.Nodes, func(n model.Node) bool { return n.ID == node })
		member := m.Members[0].Member
		member.Index, member.Rank, member.Node, member.GPUs, member.Tasks = i+1, i+1, node, nil, nil
		for _, g := range v.Snapshot.Nodes[at].GPUs {
			member.GPUs = append(member.GPUs, g.UUID)
		}
		member.Tasks = [][]string{member.GPUs}
		rec.Members = append(rec.Members, member)
	}
	rec.Growth = rec.Growth.With(map[string][]int{"w": {1, 2}})
	rec.Phase, rec.Deadline = "admitted", time.Now().Add(3*time.Second)
	r.register(thief)
	r.waitAllocs("thief", 1)
	if err := r.store.Put(r.t.Context(), &rec); err != nil {
		r.t.Fatal(err)
	}
	r.until("it is being taken back", func(v *observe.View) bool {
		m, _ := v.Job("default", "undone")
		return m.Record.Growth != nil && m.Record.Growth.Undo != ""
	})
	after := r.sized("undone", 1, procs, 1)
	r.told("undone", "the gang cannot grow")
	if _, _, err := r.client.Jobs().Deregister("thief", true, nil); err != nil {
		r.t.Fatal(err)
	}
	r.sized("undone", 3, after, 1)
	r.purge("undone")
}

// sizeSweep: what has ended does not run again, whatever the count.
func (r *real) sizeSweep() {
	log := filepath.Join(r.t.TempDir(), "ran")
	r.register(gatedFile(realJob("ended", "batch", "none", 3, 8, "/bin/sh", "-c",
		"echo $NOMAD_ALLOC_INDEX >>"+log+"; test $NOMAD_ALLOC_INDEX = 0 && exec sleep 2; exec sleep 600")))
	r.until("the first has ended", func(v *observe.View) bool {
		m, ok := v.Job("default", "ended")
		return ok && len(m.Members) == 3 && slices.ContainsFunc(m.Members, func(s observe.MemberState) bool { return s.State == observe.AllocComplete }) && len(r.processes("ended")) == 2
	})
	before := r.processes("ended")
	r.scale("ended", 4)
	r.until("the fourth runs", func(*observe.View) bool { return len(r.processes("ended")) == 3 })
	for range 5 {
		r.cycle()
	}
	after := r.processes("ended")
	for id, pid := range before {
		if after[id] != pid {
			r.t.Errorf("allocation %s does not run on: %v", id, after)
		}
	}
	out, err := exec.Command("sort", log).Output()
	if err != nil {
		r.t.Fatal(err)
	}
	if got := strings.Fields(string(out)); !slices.Equal(got, []string{"0", "1", "2", "3"}) {
		r.t.Errorf("members ran: %v, want each once", got)
	}
	r.purge("ended")
}

// sizeLost: a gang runs on without a member in the middle, and grows again when
// its node is back.
func (r *real) sizeLost() {
	procs := r.begin(r.elastic("lost", "service", "job", 3))
	m, _ := r.look().Job("default", "lost")
	at := slices.IndexFunc(m.Members, func(s observe.MemberState) bool { return strings.HasSuffix(s.Alloc.Name, "[1]") })
	name := m.Members[at].Alloc.NodeName
	if err := r.cluster.StopNode(name); err != nil {
		r.t.Fatal(err)
	}
	left := maps.Clone(procs)
	delete(left, m.Members[at].Alloc.ID)
	r.until("it runs on with two", func(v *observe.View) bool {
		m, _ := v.Job("default", "lost")
		return len(m.Members) == 2 && r.running("lost", 2)(v)
	})
	for range 5 {
		r.cycle()
	}
	r.told("lost", "the gang runs on with 2 of 3 members")
	now := r.processes("lost")
	for id, pid := range left {
		if now[id] != pid {
			r.t.Errorf("allocation %s does not run on: %v", id, now)
		}
	}
	if err := r.cluster.StartNode(name); err != nil {
		r.t.Fatal(err)
	}
	r.sized("lost", 3, left, 2)
	r.purge("lost")
}
