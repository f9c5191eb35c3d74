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
	s    *model.Snapshot
	ends map[string]time.Time
	long map[string]time.Duration
	came int
	// kind draws what the next one asks for.
	kind func() (what string, long, says time.Duration)
	// divided counts how often GPUs were divided or made whole.
	divided int
}

// submit adds a job with one member that asks for whole GPUs or an instance.
func (p *partJobs) submit(id, what string, count int, long, says time.Duration) {
	ask := model.DeviceAsk{Name: "nvidia/gpu/" + testGPU, Count: 1}
	if n := 0; strings.Contains(what, "g.") {
		ask.Name += mig.Mark + what
	} else if _, err := fmt.Sscan(what, &n); err == nil {
		ask.Count = n
	}
	p.s.Jobs = append(p.s.Jobs, model.Job{ID: id, Type: "batch", State: model.StateQueued, Gang: model.GangJob, Submitted: p.s.Now, Duration: says,
		Groups: []model.TaskGroup{{Name: "g", Count: count, Devices: []model.DeviceAsk{ask}}}})
	p.long[id] = long
}

// tick lets five minutes pass: jobs end, others come, and what is decided is done.
func (p *partJobs) tick(t *rapid.T, policy Policy) {
	s := p.s
	s.Now = s.Now.Add(5 * time.Minute)
	s.Jobs = slices.DeleteFunc(slices.Clone(s.Jobs), func(j model.Job) bool {
		end, runs := p.ends[j.ID]
		return runs && !end.After(s.Now)
	})
	waiting := 0
	for i := range s.Jobs {
		if s.Jobs[i].State == model.StateQueued {
			waiting++
		}
	}
	for ; waiting < 8; waiting++ { // so many that somebody always waits
		what, long, says := p.kind()
		p.came++
		p.submit(fmt.Sprintf("new-%d", p.came), what, 1, long, says)
	}
	plan := mustDecide(t, s, policy)
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
	for _, d := range plan.Decisions {
		if j := &s.Jobs[slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == d.Job })]; d.Action == model.ActionAdmit {
			j.State, j.Members, j.Started = model.StateRunning, d.Members, s.Now
			p.ends[j.ID] = s.Now.Add(p.long[j.ID])
		}
	}
	next := *s
	next.Nodes = slices.Clone(s.Nodes)
	for _, r := range plan.Repartitions {
		p.divided++
		n := &next.Nodes[slices.IndexFunc(next.Nodes, func(n model.Node) bool { return n.ID == r.Node })]
		n.GPUs = dividedAs(n.GPUs, r, p.divided)
		n.Divisions = slices.DeleteFunc(slices.Clone(n.Divisions), func(v model.Division) bool { return v.GPU == r.GPU })
		n.Divisions = append(n.Divisions, model.Division{GPU: r.GPU, Profiles: r.To, At: s.Now, State: model.DivisionDone})
	}
	p.s = &next
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
		p := &partJobs{s: drawMIG(quiet{}, "n1 . .\nn2 . ."), ends: map[string]time.Time{}, long: map[string]time.Duration{}}
		p.kind = func() (string, time.Duration, time.Duration) {
			long := time.Duration(rapid.IntRange(1, 12).Draw(t, "long")) * 5 * time.Minute
			return rapid.SampledFrom(others).Draw(t, "what"), long, says(long)
		}
		for range 4 {
			p.tick(t, policy)
		}
		left := map[string]bool{}
		for i := range rapid.IntRange(1, 3).Draw(t, "watched") {
			long := time.Duration(rapid.IntRange(1, 12).Draw(t, "long")) * 10 * time.Minute
			id := fmt.Sprintf("old-%d", i)
			p.submit(id, rapid.SampledFrom(watched).Draw(t, "what"), rapid.IntRange(1, 2).Draw(t, "members"), long, says(long))
			left[id] = true
		}
		for range 300 {
			p.tick(t, policy)
			for id := range left {
				if _, started := p.ends[id]; started {
					delete(left, id)
				}
			}
			if len(left) == 0 {
				break
			}
		}
		divided += p.divided
		if len(left) > 0 {
			t.Errorf("%+v: after 25 hours these have not started: %v", policy, left)
		}
	})
	if divided == 0 {
		t.Error("no GPU was ever divided")
	}
}
