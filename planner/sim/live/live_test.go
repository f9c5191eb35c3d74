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
	jobs      []*api.JobListStub
	allocs    []*api.AllocationListStub
	submitted map[string]int64
	fail      string
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

func (f *fake) Submitted(_ context.Context, _, id string) (int64, error) {
	if f.fail == "versions" {
		return 0, errFake
	}
	return f.submitted[id], nil
}

var start = time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// alloc had so many GPUs from one second to another; to 0: it still has.
func alloc(job string, gpus, from, to int) *api.AllocationListStub {
	a := &api.AllocationListStub{
		Namespace: "ml", JobID: job, ClientStatus: api.AllocClientStatusComplete,
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
		jobs: []*api.JobListStub{queued, job("lost", "batch", "dead"), job("now", "service", "running"), job("mig", "batch", "dead"), job("dns", "system", "running"), job("cpu", "batch", "dead"), job("flash", "batch", "dead")},
		allocs: []*api.AllocationListStub{
			// Two members, which gave way and came back elsewhere for 50 s.
			alloc("gang", 8, 100, 200), alloc("gang", 8, 110, 200), alloc("gang", 8, 300, 350), alloc("gang", 8, 300, 350),
			lost, alloc("now", 4, 10, 0), mig, alloc("flash", 1, 40, 40),
		},
		submitted: map[string]int64{"gang": at(20).UnixNano(), "lost": at(999).UnixNano()}, // rewritten since
	}
	got, rep, err := Import(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	want := []trace.Job{
		{ID: "ml/gang", Queue: "org/team", Submit: 0, GPUs: 16, Duration: 150},
		{ID: "ml/lost", Queue: "ml", Submit: 10, GPUs: 1, Duration: 100},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	wantLeft := map[string]int{"it has had no whole GPU, or Nomad has forgotten its allocations": 2, "it has not ended": 1, "it ran for no time": 1}
	if diff := cmp.Diff(wantLeft, rep.Left); diff != "" || rep.Rows != 6 || rep.Jobs != 2 {
		t.Errorf("%d rows, %d jobs, left out (-want +got):\n%s", rep.Rows, rep.Jobs, diff)
	}
	for _, what := range []string{"jobs", "allocations", "versions"} {
		f.fail = what
		if _, _, err := Import(t.Context(), f); !errors.Is(err, errFake) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s fail: %v", what, err)
		}
	}
}
