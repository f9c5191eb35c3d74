package queue

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/speed"
)

// elasticJob is one that may have 1 to 4 members with a GPU each, with the speeds
// declared, and so many seconds left at one member.
func elasticJob(id string, left float64, rates ...float64) Entry {
	e := Entry{Job: &model.Job{ID: id}, Waiting: true, Asked: 1, Count: 1, Min: 1, Max: len(rates), GPUsPerMember: 1,
		Left: Estimate{Known: true, Left: time.Duration(left * float64(time.Second))}}
	s := &model.Speed{}
	for i, r := range rates {
		s.Declared = append(s.Declared, model.SpeedPoint{Members: i + 1, Rate: r})
	}
	e.Speed = speed.New(s, nil)
	return e
}

// running is the job with so many members.
func running(e Entry, members int) Entry {
	e.Running, e.Waiting, e.Members, e.Held = true, false, members, members*e.GPUsPerMember
	return e
}

// rigid is one of so many GPUs, which it has if it runs.
func rigid(id string, gpus int, left time.Duration, runs bool) Entry {
	e := Entry{Job: &model.Job{ID: id}, Waiting: !runs, Running: runs, Asked: gpus, Count: 1, GPUsPerMember: gpus, Left: Estimate{Known: left > 0, Left: left}}
	if runs {
		e.Held, e.Members = gpus, 1
	}
	return e
}

func membersOf(all []Standing) []int {
	var out []int
	for _, s := range all {
		out = append(out, s.Members)
	}
	return out
}

// The jobs of the worked examples: sub grows by less and less, lin by as much each
// time.
func sub() Entry { return elasticJob("sub", 100, 1, 1.8, 2.4, 2.8) }
func lin() Entry { return elasticJob("lin", 60, 1, 2, 3, 4) }

func TestMarginal(t *testing.T) {
	tests := map[string]struct {
		gpus int
		jobs []Entry
		want []int
	}{
		// sub takes 100, 55.6, 41.7, 35.7 seconds with 1, 2, 3, 4 members, so the
		// second saves 44.4, the third 13.9, the fourth 6. lin takes 60, 30, 20, 15:
		// it saves 30, 10, 5. Each has one of 6 GPUs; the others go to sub (44.4),
		// lin (30), sub (13.9), lin (10).
		"six GPUs":   {6, []Entry{sub(), lin()}, []int{3, 3}},
		"five GPUs":  {5, []Entry{sub(), lin()}, []int{3, 2}},
		"four GPUs":  {4, []Entry{sub(), lin()}, []int{2, 2}},
		"three GPUs": {3, []Entry{sub(), lin()}, []int{2, 1}},
		// One that waits with 3 GPUs takes them first; lin with 60 GPU-seconds
		// goes before sub with 100.
		"three are somebody's":             {5, []Entry{rigid("r", 3, time.Hour, true), sub(), lin()}, []int{0, 1, 1}},
		"there is one GPU for the shorter": {4, []Entry{rigid("r", 3, time.Hour, true), sub(), lin()}, []int{0, 1, 1}},
		// A third member would save sub 1.2 of 100 seconds at 1.8 times, but a
		// change of size takes 60.
		"a change is not repaid": {6, []Entry{running(sub(), 2)}, []int{2}},
		// With 10000 seconds left at 2 members it takes 7500 with 3 and 6429 with 4.
		"a change is repaid": {6, []Entry{running(elasticJob("sub", 10_000, 1, 1.8, 2.4, 2.8), 2)}, []int{4}},
		// sub gives GPUs back to lin, which waits: each has one in any case.
		"one that runs makes room": {4, []Entry{running(elasticJob("sub", 10_000, 1, 1.8, 2.4, 2.8), 4), lin()}, []int{3, 1}},
		// The third member adds 0.05, less than a tenth of the first.
		"members that do too little": {4, []Entry{elasticJob("flat", 1e6, 1, 1.8, 1.85, 1.86)}, []int{2}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := newMarginal(Policy{}).Stand(Situation{GPUs: test.gpus, Jobs: test.jobs})
			for i, n := range membersOf(got) {
				if n != test.want[i] {
					t.Errorf("members %v, want %v", membersOf(got), test.want)
					break
				}
			}
		})
	}
}

// What cannot be resized is told by what it goes.
func TestMarginalSaysWhy(t *testing.T) {
	unknown := rigid("u", 2, time.Hour, false)
	unknown.Left.Known = false
	got := newMarginal(Policy{}).Stand(Situation{GPUs: 6, Jobs: []Entry{rigid("r", 3, time.Hour, false), unknown}})
	for i, want := range []string{"may still need 3 GPU-hours", "taken to need 2 GPU-hours, since nobody has said how long it runs"} {
		if got[i].Why != want {
			t.Errorf("%q, want %q", got[i].Why, want)
		}
	}
}

func TestGoodput(t *testing.T) {
	tests := map[string]struct {
		gpus int
		jobs []Entry
		want []int
	}{
		// The fair share of 5 GPUs is 2. By the speed of 2, sub's are 1/1.8, 1,
		// 2.4/1.8, 2.8/1.8, so their inverses 1.8, 1, 0.75, 0.643; lin's inverses
		// are 2, 1, 0.667, 0.5. Of 3 GPUs more the first goes to lin (2 to 1), the
		// second to sub (1.8 to 1), the third to lin (1 to 0.667, against 0.75).
		"five GPUs": {5, []Entry{sub(), lin()}, []int{2, 3}},
		"four GPUs": {4, []Entry{sub(), lin()}, []int{2, 2}},
		// How long a job still runs does not count, but for what a change costs.
		"a longer one":           {5, []Entry{elasticJob("sub", 1e6, 1, 1.8, 2.4, 2.8), lin()}, []int{2, 3}},
		"a change is not repaid": {5, []Entry{running(sub(), 3), running(lin(), 2)}, []int{3, 2}},
		"a change is repaid":     {5, []Entry{running(elasticJob("sub", 1e5, 1, 1.8, 2.4, 2.8), 3), running(elasticJob("lin", 1e5, 1, 2, 3, 4), 2)}, []int{2, 3}},
		// Three jobs, and the first two take all: they are older.
		"no room for the third":     {2, []Entry{sub(), lin(), lin()}, []int{1, 1, 1}},
		"a rigid one is in the way": {5, []Entry{sub(), rigid("r", 3, 0, false), lin()}, []int{1, 0, 1}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := newGoodput(Policy{}).Stand(Situation{GPUs: test.gpus, Jobs: test.jobs})
			for i, n := range membersOf(got) {
				if n != test.want[i] {
					t.Errorf("members %v, want %v", membersOf(got), test.want)
					break
				}
			}
		})
	}
}

func TestSizesWhy(t *testing.T) {
	tests := map[string]struct {
		jobs []Entry
		want string
	}{
		"declared":                 {[]Entry{sub(), lin()}, "3 of 1 to 4 members, 2.4 times as fast as 1 (give or take 22 %), one more adds 17 %"},
		"far beyond what is known": {[]Entry{{Job: &model.Job{}, Waiting: true, Asked: 1, Count: 1, Min: 1, Max: 8, GPUsPerMember: 1}}, "2 of 1 to 8 members, 2 times as fast as 1 if each GPU adds as much as the first, which nobody knows, one more adds 50 %"},
		"unknown":                  {[]Entry{{Job: &model.Job{}, Waiting: true, Asked: 2, Count: 1, Min: 1, Max: 2, GPUsPerMember: 2}}, "2 of 1 to 2 members, 2 times as fast as 1 if each GPU adds as much as the first, which nobody knows"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := newMarginal(Policy{}).Stand(Situation{GPUs: 6, Jobs: test.jobs})[0].Why; got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
	stuck := elasticJob("stuck", 1000, 1, 2, 3, 4)
	stuck.Speed = speed.New(&model.Speed{Unit: model.UnitSteps, Samples: []model.SpeedSample{
		{Members: 1, GPUs: 1, Level: "node", Rate: 10, Count: 9, Spread: 0.01}, {Members: 2, GPUs: 2, Level: "node", Rate: 19, Count: 9, Spread: 0.01},
		{Members: 4, GPUs: 4, Level: "node", Rate: 19, Count: 9, Spread: 0.01}}}, nil)
	got := newMarginal(Policy{}).Stand(Situation{GPUs: 6, Jobs: []Entry{stuck}})[0]
	if got.Members != 2 || !strings.Contains(got.Why, "since 4 GPUs are no faster than 2 (19 and 19 steps/s)") {
		t.Errorf("%+v", got)
	}
}

func drawSituation(t *rapid.T) Situation {
	s := Situation{GPUs: rapid.IntRange(1, 40).Draw(t, "GPUs")}
	held := 0
	for range rapid.IntRange(0, 6).Draw(t, "jobs") {
		e := Entry{Job: &model.Job{}, Priority: rapid.IntRange(1, 2).Draw(t, "priority"), Waiting: true, GPUsPerMember: rapid.IntRange(0, 3).Draw(t, "each"),
			Count: rapid.IntRange(1, 6).Draw(t, "count"), Left: Estimate{Known: rapid.Bool().Draw(t, "known"), Left: time.Duration(rapid.IntRange(0, 1e5).Draw(t, "left")) * time.Second}}
		if rapid.Bool().Draw(t, "elastic") {
			e.Min = rapid.IntRange(1, e.Count).Draw(t, "min")
			e.Max = rapid.IntRange(e.Count, 12).Draw(t, "max")
		}
		e.Asked = e.Count * e.GPUsPerMember
		if rapid.Bool().Draw(t, "runs") && held+e.Asked <= s.GPUs {
			e.Members, e.Running, e.Waiting, e.Held, e.Turn = e.Count, true, false, e.Asked, time.Duration(rapid.IntRange(0, 1e4).Draw(t, "turn"))*time.Second
			held += e.Held
		}
		if rapid.Bool().Draw(t, "speed") {
			data := &model.Speed{}
			for n := 1; n <= 8; n *= 2 {
				data.Declared = append(data.Declared, model.SpeedPoint{Members: n, Rate: math.Exp(rapid.Float64Range(0, 2).Draw(t, "rate"))})
			}
			e.Speed = speed.New(data, nil)
		}
		s.Jobs = append(s.Jobs, e)
	}
	return s
}

// TestSizesFit: whatever there is, sizes are within their bounds, all that run or
// start fit, and a gang that runs is not taken below its least size for anybody.
func TestSizesFit(t *testing.T) {
	for name, discipline := range map[string]func(Policy) Discipline{"goodput": newGoodput, "marginal": newMarginal} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := drawSituation(t)
				got := discipline(Policy{}).Stand(s)
				if len(got) != len(s.Jobs) {
					t.Fatalf("%d standings for %d jobs", len(got), len(s.Jobs))
				}
				used := 0
				for i, e := range s.Jobs {
					switch n := got[i].Members; {
					case !e.elastic():
						if n != 0 {
							t.Fatalf("job %d cannot be resized and is to have %d members", i, n)
						}
						used += e.Held
					case n < e.Min || n > e.Max:
						t.Fatalf("job %d is to have %d members, of %d to %d", i, n, e.Min, e.Max)
					case e.Running || strings.Contains(got[i].Why, " members"): // its size was chosen
						used += n * e.GPUsPerMember
					}
					if math.IsNaN(got[i].Key) || math.IsInf(got[i].Key, 0) {
						t.Fatalf("job %d: key %v", i, got[i].Key)
					}
				}
				if used > s.GPUs {
					t.Fatalf("%d GPUs are used, of %d: %+v", used, s.GPUs, got)
				}
			})
		})
	}
}
