package core

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// traffic is a cluster on which jobs come all the time, and end.
type traffic struct {
	s    *model.Snapshot
	step time.Duration
	// ends is when those end who run, long how long each job runs still.
	ends map[string]time.Time
	long map[string]time.Duration
	// come submits those that come in a step.
	come func()
	// decided looks at a plan, before it is carried out, and carried does what is to
	// be done of it beside what every job has of it.
	decided func(*rapid.T, Policy, *model.Plan)
	carried func(*model.Plan)
	// learns: what jobs had that end is known of those that come.
	learns bool
}

func newTraffic(s *model.Snapshot, step time.Duration) *traffic {
	own := *s
	return &traffic{s: &own, step: step, ends: map[string]time.Time{}, long: map[string]time.Duration{}}
}

// submit adds a gang that runs for a while.
func (tr *traffic) submit(j model.Job, long time.Duration) {
	j.Type, j.State, j.Gang, j.Submitted = "batch", model.StateQueued, model.GangJob, tr.s.Now
	tr.s.Jobs = append(tr.s.Jobs, j)
	tr.long[j.ID] = long
}

// tick lets a step pass: jobs end, others come, and what is decided is done.
func (tr *traffic) tick(t *rapid.T, policy Policy) {
	tr.pass()
	tr.come()
	plan := mustDecide(t, tr.s, policy)
	tr.decided(t, policy, plan)
	tr.s = stopping(tr.s, plan)
	tr.settle()
	tr.carried(plan)
}

func (tr *traffic) pass() {
	tr.s.Now = tr.s.Now.Add(tr.step)
	tr.s = stopped(tr.s)
	tr.s.Jobs = slices.DeleteFunc(tr.s.Jobs, func(j model.Job) bool {
		end, runs := tr.ends[j.ID]
		if runs = runs && !end.After(tr.s.Now); runs && tr.learns {
			g := j.Groups[0]
			had := j.AttainedGPUs + end.Sub(j.Started).Seconds()*float64(g.Count*g.Devices[0].Count)
			tr.s.History.Demands = append(slices.Clone(tr.s.History.Demands), had)
		}
		return runs
	})
}

// settle lets those run who were admitted, and takes from those who stop what they
// have had.
func (tr *traffic) settle() {
	for i := range tr.s.Jobs {
		switch j := &tr.s.Jobs[i]; j.State {
		case model.StateAdmitted:
			j.State, j.Started, j.Accounted = model.StateRunning, tr.s.Now, tr.s.Now
			tr.ends[j.ID] = tr.s.Now.Add(tr.long[j.ID])
		case model.StateStopping:
			if end, ran := tr.ends[j.ID]; ran {
				had := tr.s.Now.Sub(j.Started)
				tr.long[j.ID] = end.Sub(tr.s.Now)
				j.Ran, j.Accounted = j.Ran+had, tr.s.Now
				j.AttainedGPUs += had.Seconds() * float64(j.Groups[0].Count*j.Groups[0].Devices[0].Count)
				delete(tr.ends, j.ID)
			}
		}
	}
}

// waiting is how many jobs wait.
func (tr *traffic) waiting() (n int) {
	for i := range tr.s.Jobs {
		if tr.s.Jobs[i].State == model.StateQueued {
			n++
		}
	}
	return n
}

// allStart lets steps pass until all who are watched have started.
func (tr *traffic) allStart(t *rapid.T, policy Policy, steps int, watched []string) {
	for range steps {
		tr.tick(t, policy)
		watched = slices.DeleteFunc(watched, func(id string) bool {
			_, started := tr.ends[id]
			return started
		})
		if len(watched) == 0 {
			return
		}
	}
	t.Errorf("%+v: after %s these have not started: %v", policy, time.Duration(steps)*tr.step, watched)
}
