package rewrite_test

import (
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

func ptr[T any](v T) *T { return &v }

// cluster has nodes n0…, each of 8 GPUs, two to a rack and four to a block.
func cluster(n int) *rewrite.Cluster {
	var nodes []rewrite.Node
	for i := range n {
		nodes = append(nodes, rewrite.Node{ID: nodeID(i), GPUs: 8, Meta: map[string]string{
			"rack": fmt.Sprintf("r%d", i/2), "block": fmt.Sprintf("b%d", i/4),
		}})
	}
	return rewrite.NewCluster(nodes, []string{"block", "rack"})
}

func nodeID(i int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(i)*2654435761, i) }

func gpus(node, from, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("GPU-%d-%d", node, from+i))
	}
	return out
}

func member(group string, index, node int, gpus []string) model.Member {
	return model.Member{Group: group, Index: index, Node: nodeID(node), GPUs: gpus}
}

func job(kind, gang string, groups ...*api.TaskGroup) *api.Job {
	return &api.Job{ID: ptr("train"), Type: &kind, TaskGroups: groups, Meta: map[string]string{"caravan_gang": gang},
		Constraints: []*api.Constraint{api.NewConstraint("${attr.cpu.arch}", "=", "amd64")}}
}

func group(name string, count int, gpus ...int) *api.TaskGroup {
	g := &api.TaskGroup{Name: &name, Count: &count, Constraints: []*api.Constraint{api.NewConstraint("${meta.x}", "!=", "y")}}
	for i, n := range gpus {
		g.Tasks = append(g.Tasks, &api.Task{Name: fmt.Sprintf("t%d", i), Driver: "raw_exec", Resources: &api.Resources{
			Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: ptr(uint64(n)), Constraints: []*api.Constraint{
				api.NewConstraint("${device.attr.memory}", ">=", "10 GiB")}}},
		}})
	}
	if len(gpus) == 0 {
		g.Tasks = []*api.Task{{Name: "t0", Driver: "raw_exec"}}
	}
	return g
}

// lines are a job's groups and constraints, for people and comparison.
func lines(j *api.Job) []string {
	show := func(c *api.Constraint) string {
		return strings.TrimSpace(c.LTarget + " " + c.Operand + " " + c.RTarget)
	}
	var out []string
	for _, c := range j.Constraints {
		out = append(out, "job: "+show(c))
	}
	for _, g := range j.TaskGroups {
		out = append(out, fmt.Sprintf("%s × %d", *g.Name, *g.Count))
		for _, c := range g.Constraints {
			out = append(out, "  "+show(c))
		}
		for _, t := range g.Tasks {
			if t.Resources == nil {
				continue
			}
			for _, d := range t.Resources.Devices {
				for _, c := range d.Constraints {
					out = append(out, "  "+t.Name+": "+show(c))
				}
			}
		}
	}
	return out
}
