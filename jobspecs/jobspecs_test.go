package jobspecs

import (
	"io/fs"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/caravan-sched/caravan/internal/jobhcl"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
)

// devClusterGPUs are those of the development cluster that every example is
// to fit: three nodes with eight each.
const devClusterGPUs = 24

// asked is what an example asks for.
type asked struct {
	Gang     model.Gang
	Queue    string
	Topology model.Topology
	Members  int
	GPUs     int
}

func TestExamples(t *testing.T) {
	prefer := model.Topology{Mode: model.TopologyPrefer}
	want := map[string]asked{
		"block-preferred.hcl":   {model.GangJob, "default", model.Topology{Mode: model.TopologyPrefer, Level: "block"}, 3, 12},
		"deadline.hcl":          {model.GangNone, "research/forecast", prefer, 1, 2},
		"elastic.hcl":           {model.GangJob, "default", prefer, 2, 16},
		"inference.hcl":         {model.GangNone, "default", prefer, 3, 6},
		"island-4gpu.hcl":       {model.GangNone, "default", model.Topology{Mode: model.TopologyRequire, Level: "island"}, 1, 4},
		"join-prestart.hcl":     {model.GangJob, "default", prefer, 2, 16},
		"log-shipper.hcl":       {model.GangJob, "default", prefer, 2, 8},
		"mpi.hcl":               {model.GangJob, "default", model.Topology{Mode: model.TopologyPrefer, Level: "node"}, 5, 8},
		"notebook.hcl":          {model.GangNone, "interactive/ada", prefer, 1, 1},
		"parameter-server.hcl":  {model.GangJob, "default", model.Topology{Mode: model.TopologyPrefer, Level: "rack"}, 7, 8},
		"rack-required.hcl":     {model.GangJob, "default", model.Topology{Mode: model.TopologyRequire, Level: "rack"}, 2, 16},
		"single-gpu.hcl":        {model.GangNone, "default", prefer, 1, 1},
		"sweep.hcl":             {model.GangNone, "default", prefer, 6, 6},
		"torchrun.hcl":          {model.GangJob, "default", model.Topology{Mode: model.TopologyPrefer, Level: "rack"}, 2, 16},
		"train-driver.hcl":      {model.GangJob, "default", model.Topology{Mode: model.TopologyPrefer, Level: "rack"}, 2, 16},
		"train-gang.hcl":        {model.GangJob, "default", prefer, 2, 16},
		"trainer-evaluator.hcl": {model.GangJob, "default", prefer, 3, 20},
	}
	got := map[string]asked{}
	names, err := fs.Glob(Files, "*.hcl")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		src, err := fs.ReadFile(Files, name)
		if err != nil {
			t.Fatal(err)
		}
		job, err := jobhcl.Parse(src, name, nil)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if !gangspec.Managed(job, gangspec.DefaultDevices) {
			t.Errorf("%s: not managed", name)
		}
		spec, err := gangspec.Parse(job)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		a := asked{Gang: spec.Gang, Queue: spec.Queue, Topology: spec.Topology}
		for _, g := range gangspec.ToModel(job, spec).Groups {
			a.Members += g.Count
			for _, d := range g.Devices {
				a.GPUs += g.Count * d.Count
			}
		}
		if a.GPUs > devClusterGPUs {
			t.Errorf("%s: asks for %d GPUs, the development cluster has %d", name, a.GPUs, devClusterGPUs)
		}
		got[name] = a
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("examples (-want +got):\n%s", diff)
	}
}

func TestElasticAndDeadline(t *testing.T) {
	spec := func(name string) gangspec.Spec {
		src, err := Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		job, err := jobhcl.Parse(src, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := gangspec.Parse(job)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if diff := cmp.Diff([]gangspec.Bounds{{Group: "trainer", Count: 2, Min: 1, Max: 3}}, spec("elastic.hcl").Groups); diff != "" {
		t.Errorf("elastic (-want +got):\n%s", diff)
	}
	want := gangspec.Spec{Duration: 90 * time.Minute, DeadlineAfter: 8 * time.Hour, Preempt: gangspec.PreemptCheckpoint, Move: gangspec.MoveAllow, Collective: model.CollectiveRing, Checkpoint: 15 * time.Minute,
		OnFailure: gangspec.FailureRestart, OnResize: gangspec.ResizeNotify, Share: gangspec.ShareNever}
	if diff := cmp.Diff(want, spec("deadline.hcl"), cmpopts.IgnoreFields(gangspec.Spec{}, "Gang", "Queue", "Topology", "Groups")); diff != "" {
		t.Errorf("deadline (-want +got):\n%s", diff)
	}
}
