package live

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// fake is a Nomad that answers what it is told, or fails.
type fake struct {
	jobs     []*api.JobListStub
	allocs   []*api.AllocationListStub
	versions map[string][]int64
	fail     string
}

var errFake = errors.New("no leader")

func (f *fake) Jobs(context.Context) ([]*api.JobListStub, error) {
	if f.fail == "jobs" {
		return nil, errFake
	}
	return f.jobs, nil
}

func (f *fake) Allocations(context.Context) ([]*api.AllocationListStub, error) {
	if f.fail == "allocations" {
		return nil, errFake
	}
	return f.allocs, nil
}

func (f *fake) Versions(_ context.Context, _, id string) ([]int64, error) {
	if f.fail == "versions" {
		return nil, errFake
	}
	return f.versions[id], nil
}

var start = time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// alloc had so many GPUs from one second to another; to 0: it still has.
func alloc(job string, gpus, from, to int) *api.AllocationListStub {
	a := &api.AllocationListStub{
		Namespace: "ml", JobID: job, ClientStatus: api.AllocClientStatusComplete, DesiredStatus: api.AllocDesiredStatusStop, CreateTime: at(from - 2).UnixNano(),
		TaskStates:         map[string]*api.TaskState{"t": {StartedAt: at(from)}},
		AllocatedResources: &api.AllocatedResources{Tasks: map[string]*api.AllocatedTaskResources{"t": {Devices: []*api.AllocatedDeviceResource{{Type: "gpu", DeviceIDs: make([]string, gpus)}}}}},
	}
	if to > 0 {
		a.TaskStates["t"].FinishedAt = at(to)
	} else {
		a.ClientStatus = api.AllocClientStatusRunning
	}
	return a
}

// well is an alloc that ended by itself.
func well(job string, gpus, from, to int) *api.AllocationListStub {
	a := alloc(job, gpus, from, to)
	a.DesiredStatus = api.AllocDesiredStatusRun
	return a
}

// restarted is one whose task was started again at its last from, with what is left of
// its events.
func restarted(job string, created, from, to int, events ...*api.TaskEvent) *api.AllocationListStub {
	a := well(job, 1, from, to)
	a.CreateTime = at(created).UnixNano()
	a.TaskStates["t"].Restarts, a.TaskStates["t"].Events = 1, events
	return a
}

func event(kind string, seconds int) *api.TaskEvent {
	return &api.TaskEvent{Type: kind, Time: at(seconds).UnixNano()}
}

func job(id, kind, status string) *api.JobListStub {
	return &api.JobListStub{ID: id, Namespace: "ml", Type: kind, Status: status}
}

func TestImport(t *testing.T) {
	lost := alloc("lost", 1, 30, 0)
	lost.ClientStatus, lost.ModifyTime = api.AllocClientStatusLost, at(130).UnixNano()
	mig := alloc("mig", 1, 10, 20)
	mig.AllocatedResources.Tasks["t"].Devices[0].Type = "mig-1g.10gb"
	queued := job("gang", "batch", "dead")
	queued.Meta = map[string]string{"caravan_queue": "org/team"}
	f := &fake{
		jobs: []*api.JobListStub{queued, job("lost", "batch", "dead"), job("now", "service", "running"), job("mig", "batch", "dead"), job("dns", "system", "running"), job("cpu", "batch", "dead"), job("flash", "batch", "dead"), job("restarts", "batch", "dead"), job("many", "batch", "dead"), job("again", "batch", "dead"), job("retried", "batch", "dead")},
		allocs: []*api.AllocationListStub{
			// Two members, which gave way and came back elsewhere for 50 s.
			alloc("gang", 8, 100, 200), alloc("gang", 8, 110, 200), alloc("gang", 8, 300, 350), alloc("gang", 8, 300, 350),
			lost, alloc("now", 4, 10, 0), mig, alloc("flash", 1, 40, 40),
			restarted("restarts", 40, 60, 70, event(api.TaskReceived, 40), event(api.TaskSetup, 41), event(api.TaskStarted, 42), event(api.TaskTerminated, 55), event(api.TaskStarted, 60)),
			restarted("many", 40, 60, 70, event(api.TaskTerminated, 55), event(api.TaskStarted, 60)),
			// Run by hand three times; the second time gave way once.
			well("again", 2, 500, 510), alloc("again", 4, 540, 550), well("again", 4, 570, 580), well("again", 1, 600, 620),
			well("retried", 1, 700, 710), well("retried", 1, 720, 730),
			well("purged", 1, 10, 20),
		},
		versions: map[string][]int64{
			"gang": {at(20).UnixNano(), at(290).UnixNano()}, "lost": {at(999).UnixNano()}, // rewritten since
			"again": {at(490).UnixNano(), at(530).UnixNano(), at(560).UnixNano(), at(590).UnixNano()}, "retried": {at(700).UnixNano()},
		},
	}
	got, rep, err := Import(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	want := []trace.Job{
		{ID: "ml/gang", Queue: "org/team", Submit: 0, GPUs: 16, Duration: 150},
		{ID: "ml/lost", Queue: "ml", Submit: 10, GPUs: 1, Duration: 100},
		{ID: "ml/many", Queue: "ml", Submit: 20, GPUs: 1, Duration: 30},
		{ID: "ml/restarts", Queue: "ml", Submit: 22, GPUs: 1, Duration: 28},
		{ID: "ml/again", Queue: "ml", Submit: 470, GPUs: 2, Duration: 10},
		{ID: "ml/again#2", Queue: "ml", Submit: 510, GPUs: 4, Duration: 20},
		{ID: "ml/again#3", Queue: "ml", Submit: 570, GPUs: 1, Duration: 20},
		{ID: "ml/retried", Queue: "ml", Submit: 680, GPUs: 1, Duration: 20},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	wantLeft := map[string]int{"it has had no whole GPU, or Nomad has forgotten its allocations": 2, "it has not ended": 1, "it ran for no time": 1, "it was purged: Nomad knows no more than its allocations": 1}
	if diff := cmp.Diff(wantLeft, rep.Left); diff != "" || rep.Rows != 13 || rep.Jobs != 8 {
		t.Errorf("%d rows, %d jobs, left out (-want +got):\n%s", rep.Rows, rep.Jobs, diff)
	}
	for _, what := range []string{"jobs", "allocations", "versions"} {
		f.fail = what
		if _, _, err := Import(t.Context(), f); !errors.Is(err, errFake) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s fail: %v", what, err)
		}
	}
}
