package target_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad-autoscaler/sdk"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/nomadproc"
	"github.com/caravan-sched/caravan/planner/burstapi"
)

func count(n int64) func(*sdk.TargetStatus) bool {
	return func(s *sdk.TargetStatus) bool { return s.Ready && s.Count == n }
}

// A purchase comes, counts when its devices are there, and goes node by node.
func TestLife(t *testing.T) {
	t.Parallel()
	backends := map[string]string{devcluster.BackendDevNomad: ""}
	if nomad, found := nomadproc.Find(); found {
		backends[devcluster.BackendNomad] = nomad
	}
	for name, nomad := range backends {
		t.Run(name, func(t *testing.T) { testLife(t, nomad) })
	}
}

func testLife(t *testing.T, nomad string) {
	r := newRig(t, rigOptions{nomad: nomad})
	l := r.start()
	if s := r.status(l); !s.Ready || s.Count != 0 {
		t.Errorf("status of an empty pool is %+v", s)
	}
	r.planner.want([]burstapi.Purchase{purchase("p1", "p1-0", "p1-1")})
	r.loop(l, func(s *sdk.TargetStatus) bool {
		return count(2)(s) && slices.Contains(r.planner.told(), "present p1")
	})
	if got, want := r.nodes(), []string{"p1-0", "p1-1"}; !cmp.Equal(got, want) {
		t.Errorf("nodes are %v, want %v", got, want)
	}
	r.planner.want([]burstapi.Purchase{purchase("p1", "p1-0", "p1-1")}, "p1-0")
	r.loop(l, func(s *sdk.TargetStatus) bool {
		return count(1)(s) && len(r.nodes()) == 1 && len(r.processes()) > 0 && len(r.state()) == 1
	})
	if got, want := r.nodes(), []string{"p1-1"}; !cmp.Equal(got, want) {
		t.Errorf("after one was given back nodes are %v, want %v", got, want)
	}
	r.planner.want([]burstapi.Purchase{purchase("p1", "p1-1")}, "p1-1") // p1-0 is gone, as the planner was told
	r.loop(l, func(s *sdk.TargetStatus) bool { return count(0)(s) && len(r.state()) == 0 })
	r.nothingLeft()
	want := []string{"ordered p1", "present p1", "gone p1", "gone p1"}
	if got := r.planner.told(); !cmp.Equal(got, want) {
		t.Errorf("the planner was told %q, want %q", got, want)
	}
	if strings.Contains(l.log.String(), "planner-secret-token") {
		t.Error("the log holds the planner's token")
	}
}

// runOn starts a job on the node with a key, and waits until it runs.
func (r *rig) runOn(id, key string) {
	r.t.Helper()
	task := api.NewTask("sleep", "raw_exec").SetConfig("command", "/bin/sleep").SetConfig("args", []string{"300"})
	group := api.NewTaskGroup("group", 1).AddTask(task).Constrain(api.NewConstraint("${meta.caravan_node}", "=", key))
	job := api.NewBatchJob(id, id, "global", 50).AddDatacenter("dc1").AddTaskGroup(group)
	if _, _, err := r.cluster.Client().Jobs().Register(job, nil); err != nil {
		r.t.Fatal(err)
	}
	for end := time.Now().Add(90 * time.Second); r.runs(id) != "running"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("job %s does not run", id)
		}
	}
}

// runs is how the job's latest allocation is.
func (r *rig) runs(id string) string {
	r.t.Helper()
	all, _, err := r.cluster.Client().Jobs().Allocations(id, true, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	status := ""
	for _, a := range all {
		status = a.ClientStatus
	}
	return status
}

// A node that is given back while something runs there is drained, and goes only when
// that has ended; what runs elsewhere goes on.
func TestGiveBackDrainsFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.policy[sdk.TargetConfigKeyDrainDeadline] = "3s"
	l := r.start()
	r.planner.want([]burstapi.Purchase{purchase("p1", "a", "b")})
	r.loop(l, count(2))
	r.runOn("on-a", "a")
	r.runOn("on-b", "b")
	r.planner.want([]burstapi.Purchase{purchase("p1", "a", "b")}, "a")
	if err := l.Scale(scale(1, sdk.ScaleDirectionDown), r.policy); err != nil {
		t.Fatal(err)
	}
	if got := r.state(); len(got) != 2 || r.runs("on-a") != "running" {
		t.Errorf("nodes are %v and the job is %s right after the drain began, want a to be there until it has ended", got, r.runs("on-a"))
	}
	r.loop(l, func(s *sdk.TargetStatus) bool { return count(1)(s) && len(r.state()) == 1 })
	if r.runs("on-a") == "running" || r.runs("on-b") != "running" {
		t.Errorf("the job on a is %s, the one on b %s; want only b's to run", r.runs("on-a"), r.runs("on-b"))
	}
	r.planner.want(nil) // b runs something: the planner has to say so
	if err := l.Scale(scale(0, sdk.ScaleDirectionDown), r.policy); err == nil || !strings.Contains(err.Error(), "default/on-b runs there") {
		t.Errorf("taking b away unasked: %v, want it to stay", err)
	}
	r.planner.want([]burstapi.Purchase{purchase("p1", "b")}, "b")
	r.loop(l, func(s *sdk.TargetStatus) bool { return count(0)(s) && len(r.state()) == 0 })
	r.nothingLeft()
}
