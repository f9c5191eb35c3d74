package core

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// stillCase is a cluster that is looked at several times while nothing happens.
type stillCase struct {
	cluster, running, jobs string
	policy                 Policy
	set                    func(s *model.Snapshot)
	looks                  []time.Duration
	want                   []string
}

// In two racks H needs two GPUs on each of two nodes of one, and C three, which only n2
// has. Where H is to be in the second C may start at once.
const (
	twoRacks  = "b1 r1 n1 aa\nb1 r1 n2 ...\nb1 r2 n3 bb\nb1 r2 n4 .."
	rackAsked = "H 2x2 require:rack runs:3h\nC 1x3 runs:30m"
)

// minutes are times.
func minutes(list ...float64) (out []time.Duration) {
	for _, m := range list {
		out = append(out, time.Duration(m*float64(time.Minute)))
	}
	return out
}

// a has the first of two nodes, as it seems for 50 minutes more, and then for another 80,
// where nothing else is said. H needs both, and C one of them for an hour.
func TestWhatStandsStillByHand(t *testing.T) {
	trust := conservative
	trust.Backfill.MaxWait = time.Hour
	submitted := func(job string, ago time.Duration) func(*model.Snapshot) {
		return func(s *model.Snapshot) { jobOf(s, job).Submitted = s.Now.Add(-ago * time.Minute) }
	}
	// H reserves its rack from 60 on, where one of the nodes is free from 10 on. So K is to
	// run there before, and beside it on the node that C needs, until H keeps its rack.
	between := stillCase{
		cluster: "b1 r1 n1 a\nb1 r1 n2 b\nb1 r2 n3 .", running: "a 50 30m runs:90m\nb 50 30m runs:40m",
		jobs: "H 2x1 require:rack runs:3h\nK 2x1 runs:40m\nC 1x1 runs:50m", policy: trust,
		looks: minutes(0, 4, 5), want: []string{"H ?; K ?; C ?", "", "H ?; K ?; C now"},
	}
	between.set = func(s *model.Snapshot) {
		submitted("H", 55)(s)
		submitted("K", 54)(s)
		submitted("C", 53)(s)
	}
	gaveWay := between
	gaveWay.set = func(s *model.Snapshot) {
		between.set(s)
		submitted("H", 300)(s)
		jobOf(s, "H").Preempted = []model.Preempted{{At: s.Now.Add(-55 * time.Minute), By: "x"}}
	}
	tests := map[string]stillCase{
		"only time passes":             {looks: minutes(0, 1, 49), want: []string{"H ?; C ?", "", ""}},
		"an estimate is outlived":      {looks: minutes(0, 49, 50), want: []string{"H ?; C ?", "", "H ?; C now, before H"}},
		"the first look is after that": {looks: minutes(0, 50), want: []string{"H ?; C ?", "H ?; C now, before H"}},
		"it is earlier":                {looks: minutes(0, -15), want: []string{"H ?; C ?", "H ?; C now, before H"}},
		"somebody has started":         {jobs: "H 2x1 runs:3h\nC 1x1 runs:45m", looks: minutes(0, 1), want: []string{"H ?; C now, before H", "H ?; C now, before H"}},
		"who needs unequal nodes":      {jobs: "H 1x0+2x1 runs:3h\nC 1x1 runs:1h", looks: minutes(0, 1), want: []string{"H ?; C ?", "H ?; C ?"}},
		"plans say what queues use":    {set: func(s *model.Snapshot) { s.Queues = []model.Queue{{Path: "q"}} }, looks: minutes(0, 1), want: []string{"H ?; C ?", "H ?; C ?"}},
		"nobody goes before others":    {policy: Policy{Backfill: easy.Backfill, Preempt: preempt.Policy{Enabled: true}}, looks: minutes(0, 1), want: []string{"H ?; C ?", ""}},
		"somebody may give way": {
			jobs: "H 2x1 runs:3h priority:60", policy: Policy{Backfill: easy.Backfill, Preempt: preempt.Policy{Enabled: true, MinRunTime: 40 * time.Minute}},
			looks: minutes(0, 9, 10), want: []string{"H ?", "", "H ?"},
		},
		"too many have given way within the hour": {
			jobs: "H 2x1 runs:3h priority:60\nC 1x1 runs:3h", policy: Policy{Backfill: easy.Backfill, Preempt: preempt.Policy{Enabled: true, MaxPerHour: 1}},
			set: func(s *model.Snapshot) {
				jobOf(s, "C").Preempted = []model.Preempted{{At: s.Now.Add(-50 * time.Minute), By: "x"}}
			},
			looks: minutes(0, 9, 10), want: []string{"H ?; C ?", "H ?; C ?", "H ?; C ?"}, // who is cheapest may change
		},
		"somebody is to come back": {set: func(s *model.Snapshot) { jobOf(s, "H").Replace = &model.Replacement{At: s.Now} }, looks: minutes(0, 1), want: []string{"H ?; C ?", "H ?; C ?"}},
		// H is short, and C, which is not, goes before it from when it is due.
		"another order": {
			jobs: "H 2x1 runs:1h\nC 1x1 runs:5h", policy: Policy{Order: queue.OrderCaravan, Caravan: queue.Caravan{Patience: 1}},
			set: func(s *model.Snapshot) {
				submitted("H", 10)(s)
				submitted("C", 270)(s)
			},
			looks: minutes(0, 29, 30), want: []string{"H ?; C ?", "", "C now; H ?"},
		},
		// A tenth longer than expected is what a deadline reckons with.
		"a promise is broken": {
			running: "a 50 61m runs:1h", jobs: "H 2x1 runs:3h", policy: Policy{Order: queue.OrderCaravan},
			set: func(s *model.Snapshot) {
				s.Jobs[0].Deadline = s.Now.Add(time.Hour)
				s.Jobs[0].Promised = &model.Promised{At: s.Jobs[0].Started, Deadline: s.Jobs[0].Deadline, GPUs: 2}
			},
			looks: minutes(0, 4, 6), want: []string{"H ?", "", "H ?; promised: a"},
		},
		// Nobody is let onto the node while a is short, which it is not when it has run for an hour.
		"what only short jobs are in the way of": {
			cluster: "b1 r1 n1 a.", running: "a 50 50m runs:100m", jobs: "H 1x2 runs:3h priority:60\nC 1x1 runs:10m priority:50",
			policy: Policy{Order: queue.OrderCaravan, Caravan: queue.Caravan{Short: time.Hour}, Backfill: queue.Backfill{MaxWait: time.Hour}},
			looks:  minutes(0, 9, 10), want: []string{"H ?; C ?", "", "H ?; C now, before H"},
		},
		// a runs for longer than expected, so more and more is left to it.
		"drained for long": {
			cluster: "b1 r1 n1 a.", running: "a 50 3h runs:1h", jobs: "H 1x2 runs:3h\nC 1x1 runs:25m", policy: trust,
			looks: minutes(0, 30), want: []string{"H ?; C ?", "H ?; C now, before H"},
		},
		"estimates are not trusted any more":    between,
		"and that long since somebody gave way": gaveWay,
		"it is tried again later":               {jobs: "C 1x1 runs:3h", set: func(s *model.Snapshot) { jobOf(s, "C").RetryAfter = s.Now.Add(20 * time.Minute) }, looks: minutes(0, 20), want: []string{"C ?", "C now"}},
		"a lost member is tried again later": {
			jobs: "-", set: func(s *model.Snapshot) {
				a := jobOf(s, "a")
				a.Gang, a.Groups[0].Count, a.RetryAfter = model.GangGroup, 2, s.Now.Add(20*time.Minute)
			},
			looks: minutes(0, 20), want: []string{"a ?", "a now"},
		},
		"some members of one that waits": {
			set: func(s *model.Snapshot) {
				a := jobOf(s, "a")
				a.State, a.Gang, a.Submitted = model.StateQueued, model.GangNone, s.Now.Add(-2*time.Hour)
				a.Groups = append(a.Groups, model.TaskGroup{Name: "h", Count: 1, Devices: []model.DeviceAsk{{Name: "gpu", Count: 2}}})
			},
			looks: minutes(0, 49, 50), want: []string{"a ?; H ?; C ?", "a ?; H ?; C ?", "a ?; H ?; C now, before H"},
		},
		// Of these it is known how long they take from any moment on.
		"an allocation that stops": {
			cluster: strings.ReplaceAll(twoRacks, "a", "#"), running: "b 50 10m runs:30m", jobs: rackAsked, set: func(s *model.Snapshot) {
				for i := range s.Allocs {
					s.Allocs[i].Stopping = true
				}
			},
			looks: minutes(0, 19.5), want: []string{"H ?; C ?", "H ?; C now"},
		},
		"nobody knows since when": {
			cluster: twoRacks, running: "a 50 0s runs:10m\nb 50 10m runs:22m", jobs: rackAsked, set: func(s *model.Snapshot) {
				a := jobOf(s, "a")
				a.Started, a.Submitted = time.Time{}, time.Time{}
			},
			looks: minutes(0, 5), want: []string{"H ?; C ?", "H ?; C now"},
		},
		"from a moment to come": {
			cluster: twoRacks, running: "a 50 -8m runs:10m\nb 50 10m runs:25m", jobs: rackAsked,
			looks: minutes(0, 6), want: []string{"H ?; C ?", "H ?; C now"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, cmp.Or(tt.cluster, "b1 r1 n1 a\nb1 r1 n2 ."))
			describe(t, s, cmp.Or(tt.running, "a 50 30m runs:80m"))
			takePlaces(s)
			if tt.jobs != "-" {
				submit(t, s, cmp.Or(tt.jobs, "H 2x1 runs:3h\nC 1x1 runs:1h"))
			}
			if tt.set != nil {
				tt.set(s)
			}
			if tt.policy.Order == "" && tt.policy.Backfill.Mode == "" {
				tt.policy = easy
			}
			if diff := gocmp.Diff(tt.want, tt.look(t, s)); diff != "" {
				t.Errorf("starts (-want +got):\n%s", diff)
			}
		})
	}
}

// look looks at the cluster at some times, and tells what each plan says.
func (tt *stillCase) look(t *testing.T, s *model.Snapshot) (told []string) {
	p, err := Prepare(s, tt.policy)
	if err != nil {
		t.Fatal(err)
	}
	p.Terse()
	for _, look := range tt.looks {
		plan := p.Decide(s.Now.Add(look))
		for i := range plan.Decisions {
			plan.Decisions[i].Detail.Start = time.Time{}
		}
		text := starts(s, plan)
		for i := range plan.Promises {
			text += "; promised: " + plan.Promises[i].Job
		}
		told = append(told, text)
	}
	return told
}

// takePlaces has the members of running jobs hold what their allocations do, but for what
// nobody manages.
func takePlaces(s *model.Snapshot) {
	for i := range s.Jobs {
		if j := &s.Jobs[i]; j.State == model.StateRunning {
			gangOnNodes(s, j, 0)
			j.Groups[0].Max = 0
			s.Allocs = slices.DeleteFunc(s.Allocs, func(a model.Alloc) bool { return a.Job == j.ID })
		}
	}
}

// A node that is open again is looked at, though nothing is known of any job that was not.
func TestNothingStandsStillAfterAChange(t *testing.T) {
	s := draw(t, "b1 r1 n1 a\nb1 r1 n2 !.")
	describe(t, s, "a 50 30m runs:80m")
	takePlaces(s)
	submit(t, s, "C 1x1 runs:1h")
	p, err := Prepare(s, easy)
	if err != nil {
		t.Fatal(err)
	}
	p.Terse()
	opened := s.Nodes[1]
	opened.Unschedulable = ""
	var told []string
	for _, ch := range []Change{{}, {}, {PutNodes: []model.Node{opened}}} {
		if err := p.Apply(ch); err != nil {
			t.Fatal(err)
		}
		told = append(told, starts(s, p.Decide(s.Now)))
	}
	if diff := gocmp.Diff([]string{"C ?", "", "C now"}, told); diff != "" {
		t.Errorf("starts (-want +got):\n%s", diff)
	}
}
