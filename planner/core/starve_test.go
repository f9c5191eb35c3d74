package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// smallJobs is a cluster of sixteen GPUs on which small jobs come all the time.
type smallJobs struct {
	s     *model.Snapshot
	ends  map[string]time.Time
	long  map[string]time.Duration
	came  int
	step  time.Duration
	small func() (gpus int, long, says time.Duration)
	// learns: what jobs had that end is known of those that come.
	learns bool
	// displaced are who gave way to whom.
	displaced map[[2]string]bool
}

const sixteen = `b r1 n1 ....
	b r1 n2 ....
	b r2 n3 ....
	b r2 n4 ....`

func newSmallJobs(cluster *model.Snapshot, small func() (int, time.Duration, time.Duration)) *smallJobs {
	s := *cluster
	return &smallJobs{s: &s, ends: map[string]time.Time{}, long: map[string]time.Duration{}, step: 10 * time.Minute, small: small, displaced: map[[2]string]bool{}}
}

func (st *smallJobs) submit(id string, count, gpus, priority int, topology model.Topology, long, says time.Duration) {
	st.s.Jobs = append(st.s.Jobs, model.Job{ID: id, Type: "batch", State: model.StateQueued, Gang: model.GangJob, Submitted: st.s.Now, Priority: priority, Duration: says, Topology: topology,
		Groups: []model.TaskGroup{{Name: "g", Count: count, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: gpus}}}}})
	st.long[id] = long
}

// tick lets a step pass: jobs end, small ones come, and what is decided is done.
func (st *smallJobs) tick(t *rapid.T, policy Policy) {
	st.s.Now = st.s.Now.Add(st.step)
	st.s = stopped(st.s)
	st.s.Jobs = slices.DeleteFunc(slices.Clone(st.s.Jobs), func(j model.Job) bool {
		end, runs := st.ends[j.ID]
		if runs = runs && !end.After(st.s.Now); runs && st.learns {
			g := j.Groups[0]
			had := j.AttainedGPUs + end.Sub(j.Started).Seconds()*float64(g.Count*g.Devices[0].Count)
			st.s.History.Demands = append(slices.Clone(st.s.History.Demands), had)
		}
		return runs
	})
	for range 4 {
		gpus, long, says := st.small()
		st.came++
		st.submit(fmt.Sprintf("small-%d", st.came), 1, gpus, 50, model.Topology{}, long, says)
	}
	plan := mustDecide(t, st.s, policy)
	for _, p := range plan.Preemptions {
		if st.displaced[[2]string{p.For.ID, p.Job}] && !policy.MayReturn() {
			t.Errorf("%s gives way to %s, which gave way to it", p.Job, p.For.ID)
		}
		st.displaced[[2]string{p.Job, p.For.ID}] = true
	}
	st.s = stopping(st.s, plan)
	for i := range st.s.Jobs {
		switch j := &st.s.Jobs[i]; j.State {
		case model.StateAdmitted:
			j.State, j.Started, j.Accounted = model.StateRunning, st.s.Now, st.s.Now
			st.ends[j.ID] = st.s.Now.Add(st.long[j.ID])
		case model.StateStopping:
			if end, ran := st.ends[j.ID]; ran {
				had := st.s.Now.Sub(j.Started)
				st.long[j.ID] = end.Sub(st.s.Now)
				j.Ran, j.Accounted = j.Ran+had, st.s.Now
				j.AttainedGPUs += had.Seconds() * float64(j.Groups[0].Count*j.Groups[0].Devices[0].Count)
				delete(st.ends, j.ID)
			}
		}
	}
	// What waits too long is taken back by its author, so that the queue does not
	// grow for ever; that is no help to who is watched.
	waiting := 0
	st.s.Jobs = slices.DeleteFunc(st.s.Jobs, func(j model.Job) bool {
		if j.State != model.StateQueued || j.ID[0] != 's' {
			return false
		}
		waiting++
		return waiting > 16
	})
}

// Every job starts, however many small ones come all the time and whatever is
// known of them: under the default order, and under those that promise it.
func TestNobodyStarves(t *testing.T) {
	cluster := draw(t, sixteen)
	rapid.Check(t, func(t *rapid.T) {
		policy := Policy{Order: rapid.SampledFrom([]string{queue.OrderCaravan, queue.OrderCaravan, queue.OrderFIFO}).Draw(t, "order")}
		policy.Caravan.Patience = rapid.SampledFrom([]float64{8, 0.5, 2}).Draw(t, "patience")
		policy.Preempt.Enabled = rapid.Bool().Draw(t, "preempt")
		known := rapid.IntRange(0, 2).Draw(t, "known")
		past := rapid.Bool().Draw(t, "past")
		st := newSmallJobs(cluster, func() (int, time.Duration, time.Duration) {
			long := time.Duration(rapid.IntRange(1, 6).Draw(t, "long")) * 10 * time.Minute
			says := long
			if known == 0 || known == 1 && rapid.Bool().Draw(t, "says nothing") {
				says = 0
			}
			return rapid.IntRange(1, 2).Draw(t, "gpus"), long, says
		})
		// Where jobs give way it is no matter that far more is short than was before.
		if st.learns = past && !policy.Preempt.Enabled; past {
			st.s.History.Demands = slices.Repeat([]float64{600, 3600, 36000}, 4)
		}
		for range 3 {
			st.tick(t, policy)
		}
		watched := map[string]bool{}
		for i := range rapid.IntRange(1, 3).Draw(t, "watched") {
			id := fmt.Sprintf("big-%d", i)
			gpus := rapid.IntRange(1, 4).Draw(t, "gpus each")
			topology, most := model.Topology{}, 4*(4/gpus)
			if rapid.Bool().Draw(t, "in a rack") {
				topology, most = model.Topology{Mode: model.TopologyRequire, Level: model.LevelRack}, 2*(4/gpus)
			}
			long := time.Duration(rapid.IntRange(1, 20).Draw(t, "long")) * time.Hour / 4
			says := rapid.SampledFrom([]time.Duration{0, long, long / 2}).Draw(t, "says")
			st.submit(id, rapid.IntRange(1, most).Draw(t, "members"), gpus, 50, topology, long, says)
			watched[id] = true
		}
		for range 800 {
			st.tick(t, policy)
			for id := range watched {
				if _, started := st.ends[id]; started {
					delete(watched, id)
				}
			}
			if len(watched) == 0 {
				return
			}
		}
		t.Errorf("after 133 hours these have not started: %v", watched)
	})
}

// Under no order does anybody displace whom he gave way to, but those that say so.
func TestNothingGoesBackAndForth(t *testing.T) {
	cluster := draw(t, sixteen)
	rapid.Check(t, func(t *rapid.T) {
		policy := Policy{Order: rapid.SampledFrom(queue.Orders()).Draw(t, "order"), Preempt: preempt.Policy{Enabled: true}}
		st := newSmallJobs(cluster, func() (int, time.Duration, time.Duration) {
			long := time.Duration(rapid.IntRange(1, 12).Draw(t, "long")) * 10 * time.Minute
			return rapid.IntRange(1, 4).Draw(t, "gpus"), long, long
		})
		st.s.History.Demands = slices.Repeat([]float64{600, 3600, 36000}, 4)
		for i := range 16 {
			if i%4 == 0 {
				st.submit(fmt.Sprintf("big-%d", i), rapid.IntRange(1, 4).Draw(t, "members"), 4, rapid.SampledFrom([]int{40, 50, 60}).Draw(t, "priority"), model.Topology{}, 4*time.Hour, 4*time.Hour)
				st.s.Jobs[len(st.s.Jobs)-1].Deadline = st.s.Now.Add(time.Duration(rapid.IntRange(4, 20).Draw(t, "deadline")) * time.Hour)
			}
			st.tick(t, policy)
		}
	})
}
