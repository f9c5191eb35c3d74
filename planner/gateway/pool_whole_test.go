package gateway_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
)

// TestPoolsAndNamespaces: gangs of one name in two namespaces, each in a node
// pool of its own, one of which no other job may use.
func TestPoolsAndNamespaces(t *testing.T) {
	onStacks(t, func(s *stack) {
		if _, err := s.user.Namespaces().Register(&api.Namespace{Name: "ml"}, nil); err != nil {
			s.Fatal(err)
		}
		nodes, _, err := s.nomad.Nodes().List(nil)
		if err != nil {
			s.Fatal(err)
		}
		pools := map[string]string{}
		for _, n := range nodes {
			pools[n.ID] = n.NodePool
		}
		submit := func(namespace, pool string, count int) {
			job := api.NewBatchJob("train", "train", "global", 50)
			job.Namespace, job.NodePool, job.Datacenters = &namespace, &pool, []string{"*"}
			job.SetMeta("caravan_gang", "job")
			task := api.NewTask("main", "raw_exec").SetConfig("command", "/bin/sleep").SetConfig("args", []string{"100000"})
			task.Resources = &api.Resources{CPU: new(50), MemoryMB: new(32), Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: new(uint64(8))}}}
			job.AddTaskGroup(api.NewTaskGroup("g", count).AddTask(task))
			if _, _, err := s.user.Jobs().Register(job, &api.WriteOptions{Namespace: namespace}); err != nil {
				s.Fatal(err)
			}
		}
		where := func(namespace string, count int) (out []string) {
			s.until("the gang in "+namespace+" runs", func() error {
				all, _, err := s.nomad.Jobs().Allocations("train", false, &api.QueryOptions{Namespace: namespace})
				if err != nil {
					return err
				}
				out = nil
				for _, a := range all {
					if a.DesiredStatus == api.AllocDesiredStatusRun && a.ClientStatus == api.AllocClientStatusRunning {
						out = append(out, pools[a.NodeID])
					}
				}
				if len(out) != count {
					return fmt.Errorf("%d members run, want %d", len(out), count)
				}
				return nil
			})
			return out
		}
		submit("default", "default", 2)
		submit("ml", "spare", 1)
		if got := where("default", 2); !slices.Equal(got, []string{"default", "default"}) {
			s.Errorf("members in the pools %v, want default", got)
		}
		if got := where("ml", 1); !slices.Equal(got, []string{"spare"}) {
			s.Errorf("members in the pools %v, want spare", got)
		}
		// Each is stopped by itself, and "all" means every pool.
		if _, _, err := s.user.Jobs().Deregister("train", true, &api.WriteOptions{Namespace: "ml"}); err != nil {
			s.Fatal(err)
		}
		where("ml", 0)
		where("default", 2)
		submit("ml", "all", 1)
		if got := where("ml", 1); !slices.Equal(got, []string{"spare"}) {
			s.Errorf("members in the pools %v, want the one that is free", got)
		}
	}, func(spec *devcluster.Spec) { spec.Nodes[2].Pool = "spare" })
}
