package core

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/mig"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// partJobs is a cluster of GPUs that are divided as is needed, on which jobs of one
// kind come all the time.
type partJobs struct {
	*traffic
	came int
	// kind draws what the next one asks for.
	kind func() (what string, long, says time.Duration)
	// divided counts how often GPUs were divided or made whole.
	divided int
}

func newPartJobs(cluster *model.Snapshot) *partJobs {
	p := &partJobs{traffic: newTraffic(cluster, 5*time.Minute)}
	p.come, p.decided, p.carried = p.fill, p.sound, p.divide
	return p
}

// gang is a job of members that ask for whole GPUs or an instance each.
func (p *partJobs) gang(id, what string, count int, says time.Duration) model.Job {
	ask := model.DeviceAsk{Name: "nvidia/gpu/" + testGPU, Count: 1}
	if n := 0; strings.Contains(what, "g.") {
		ask.Name += mig.Mark + what
	} else if _, err := fmt.Sscan(what, &n); err == nil {
		ask.Count = n
	}
	return model.Job{ID: id, Duration: says, Groups: []model.TaskGroup{{Name: "g", Count: count, Devices: []model.DeviceAsk{ask}}}}
}

// fill submits so many that somebody always waits.
func (p *partJobs) fill() {
	for n := p.waiting(); n < 8; n++ {
		what, long, says := p.kind()
		p.came++
		p.submit(p.gang(fmt.Sprintf("new-%d", p.came), what, 1, says), long)
	}
}

// sound: a plan gives and keeps nothing twice, in whatever order the snapshot is.
func (p *partJobs) sound(t *rapid.T, policy Policy, plan *model.Plan) {
	s := p.s
	for _, fault := range slices.Concat(planFaults(s, plan), divisionFaults(s, plan), toldFaults(s, plan), keptFaults(s, plan)) {
		t.Error(fault)
	}
	if p.came%4 == 0 {
		other := *s
		other.Nodes, other.Jobs = slices.Clone(s.Nodes), slices.Clone(s.Jobs)
		slices.Reverse(other.Nodes)
		slices.Reverse(other.Jobs)
		if again := mustDecide(t, &other, policy); !reflect.DeepEqual(plan, again) {
			t.Errorf("plans (-in order +in reverse):\n%s", cmp.Diff(plan, again))
		}
	}
}

// divide divides GPUs as the plan says.
func (p *partJobs) divide(plan *model.Plan) {
	p.s.Nodes = slices.Clone(p.s.Nodes)
	for _, r := range plan.Repartitions {
		p.divided++
		n := &p.s.Nodes[slices.IndexFunc(p.s.Nodes, func(n model.Node) bool { return n.ID == r.Node })]
		n.GPUs = dividedAs(n.GPUs, r, p.divided)
		n.Divisions = slices.DeleteFunc(slices.Clone(n.Divisions), func(v model.Division) bool { return v.GPU == r.GPU })
		n.Divisions = append(n.Divisions, model.Division{GPU: r.GPU, Profiles: r.To, At: p.s.Now, State: model.DivisionDone})
	}
}

// Whoever waits for instances starts, however many younger jobs of whole GPUs wait all
// the time, and who waits for whole ones beside those of instances: under the orders
// that promise it. No GPU is given or kept twice meanwhile.
func TestNobodyStarvesForParts(t *testing.T) {
	divided := 0
	rapid.Check(t, func(t *rapid.T) {
		policy := Policy{Order: rapid.SampledFrom([]string{queue.OrderFIFO, queue.OrderBackfill, queue.OrderBackfill, queue.OrderCaravan}).Draw(t, "order")}
		if policy.Order == queue.OrderBackfill && rapid.Bool().Draw(t, "conservative") {
			policy.Backfill.Mode = queue.BackfillConservative
		}
		policy.Caravan.Patience = 0.5
		others, watched := []string{"1", "1", "2"}, []string{"1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"}
		if rapid.Bool().Draw(t, "the other way round") {
			others, watched = watched, others
		}
		known := rapid.IntRange(0, 2).Draw(t, "known")
		says := func(long time.Duration) time.Duration {
			if known == 0 || known == 1 && rapid.Bool().Draw(t, "says nothing") {
				return 0
			}
			return long
		}
		p := newPartJobs(drawMIG(quiet{}, "n1 . .\nn2 . ."))
		p.kind = func() (string, time.Duration, time.Duration) {
			long := time.Duration(rapid.IntRange(1, 12).Draw(t, "long")) * 5 * time.Minute
			return rapid.SampledFrom(others).Draw(t, "what"), long, says(long)
		}
		for range 4 {
			p.tick(t, policy)
		}
		var old []string
		for i := range rapid.IntRange(1, 3).Draw(t, "watched") {
			long := time.Duration(rapid.IntRange(1, 12).Draw(t, "long")) * 10 * time.Minute
			j := p.gang(fmt.Sprintf("old-%d", i), rapid.SampledFrom(watched).Draw(t, "what"), rapid.IntRange(1, 2).Draw(t, "members"), says(long))
			p.submit(j, long)
			old = append(old, j.ID)
		}
		p.allStart(t, policy, 300, old)
		divided += p.divided
	})
	if divided == 0 {
		t.Error("no GPU was ever divided")
	}
}
