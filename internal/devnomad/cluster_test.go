package devnomad_test

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
)

// start starts a cluster of alike nodes without devices.
func start(t *testing.T, opts devnomad.Options, names ...string) *devnomad.Cluster {
	t.Helper()
	spec := devcluster.Spec{DataDir: t.TempDir()}
	for _, n := range names {
		spec.Nodes = append(spec.Nodes, devcluster.Node{Name: n})
	}
	c, err := devnomad.StartWith(t.Context(), spec, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// eventually waits for a condition that the cluster comes to by itself.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func job(id, typ string, count int, command ...string) *api.Job {
	j := api.NewBatchJob(id, id, "global", 50)
	if typ == api.JobTypeService {
		j = api.NewServiceJob(id, id, "global", 50)
	}
	task := api.NewTask("main", "raw_exec").SetConfig("command", command[0]).SetConfig("args", command[1:])
	j.AddTaskGroup(api.NewTaskGroup("g", count).AddTask(task))
	return j
}

func TestJobRunsToItsEnd(t *testing.T) {
	c := start(t, devnomad.Options{}, "a", "b")
	client := c.Client()
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	resp, _, err := client.Jobs().Register(job("hello", api.JobTypeBatch, 3, "/bin/sh", "-c", "echo $NOMAD_ALLOC_INDEX"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.EvalID == "" || resp.JobModifyIndex == 0 {
		t.Errorf("register answered %+v; want an evaluation and an index", resp)
	}
	eventually(t, "three members complete", func() bool {
		allocs, _, err := client.Jobs().Allocations("hello", false, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, a := range allocs {
			if a.ClientStatus == api.AllocClientStatusComplete {
				n++
			}
		}
		return n == 3
	})
	eventually(t, "job dead", func() bool {
		j, _, err := client.Jobs().Info("hello", nil)
		return err == nil && *j.Status == "dead"
	})
}
