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
	*traffic
	came  int
	small func() (gpus int, long, says time.Duration)
	// displaced are who gave way to whom.
	displaced map[[2]string]bool
}

const sixteen = `b r1 n1 ....
	b r1 n2 ....
	b r2 n3 ....
	b r2 n4 ....`

func newSmallJobs(cluster *model.Snapshot, small func() (int, time.Duration, time.Duration)) *smallJobs {
	st := &smallJobs{traffic: newTraffic(cluster, 10*time.Minute), small: small, displaced: map[[2]string]bool{}}
	st.come, st.decided, st.carried = st.four, st.once, st.takeBack
	return st
}

// gang is a job of some members with so many GPUs each.
func (st *smallJobs) gang(id string, count, gpus int, says time.Duration) model.Job {
	return model.Job{ID: id, Priority: 50, Duration: says, Groups: []model.TaskGroup{{Name: "g", Count: count, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: gpus}}}}}
}

// four come in each step.
func (st *smallJobs) four() {
	for range 4 {
		gpus, long, says := st.small()
		st.came++
		st.submit(st.gang(fmt.Sprintf("small-%d", st.came), 1, gpus, says), long)
	}
}

// once: nobody gives way to whom he displaced.
func (st *smallJobs) once(t *rapid.T, policy Policy, plan *model.Plan) {
	for _, p := range plan.Preemptions {
		if st.displaced[[2]string{p.For.ID, p.Job}] && !policy.MayReturn() {
			t.Errorf("%s gives way to %s, which gave way to it", p.Job, p.For.ID)
		}
		st.displaced[[2]string{p.Job, p.For.ID}] = true
	}
}

// takeBack: what waits too long is taken back by its author, so that the queue does
// not grow for ever; that is no help to who is watched.
func (st *smallJobs) takeBack(*model.Plan) {
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
		var watched []string
		for i := range rapid.IntRange(1, 3).Draw(t, "watched") {
			gpus := rapid.IntRange(1, 4).Draw(t, "gpus each")
			topology, most := model.Topology{}, 4*(4/gpus)
			if rapid.Bool().Draw(t, "in a rack") {
				topology, most = model.Topology{Mode: model.TopologyRequire, Level: model.LevelRack}, 2*(4/gpus)
			}
			long := time.Duration(rapid.IntRange(1, 20).Draw(t, "long")) * time.Hour / 4
			says := rapid.SampledFrom([]time.Duration{0, long, long / 2}).Draw(t, "says")
			big := st.gang(fmt.Sprintf("big-%d", i), rapid.IntRange(1, most).Draw(t, "members"), gpus, says)
			big.Topology = topology
			st.submit(big, long)
			watched = append(watched, big.ID)
		}
		st.allStart(t, policy, 800, watched)
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
				big := st.gang(fmt.Sprintf("big-%d", i), rapid.IntRange(1, 4).Draw(t, "members"), 4, 4*time.Hour)
				big.Priority = rapid.SampledFrom([]int{40, 50, 60}).Draw(t, "priority")
				big.Deadline = st.s.Now.Add(time.Duration(rapid.IntRange(4, 20).Draw(t, "deadline")) * time.Hour)
				st.submit(big, 4*time.Hour)
			}
			st.tick(t, policy)
		}
	})
}
