package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// theatre plays a cluster through time: jobs run as long as they say, or longer.
type theatre struct {
	s      *model.Snapshot
	policy Policy
	// really is how long jobs run.
	really map[string]time.Duration
	// decided is called with each plan.
	decided func(plan *model.Plan)
}

// play plays until nothing changes any more, and returns when each job started.
func (p *theatre) play(t rapid.TB) map[string]time.Time {
	started := map[string]time.Time{}
	for range 200 {
		plan, err := Decide(p.s, p.policy)
		if err != nil {
			t.Fatal(err)
		}
		p.decided(plan)
		for _, d := range plan.Decisions {
			if d.Action == model.ActionAdmit {
				j := p.job(d.Job)
				j.State, j.Members, j.Started = model.StateRunning, d.Members, p.s.Now
				started[d.Job] = p.s.Now
			}
		}
		next := time.Time{}
		for i := range p.s.Jobs {
			if j := &p.s.Jobs[i]; j.State == model.StateRunning {
				if ends := j.Started.Add(p.really[j.ID]); next.IsZero() || ends.Before(next) {
					next = ends
				}
			}
		}
		if next.IsZero() {
			return started
		}
		p.s.Now = next
		p.s.Jobs = slices.DeleteFunc(p.s.Jobs, func(j model.Job) bool {
			return j.State == model.StateRunning && !j.Started.Add(p.really[j.ID]).After(next)
		})
	}
	t.Fatal("it does not come to an end")
	return nil
}

func (p *theatre) job(id string) *model.Job {
	return &p.s.Jobs[slices.IndexFunc(p.s.Jobs, func(j model.Job) bool { return j.ID == id })]
}

// anyTheatre draws a cluster of racks, and jobs of which it is known how long they
// run.
func anyTheatre(t *rapid.T, policy Policy, wrong bool) *theatre {
	p := &theatre{s: &model.Snapshot{Now: testNow, Levels: []string{"rack"}}, policy: policy, really: map[string]time.Duration{}, decided: func(*model.Plan) {}}
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		n := model.Node{ID: fmt.Sprintf("n%d", i), Levels: map[string]string{"rack": rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "rack")}, Capacity: model.Resources{CPUMHz: 3000}}
		for g := range rapid.IntRange(1, 4).Draw(t, "gpus") {
			n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprintf("n%d.%d", i, g), Vendor: "nvidia", Type: "gpu", Model: "A", Island: g / 2, NUMA: -1})
		}
		p.s.Nodes = append(p.s.Nodes, n)
	}
	for i := range rapid.IntRange(1, 10).Draw(t, "jobs") {
		j := model.Job{ID: fmt.Sprintf("j%d", i), Type: "batch", State: model.StateQueued, Gang: model.GangJob, Submitted: testNow.Add(time.Duration(i-100) * time.Minute)}
		j.Topology = rapid.SampledFrom([]model.Topology{{}, {}, {Mode: "require", Level: "rack"}, {Mode: "require", Level: "node"}, {Mode: "require", Level: "island"}}).Draw(t, "topology")
		j.Duration = time.Duration(rapid.IntRange(1, 9).Draw(t, "hours")) * time.Hour
		for k := range rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "groups") {
			g := model.TaskGroup{Name: fmt.Sprintf("g%d", k), Count: rapid.IntRange(1, 4).Draw(t, "count"), Resources: model.Resources{CPUMHz: rapid.SampledFrom([]int{0, 0, 1000}).Draw(t, "mhz")}}
			g.Devices = []model.DeviceAsk{{Name: "gpu", Count: rapid.IntRange(1, 3).Draw(t, "ask")}}
			j.Groups = append(j.Groups, g)
		}
		p.really[j.ID] = j.Duration
		if wrong {
			p.really[j.ID] = time.Duration(rapid.IntRange(1, 20).Draw(t, "really")) * time.Hour
		}
		p.s.Jobs = append(p.s.Jobs, j)
	}
	return p
}

// With estimates that are right, the first that waits starts when it was first
// told, or before: nobody who passes it delays it.
func TestFirstIsNotDelayed(t *testing.T) {
	for name, policy := range map[string]Policy{"easy": easy, "conservative": conservative} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				p := anyTheatre(t, policy, false)
				told := map[string]time.Time{}
				p.decided = func(plan *model.Plan) {
					if faults := planFaults(p.s, plan); len(faults) > 0 {
						t.Fatal(faults)
					}
					for _, d := range plan.Decisions {
						if d.Action != model.ActionWait || d.Detail.Code == codeTooLarge {
							continue
						}
						if d.Detail.Start.IsZero() {
							t.Fatalf("%s does not know when it starts: %s; %s", d.Job, d.Reason, d.Detail.Basis)
						}
						if at, known := told[d.Job]; known && d.Detail.Start.After(at) {
							t.Fatalf("%s was to start at %s, and is to start at %s: %s", d.Job, at, d.Detail.Start, d.Reason)
						}
						told[d.Job] = d.Detail.Start
						return
					}
				}
				started := p.play(t)
				for id, at := range told {
					if began, any := started[id]; !any || began.After(at) {
						t.Fatalf("%s was to start at %s, and did at %s", id, at, began)
					}
				}
			})
		})
	}
}

// Whatever the estimates are worth, everybody starts who can.
func TestBackfillStarvesNobody(t *testing.T) {
	for name, policy := range map[string]Policy{"easy": easy, "conservative": conservative} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				p := anyTheatre(t, policy, true)
				never := map[string]bool{}
				p.decided = func(plan *model.Plan) {
					for _, d := range plan.Decisions {
						never[d.Job] = d.Detail.Code == codeTooLarge
					}
				}
				started := p.play(t)
				for id := range p.really {
					if _, any := started[id]; !any && !never[id] {
						t.Fatalf("%s never starts", id)
					}
				}
			})
		})
	}
}

// What a plan places delays nobody who has a reservation in it: once it runs,
// each of them can start at its time, in its order, as the others do.
func TestConservativeDelaysNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyTheatre(t, conservative, false)
		p.decided = func(plan *model.Plan) {
			c := &reservationCheck{t: t, theatre: p}
			c.check(plan)
		}
		p.play(t)
	})
}

// reservationCheck counts, GPU by GPU and hour by hour, what is given away.
type reservationCheck struct {
	t *rapid.T
	*theatre
}

// check looks whether each reservation has the GPUs that it needs, on the nodes
// said, while it runs. Levels are left to the other tests.
func (c *reservationCheck) check(plan *model.Plan) {
	use := map[string]map[time.Time]int{} // by node and hour: GPUs in use
	size := map[string]int{}
	for _, n := range c.s.Nodes {
		size[n.ID], use[n.ID] = len(n.GPUs), map[time.Time]int{}
	}
	charge := func(members []model.Member, from time.Time, until time.Time) {
		for _, m := range members {
			for at := from; at.Before(until); at = at.Add(time.Hour) {
				use[m.Node][at] += len(m.GPUs)
			}
		}
	}
	for i := range c.s.Jobs {
		if j := &c.s.Jobs[i]; j.State == model.StateRunning {
			charge(j.Members, c.s.Now, j.Started.Add(j.Duration))
		}
	}
	for _, d := range plan.Decisions {
		if d.Action == model.ActionAdmit {
			charge(d.Members, c.s.Now, c.s.Now.Add(c.job(d.Job).Duration))
		}
	}
	for _, d := range plan.Decisions {
		if d.Action != model.ActionWait || d.Detail.Start.IsZero() || len(d.Detail.Held) == 0 {
			continue
		}
		j := c.job(d.Job)
		for at := d.Detail.Start; at.Before(d.Detail.Start.Add(j.Duration)); at = at.Add(time.Hour) {
			free := 0
			for _, id := range d.Detail.Held {
				free += size[id] - use[id][at]
			}
			if free < d.Detail.WantedGPUs {
				c.t.Fatalf("%s is to start at %s on %v, where %d GPUs are free at %s: %s", d.Job, d.Detail.Start, d.Detail.Held, free, at, d.Reason)
			}
		}
	}
}
