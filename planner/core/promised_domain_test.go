package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// domainCourse is a course of gangs whose members take whole nodes, on racks of two nodes
// and blocks of four: most have to be in one rack, block or node, and with free some need
// not.
func domainCourse(t *testing.T, seed uint64, free bool) *course {
	rng := rand.New(rand.NewPCG(seed, 2))
	c := &course{t: t, policy: withOrder(queue.OrderDeadline), promised: map[string]time.Time{}, s: &model.Snapshot{Now: testNow, Levels: []string{"block", "rack"}}}
	for i := range 3 + rng.IntN(5) {
		n := model.Node{ID: fmt.Sprint("n", i), Levels: map[string]string{"block": fmt.Sprint("b", i/4), "rack": fmt.Sprint("r", i/2)}}
		for g := range 4 {
			n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprint(i, ".", g), Vendor: "nvidia", Type: "gpu", Model: "A", Island: g / 2})
		}
		c.s.Nodes = append(c.s.Nodes, n)
	}
	kinds := []model.Topology{{Mode: "require", Level: "rack"}, {Mode: "require", Level: "block"}, {Mode: "require", Level: "node"}}
	if free {
		kinds = append(kinds, model.Topology{})
	}
	for i := range 6 + rng.IntN(12) {
		count := 1 + rng.IntN(3)
		j := model.Job{ID: fmt.Sprint("j", i), Type: "batch", State: model.StateQueued, Gang: model.GangJob, Submitted: testNow.Add(time.Duration(rng.IntN(24)) * lifeStep),
			Duration: time.Duration(1+rng.IntN(20)) * lifeStep, Topology: kinds[rng.IntN(len(kinds))]}
		switch j.Topology.Level {
		case "rack":
			count = min(count, 2)
		case "node":
			count = 1
		}
		j.Groups = []model.TaskGroup{{Name: "g", Count: count, Devices: []model.DeviceAsk{{Name: "gpu", Count: 4}}}}
		if rng.IntN(3) > 0 {
			j.Deadline = j.Submitted.Add(j.Duration + time.Duration(rng.IntN(40))*lifeStep)
		}
		c.coming = append(c.coming, j)
	}
	slices.SortStableFunc(c.coming, func(a, b model.Job) int { return a.Submitted.Compare(b.Submitted) })
	return c
}

// Gangs that have to be in one domain are promised their deadlines in one that is chosen
// once, and are placed there: no promise is broken since another one is counted, or since
// somebody is placed in the way.
func TestDeadlinesArePromisedInDomains(t *testing.T) {
	tests := map[string]func(p *Policy){
		"nobody gives way":                   func(p *Policy) { p.Preempt.Enabled = false },
		"others give way":                    func(*Policy) {},
		"nobody gives way, with backfill":    func(p *Policy) { p.Preempt.Enabled, p.Backfill = false, conservative.Backfill },
		"others give way, with backfill":     func(p *Policy) { p.Backfill = conservative.Backfill },
		"nobody gives way, by default order": func(p *Policy) { p.Preempt.Enabled, p.Order = false, queue.OrderCaravan },
	}
	for name, set := range tests {
		t.Run(name, func(t *testing.T) {
			promised, deadlines := 0, 0
			for seed := range uint64(seedsOfDomains) {
				c := domainCourse(t, seed, seed%2 == 0)
				set(&c.policy)
				for i := range c.coming {
					if !c.coming[i].Deadline.IsZero() {
						deadlines++
					}
				}
				c.run()
				for _, fault := range slices.Concat(c.late, c.broken) {
					t.Errorf("seed %d: %s", seed, fault)
				}
				promised += len(c.promised)
			}
			t.Logf("%d of %d deadlines promised", promised, deadlines)
			if promised < deadlines/2 || promised == deadlines {
				t.Errorf("%d of %d deadlines promised, want most but not all", promised, deadlines)
			}
		})
	}
}

// seedsOfDomains is how many courses are played in each way.
const seedsOfDomains = 60
