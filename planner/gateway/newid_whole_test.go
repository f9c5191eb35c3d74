package gateway_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// TestClientBackUnderANewID: a client that has lost its data comes back under
// another ID, with the same GPUs, while a task of the old one may run on. The
// gang is placed again elsewhere, and nothing on those GPUs before the old ID is
// purged. On the stand-in's own clock e2e/random plays the same.
func TestClientBackUnderANewID(t *testing.T) {
	dir := t.TempDir()
	onStacks(t, func(s *stack) {
		if s.cluster.Backend() != devcluster.BackendNomad {
			s.Skip("the stand-in's nodes keep their IDs")
		}
		run := func(id string, count int) {
			job := api.NewServiceJob(id, id, "global", 50)
			job.Datacenters = []string{"*"}
			job.SetMeta("caravan_gang", "job")
			task := api.NewTask("main", "raw_exec").SetConfig("command", "/bin/sleep").SetConfig("args", []string{"100000"})
			task.Resources = &api.Resources{CPU: new(50), MemoryMB: new(32), Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: new(uint64(8))}}}
			job.AddTaskGroup(api.NewTaskGroup("g", count).AddTask(task))
			if _, _, err := s.user.Jobs().Register(job, nil); err != nil {
				s.Fatal(err)
			}
		}
		run("train", 2)
		before := s.members("train", 2)
		old, name := before[0].NodeID, before[0].NodeName
		if err := s.cluster.StopNode(name); err != nil {
			s.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "node-"+name, "data", "client")); err != nil {
			s.Fatal(err)
		}
		if err := s.cluster.StartNode(name); err != nil {
			s.Fatal(err)
		}
		again := ""
		s.until("the client has a new ID", func() error {
			nodes, _, err := s.nomad.Nodes().List(nil)
			for _, n := range nodes {
				if n.Name == name && n.ID != old && n.Status == api.NodeStatusReady {
					again = n.ID
				}
			}
			if err == nil && again == "" {
				err = fmt.Errorf("%d nodes", len(nodes))
			}
			return err
		})
		s.until("the old ID is down", func() error {
			n, _, err := s.nomad.Nodes().Info(old, nil)
			if err == nil && n.Status != api.NodeStatusDown {
				err = fmt.Errorf("it is %s", n.Status)
			}
			return err
		})
		s.until("the gang runs on the other nodes", func() error {
			for _, a := range s.members("train", 2) {
				if a.NodeID == old || a.NodeID == again || a.ID == before[0].ID || a.ID == before[1].ID {
					return fmt.Errorf("%s is on %s", a.Name, a.NodeID)
				}
			}
			return nil
		})
		run("next", 1)
		s.until("the next job waits with a reason", func() error {
			_, text := s.get(httpapi.Prefix + "/explain/default/next")
			if !strings.Contains(text, `"queued"`) || !strings.Contains(text, "reason") {
				return fmt.Errorf("%s", text)
			}
			return nil
		})
		if all, _, err := s.nomad.Jobs().Allocations("next", true, nil); err != nil || len(all) != 0 {
			s.Errorf("%d allocations of the next job, %v; want none on GPUs that may be in use", len(all), err)
		}
		if _, _, err := s.nomad.Nodes().Purge(old, nil); err != nil {
			s.Fatal(err)
		}
		if got := s.members("next", 1)[0]; got.NodeID != again {
			s.Errorf("the next job is on %s, want the machine's new ID %s", got.NodeID, again)
		}
	}, func(spec *devcluster.Spec) { spec.DataDir = dir })
}
