package queue

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/speed"
)

var deadlineNow = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// due is a job of so many GPUs that takes a time and has a deadline, both in
// hours; 0 is none.
func due(id string, gpus int, takes, deadline float64) Entry {
	hours := func(h float64) time.Duration { return time.Duration(h * float64(time.Hour)) }
	j := &model.Job{ID: id}
	if deadline != 0 {
		j.Deadline = deadlineNow.Add(hours(deadline))
	}
	return Entry{Job: j, Waiting: true, Asked: gpus, Count: 1, GPUsPerMember: gpus, Left: Estimate{Known: takes > 0, Total: hours(takes), Left: hours(takes)}}
}

// runs is a job that has run for so many hours and has all that it asks for.
func runs(e Entry, ran float64) Entry {
	e.Running, e.Waiting, e.Held, e.Members = true, false, e.Asked, e.Count
	e.Ran = time.Duration(ran * float64(time.Hour))
	e.Turn, e.Attained = e.Ran, e.Ran.Seconds()*float64(e.Held)
	e.Left.Left = max(0, e.Left.Total-e.Ran)
	return e
}

// elastic is a gang of so many members with a GPU each.
func elastic(e Entry, least, count, most int) Entry {
	e.Min, e.Count, e.Max, e.GPUsPerMember, e.Asked = least, count, most, 1, count
	return e
}

// linearly is a speed known to grow with the members.
func linearly(e Entry) Entry {
	e.Speed = speed.New(&model.Speed{Declared: []model.SpeedPoint{{Members: 1, Rate: 1}, {Members: 64, Rate: 64}}}, nil)
	return e
}

// rooted is a speed of the square root of the members.
func rooted() *speed.Curve {
	var points []model.SpeedPoint
	for _, n := range []int{1, 2, 4, 8, 16} {
		points = append(points, model.SpeedPoint{Members: n, Rate: math.Sqrt(float64(n))})
	}
	return speed.New(&model.Speed{Declared: points}, nil)
}

func TestDeadlinePromises(t *testing.T) {
	plain := Deadline{Safety: 1, Margin: 10 * time.Minute}
	tests := map[string]struct {
		deadline  Deadline
		gpus      int
		jobs      []Entry
		displaces bool
		want      []string // "met|", "urgent|" or "|", and what Why has in it; "" is none
	}{
		// 8 GPUs. Each takes all of them for 2 hours: the first two end at 14:00 and
		// 16:00, the third at 18:00, an hour late.
		"no at once to the third": {plain, 8, []Entry{due("a", 8, 2, 2.5), due("b", 8, 2, 4.5), due("c", 8, 2, 5)}, false, []string{
			"met|it can meet its deadline of 2026-01-02T14:30:00Z, in 2h30m0s: it takes up to 2h0m0s",
			"met|in 4h30m0s", "|it cannot meet its deadline of 2026-01-02T17:00:00Z, in 5h0m0s: beside those that were promised theirs before it ends in 6h0m0s at the earliest; a deadline of 2026-01-02T18:00:01Z or later could be met"}},
		"begins now or never": {plain, 8, []Entry{due("a", 8, 2, 2.1)}, false, []string{"urgent|it has to begin now to meet its deadline of 2026-01-02T14:06:00Z"}},
		"too long alone":      {plain, 8, []Entry{due("a", 8, 2, 1)}, false, []string{"|it takes up to 2h0m0s even alone; a deadline of 2026-01-02T14:00:01Z or later"}},
		"with safety": {Deadline{}, 8, []Entry{due("a", 8, 2, 2.1)}, false, []string{
			"|it takes up to 2h12m0s even alone"}}, // 2h · 1.1
		"an uncertain estimate": {plain, 8, []Entry{func() Entry { e := due("a", 8, 2, 3); e.Left.Spread = 90 * time.Minute; return e }()}, false, []string{"|it takes up to 3h30m0s even alone"}},
		"what runs keeps its GPUs": {plain, 8, []Entry{runs(due("r", 4, 5, 0), 1), due("a", 8, 1, 3), due("b", 4, 1, 3)}, false, []string{
			"", "|beside those that were promised theirs before it ends in 5h0m0s", "met|"}},
		"unless it gives way": {plain, 8, []Entry{runs(due("r", 4, 5, 0), 1), due("a", 8, 1, 3)}, true, []string{"", "met|"}},
		"it may not be told to": {plain, 8, []Entry{func() Entry { e := runs(due("r", 4, 5, 0), 1); e.Job.Preempt = model.PreemptNever; return e }(), due("a", 8, 1, 3)}, true, []string{
			"", "|it cannot meet"}},
		"nor too often": {plain, 8, []Entry{func() Entry { e := runs(due("r", 4, 5, 0), 1); e.Job.Preempted = make([]model.Preempted, 5); return e }(), due("a", 8, 1, 3)}, true, []string{
			"", "|it cannot meet"}},
		"it has a higher priority": {plain, 8, []Entry{func() Entry { e := runs(due("r", 4, 5, 0), 1); e.Priority = 9; return e }(), due("a", 8, 1, 3)}, true, []string{
			"", "|it cannot meet"}},
		"nobody knows when it ends": {plain, 8, []Entry{runs(due("r", 4, 0, 0), 1), due("a", 8, 1, 3)}, false, []string{
			"", "|as far as is known its 8 GPUs do not become free; fewer GPUs would help"}},
		"runs in time": {plain, 8, []Entry{runs(due("a", 8, 2, 2), 0.5)}, false, []string{"urgent|it meets its deadline of 2026-01-02T14:00:00Z, in 2h0m0s: it ends in 1h30m0s"}},
		"overruns": {plain, 8, []Entry{runs(due("a", 8, 2, 1), 3)}, false, []string{
			"|its deadline of 2026-01-02T13:00:00Z is not counted on any more, since it has run for 3h0m0s and was to take 2h0m0s; correct caravan_duration"}},
		"is over":  {plain, 8, []Entry{due("a", 8, 2, -0.5)}, false, []string{"|its deadline of 2026-01-02T11:30:00Z was 30m0s ago"}},
		"how long": {plain, 8, []Entry{due("a", 8, 0, 2)}, false, []string{"|nobody has said how long it runs; set caravan_duration"}},
		"no GPUs":  {plain, 8, []Entry{due("a", 0, 1, 2)}, false, []string{"met|"}},
		// 4 members need 4 hours: 16 member-hours. In 3 hours that is 6 members for one
		// and 5 for the others, 6 + 10.
		"more members than asked": {plain, 16, []Entry{linearly(elastic(due("a", 4, 4, 3), 2, 4, 16))}, false, []string{"met|it takes up to 3h0m0s with 6 of up to 16 members"}},
		"that help nobody knows":  {plain, 16, []Entry{elastic(due("a", 4, 4, 3), 2, 4, 16)}, false, []string{"|it takes up to 4h0m0s even alone"}},
		// It has done 1 of 4 hours with 4 members. By 6 hours from now 2 members, half
		// as fast, do the rest.
		"fewer are enough": {plain, 16, []Entry{linearly(runs(elastic(due("a", 4, 4, 6), 1, 4, 8), 1))}, false, []string{"urgent|it ends in 6h0m0s with 2 of up to 8 members"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.deadline.Promises(Situation{Now: deadlineNow, GPUs: tt.gpus, Jobs: tt.jobs}, preempt.Policy{Enabled: tt.displaces})
			for i, p := range got {
				kind := ""
				switch {
				case p.Urgent:
					kind = "urgent"
				case p.Met:
					kind = "met"
				}
				wantKind, want, _ := strings.Cut(tt.want[i], "|")
				if kind != wantKind || !strings.Contains(p.Why, want) || (p.Why == "") != (tt.want[i] == "") {
					t.Errorf("%s: %s|%s, want %s", tt.jobs[i].Job.ID, kind, p.Why, tt.want[i])
				}
			}
		})
	}
}

// The latest begin is that of a run with all members that the job may have.
func TestPromiseLatest(t *testing.T) {
	jobs := []Entry{due("a", 8, 2, 4.5), linearly(elastic(due("b", 4, 4, 9), 2, 4, 16)), runs(due("c", 1, 2, 4), 1), due("d", 99, 2, 4)}
	want := []time.Time{deadlineNow.Add(150 * time.Minute), deadlineNow.Add(8 * time.Hour), {}, {}}
	for i, p := range (Deadline{Safety: 1}).Promises(Situation{Now: deadlineNow, GPUs: 32, Jobs: jobs}, preempt.Policy{}) {
		if !p.Latest.Equal(want[i]) {
			t.Errorf("%s: %s, want %s", jobs[i].Job.ID, p.Latest, want[i])
		}
	}
}

// The order: what has to begin now, what was promised its deadline, then all
// others as they came. Elastic gangs share what is idle by what it brings.
func TestDeadlineStand(t *testing.T) {
	p := Policy{Order: OrderDeadline, Deadline: Deadline{Safety: 1, Margin: 10 * time.Minute}}
	p.Preempt.Enabled = true
	jobs := []Entry{
		due("old", 2, 1, 0), due("late", 2, 3, 1), due("calm", 2, 1, 9), due("sooner", 2, 1, 5), due("urgent", 2, 1, 1.1),
		runs(due("plain", 2, 9, 0), 1), runs(due("kept", 2, 9, 10), 1),
	}
	got := p.Discipline().Stand(Situation{Now: deadlineNow, GPUs: 16, Jobs: jobs})
	classes := map[string]int{}
	for i, st := range got {
		classes[jobs[i].Job.ID] = st.Class
		if st.Why == "" {
			t.Errorf("%s: no reason", jobs[i].Job.ID)
		}
	}
	want := map[string]int{"old": 1, "late": 1, "calm": 1, "sooner": 1, "urgent": 0, "plain": 1, "kept": 0}
	if diff := cmp.Diff(want, classes); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
	if !(got[3].Key < got[2].Key && got[2].Key < got[0].Key && got[0].Key == got[1].Key) {
		t.Errorf("keys %g %g %g %g", got[0].Key, got[1].Key, got[2].Key, got[3].Key)
	}
}

func TestDeadlineSpreadsWhatIsIdle(t *testing.T) {
	p := Policy{Order: OrderDeadline, Deadline: Deadline{Safety: 1}}
	// 16 GPUs, 8 held. The first needs 2 members to meet its deadline, has 4 and is
	// known to gain by more; of the second nothing is known.
	elastics := []Entry{linearly(runs(elastic(due("a", 4, 4, 6), 1, 4, 8), 1)), runs(elastic(due("b", 4, 4, 0), 1, 4, 8), 1)}
	members := func(more ...Entry) []int {
		var out []int
		for _, st := range p.Discipline().Stand(Situation{Now: deadlineNow, GPUs: 16, Jobs: append(elastics, more...)})[:2] {
			out = append(out, st.Members)
		}
		return out
	}
	if got := members(); !cmp.Equal(got, []int{8, 4}) {
		t.Errorf("alone: %v", got)
	}
	if got := members(due("w", 6, 1, 0)); !cmp.Equal(got, []int{6, 4}) {
		t.Errorf("beside one that waits: %v", got)
	}
	// It lacks 5. Each of their last members brings as much as its first, so the
	// younger gives, down to its least, and then the older.
	if got := members(due("w", 13, 1, 0)); !cmp.Equal(got, []int{2, 1}) {
		t.Errorf("when one lacks room: %v", got)
	}
}

func TestDeadlineValidate(t *testing.T) {
	for _, d := range []Deadline{{}, {Margin: time.Hour, Safety: 1}, {Safety: 10}} {
		if err := d.Validate(); err != nil {
			t.Errorf("%+v: %v", d, err)
		}
	}
	err := Policy{Deadline: Deadline{Margin: -1, Safety: 0.5}}.Validate()
	if !errors.Is(err, ErrPolicy) || !strings.Contains(err.Error(), "deadline.margin -1ns: want 0 to 720h") || !strings.Contains(err.Error(), "deadline.safety 0.5: want 1 to 10") {
		t.Errorf("%v", err)
	}
}

func anyDue(rng *rand.Rand, i int) Entry {
	e := due(fmt.Sprint("j", i), 1+rng.IntN(8), float64(rng.IntN(5)), float64(rng.IntN(12)-1))
	if rng.IntN(3) == 0 {
		e = elastic(e, 1, 1+rng.IntN(4), 4+rng.IntN(4))
		if rng.IntN(2) == 0 {
			e = linearly(e)
		}
	}
	if rng.IntN(3) == 0 {
		e = runs(e, float64(rng.IntN(4)))
	}
	e.Priority = rng.IntN(2)
	return e
}

// Whatever there is, elastic gangs stay within their bounds, nobody is urgent
// who was not promised anything, all that runs gets is there, and twice is the
// same.
func TestDeadlineStandings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		s := Situation{Now: deadlineNow, GPUs: rng.IntN(40)}
		free := s.GPUs
		for i := range 1 + rng.IntN(12) {
			e := anyDue(rng, i)
			if e.Held > free {
				e = due(fmt.Sprint("j", i), e.Asked, 1, 2)
			}
			free -= e.Held
			s.Jobs = append(s.Jobs, e)
		}
		p := Policy{Order: OrderDeadline}
		p.Preempt.Enabled = rng.IntN(2) == 0
		got := p.Discipline().Stand(s)
		if again := p.Discipline().Stand(s); !cmp.Equal(got, again) {
			t.Errorf("twice: %s", cmp.Diff(got, again))
		}
		sum := 0
		for i, promise := range p.Deadline.Promises(s, p.Preempt) {
			e, st := &s.Jobs[i], got[i]
			if promise.Urgent && !promise.Met || st.Class == classUrgent && !promise.Met || promise.Met && (e.Job.Deadline.IsZero() || !e.Left.Known) {
				t.Errorf("%s: %+v of %+v", e.Job.ID, st, promise)
			}
			if (promise.Why == "") != e.Job.Deadline.IsZero() {
				t.Errorf("%s: why %q", e.Job.ID, promise.Why)
			}
			if st.Members != 0 && (!e.elastic() || st.Members < e.Min || st.Members > max(e.Max, e.Members)) {
				t.Errorf("%s: %d members", e.Job.ID, st.Members)
			}
			// One that is to be smaller gives back what another one is to grow by.
			switch {
			case e.Running && st.Members > 0:
				sum += st.Members * e.GPUsPerMember
			case e.Running:
				sum += e.Held
			}
		}
		if sum > s.GPUs {
			t.Errorf("%d of %d GPUs", sum, s.GPUs)
		}
	})
}

// benchSituation is 10,000 jobs on 131,072 GPUs, a third of which runs.
func benchSituation() Situation {
	rng := rand.New(rand.NewPCG(1, 2))
	s := Situation{Now: deadlineNow, GPUs: 131072, Models: []ModelGPUs{{"A100", 65536}, {"H100", 32768}, {"L40", 32768}}}
	for i := range 10000 {
		e := due(fmt.Sprint(i), 1<<rng.IntN(7), 0.1+20*rng.Float64(), 0.1+48*rng.Float64())
		if i%4 == 0 {
			e = elastic(e, 1, 4, 16)
		}
		if i%2 == 0 {
			e.Job.Models = []model.ModelSpeed{{Name: "A100", Speed: 1}, {Name: "H100", Speed: 1 + math.Round(20*rng.Float64())/10}}
		}
		if i%3 == 0 {
			e = runs(e, 0.1*rng.Float64())
			e.Model = s.Models[i%2].Name
		}
		e.Waited = time.Duration(rng.IntN(300)) * time.Minute
		s.Jobs = append(s.Jobs, e)
	}
	return s
}

func BenchmarkDeadlineStand(b *testing.B) {
	s := benchSituation()
	for _, enabled := range []bool{false, true} {
		b.Run(fmt.Sprintf("jobs=10000/preempt=%t", enabled), func(b *testing.B) {
			d := deadlines{Deadline{}, preempt.Policy{Enabled: enabled}}
			for b.Loop() {
				d.Stand(s)
			}
		})
	}
}
