package optimality

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// now is the time in all clusters drawn.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	mostNodes   = 6
	mostRunning = 6
	// priority is that of the gang that waits.
	priority = 50
)

// drawer draws small clusters.
type drawer struct{ *rand.Rand }

func newDrawer(seed, i uint64) drawer { return drawer{rand.New(rand.NewPCG(seed, i))} }

func pick[T any](d drawer, of ...T) T { return of[d.IntN(len(of))] }

// cluster draws nodes in blocks and racks, and gives most of their GPUs to jobs
// that run and to others that nobody manages.
func (d drawer) cluster() *model.Snapshot {
	s := &model.Snapshot{Now: now, Levels: []string{"block", "rack"}}
	running := d.IntN(mostRunning + 1)
	for i := range running {
		started := now.Add(-time.Duration(1+d.IntN(300)) * time.Minute)
		s.Jobs = append(s.Jobs, model.Job{
			ID: fmt.Sprint("r", i), Type: "batch", State: model.StateRunning, Gang: pick(d, model.GangJob, model.GangJob, model.GangNone),
			Priority: pick(d, 10, 20, 30, 60), Submitted: started, Started: started, Preempt: pick(d, "", "", "", model.PreemptAlways, model.PreemptNever),
			Groups: []model.TaskGroup{{Name: "g"}},
		})
	}
	busy := pick(d, 0.2, 0.5, 0.8, 1)
	for i := range 1 + d.IntN(mostNodes) {
		n := model.Node{ID: fmt.Sprint("n", i), Levels: map[string]string{}, Capacity: model.Resources{CPUMHz: pick(d, 2000, 4000, 8000), MemoryMiB: 64000, DiskMiB: 64000}}
		if v := pick(d, "", "b1", "b2"); v != "" {
			n.Levels["block"] = v
		}
		if v := pick(d, "", "r1", "r2"); v != "" {
			n.Levels["rack"] = v
		}
		if d.IntN(12) == 0 {
			n.Unschedulable = "draining"
		}
		islands, size := pick(d, 1, 2, 2), pick(d, 2, 2, 4)
		for g := range islands * size {
			gpu := model.GPU{UUID: fmt.Sprintf("n%d.%d", i, g), Vendor: "nvidia", Type: "gpu", Model: "A", Island: g / size, NUMA: -1}
			if d.IntN(25) == 0 {
				gpu.Unhealthy = "lost"
			}
			n.GPUs = append(n.GPUs, gpu)
		}
		d.fill(s, &n, running, busy)
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// fill gives GPUs of a node away.
func (d drawer) fill(s *model.Snapshot, n *model.Node, running int, busy float64) {
	for g := 0; g < len(n.GPUs); {
		size := min(pick(d, 1, 1, 2, 4), len(n.GPUs)-g)
		if d.Float64() < busy {
			a := model.Alloc{ID: fmt.Sprintf("a-%s-%d", n.ID, g), Node: n.ID}
			for _, gpu := range n.GPUs[g : g+size] {
				a.GPUs = append(a.GPUs, gpu.UUID)
			}
			if running > 0 && d.IntN(5) > 0 {
				j := &s.Jobs[d.IntN(running)]
				group := &j.Groups[0]
				a.Job, a.Group, a.Index = j.ID, group.Name, group.Count
				j.Members = append(j.Members, model.Member{Group: group.Name, Index: group.Count, Rank: group.Count, Node: n.ID, GPUs: a.GPUs})
				group.Count++
			}
			s.Allocs = append(s.Allocs, a)
		}
		g += size
	}
}

// gang draws a gang that waits, of one or two groups.
func (d drawer) gang() model.Job {
	j := model.Job{ID: "gang", Type: "batch", State: model.StateQueued, Gang: model.GangJob, Submitted: now.Add(-time.Minute), Priority: priority}
	j.Topology = pick(d, model.Topology{}, model.Topology{}, require("rack"), require("block"), require(model.LevelNode), require(model.LevelIsland),
		model.Topology{Mode: model.TopologyPrefer, Level: "rack"}, model.Topology{Mode: model.TopologyPrefer, Level: model.LevelNode})
	if d.IntN(8) == 0 {
		j.Constraints = []model.Constraint{{Operand: "distinct_hosts"}}
	}
	groups := pick(d, 1, 1, 1, 2, 3)
	for i := range groups {
		j.Groups = append(j.Groups, model.TaskGroup{
			Name: fmt.Sprint("g", i), Count: 1 + d.IntN(5-groups), Resources: model.Resources{CPUMHz: pick(d, 0, 0, 500, 1500)},
			Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: pick(d, 1, 1, 2, 2, 3, 4)}},
		})
	}
	return j
}

func require(level string) model.Topology {
	return model.Topology{Mode: model.TopologyRequire, Level: level}
}
