package daemon

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// process is one that is killed.
type process string

const (
	processNone       process = "nobody"
	processPlanner    process = "planner"
	processAutoscaler process = "autoscaler"
	processTarget     process = "caravan-terraform"
	processStrategy   process = "caravan-strategy"
	processAPM        process = "caravan-apm"
	processTerraform  process = "terraform"
	// processAgent is a node's agent, which its machine starts again; processMachine
	// is the machine itself, that the cloud takes away.
	processAgent   process = "a node's agent"
	processMachine process = "a machine"
	// processNomad is Nomad's servers, which are without a leader for a while.
	processNomad process = "nomad's leader"
)

// step is when.
type step string

const (
	stepRecorded   step = "purchase recorded, nobody told"
	stepTold       step = "told, not applied"
	stepPlanned    step = "ordered, being planned"
	stepApplying   step = "apply runs, one machine made"
	stepMade       step = "all machines made, state not written"
	stepUp         step = "node up, not ready"
	stepStarting   step = "nodes present, gang starts"
	stepRunning    step = "gang runs"
	stepDrain      step = "drain begun"
	stepDestroying step = "destroy runs, one machine gone"
	stepDestroyed  step = "all machines gone, state not written"
	stepUnreported step = "gone, not reported"
)

var (
	killed = []process{processPlanner, processAutoscaler, processTarget, processStrategy, processAPM, processTerraform, processAgent, processMachine, processNomad}
	steps  = []step{stepRecorded, stepTold, stepPlanned, stepApplying, stepMade, stepUp, stepStarting, stepRunning, stepDrain, stepDestroying, stepDestroyed, stepUnreported}
)

// trigger kills a process when a step is reached for the first time.
type trigger struct {
	who     process
	when    step
	fired   bool
	reached map[step]bool
}

func (t *trigger) reach(w *world, s step) {
	if !t.reached[s] {
		w.say("--- %s", s)
	}
	t.reached[s] = true
	if t.fired || s != t.when || t.who == processNone {
		return
	}
	t.fired = true
	w.say("KILL %s", t.who)
	switch t.who {
	case processPlanner:
		w.planner.kill(w)
	case processNomad:
		w.leaderless = w.now.Add(mended)
		w.planner.kill(w)
	case processTerraform:
		w.tf.kill(w)
	case processAgent, processMachine:
		m := w.alive()[0]
		m.down = w.now
		if t.who == processMachine {
			m.broken = true
			w.destroy(m)
		}
	default:
		w.scaler.kill(w, t.who)
	}
}

// possible says that there is such a process then.
func possible(p process, s step) bool {
	switch p {
	case processAgent, processMachine:
		return s != stepRecorded && s != stepTold && s != stepPlanned && s != stepDestroyed && s != stepUnreported
	}
	return true
}

// Nobody goes by another's clock: the autoscaler's may be a day ahead or behind, and
// all goes as if it were right.
func TestClocksThatDiffer(t *testing.T) {
	for _, skew := range []time.Duration{-26 * time.Hour, 26 * time.Hour} {
		w := newWorld(t, processNone, stepRecorded)
		w.skew = skew
		w.play()
		for _, fault := range w.faults() {
			t.Errorf("%s: %s", skew, fault)
		}
		if len(w.cloud) != 4 {
			t.Errorf("%s: %d machines were made, want 2 for each gang", skew, len(w.cloud))
		}
		if t.Failed() {
			t.Log("\n" + strings.Join(w.events, "\n"))
		}
	}
}

// newWorld is a world in which the home cluster is busy for long.
func newWorld(t *testing.T, who process, when step) *world {
	w := &world{t: t, now: burstTime, trigger: trigger{who: who, when: when, reached: map[step]bool{}}}
	w.tf = terraformProcess{state: terraform.State{}, notes: map[string][]byte{}, died: make(chan struct{}, 1)}
	w.store = &killStore{w: w}
	w.startPlanner()
	w.startScaler()
	keeper := w.addGang(keeperID, 1, 1000*time.Hour)
	w.admit(keeper, []model.Member{{Group: "g", Node: "home", GPUs: []string{"home.0", "home.1", "home.2", "home.3"}}})
	return w
}

// play lets two gangs come one after the other, until nothing has happened for long.
func (w *world) play() {
	first := w.addGang("m", 2, 30*time.Minute)
	first.Deadline = w.now.Add(90 * time.Minute)
	var second *gang
	var quiet time.Time
	for end := w.now.Add(12 * time.Hour); w.now.Before(end); {
		w.advance()
		w.evaluate()
		if first.State == "" && len(w.alive()) == 0 && (second == nil || second.State == "") {
			w.now = w.now.Add(4 * time.Minute) // nothing happens for long
		}
		switch {
		case second == nil && !first.done.IsZero() && w.now.Sub(first.done) > 2*time.Hour:
			second = w.addGang("n", 2, 10*time.Minute)
			second.Deadline = w.now.Add(20 * time.Hour)
		case second == nil || second.done.IsZero() || len(w.alive()) > 0:
			quiet = w.now
		case w.now.Sub(quiet) > 10*time.Minute:
			return
		}
	}
}

// Each process is killed at each step. Judged by the cloud's diary alone: both gangs
// have done their work, whole; no machine is left; and none was paid for and unused
// for longer than a billing period, besides the time that nobody was there.
func TestKillsAtEachStep(t *testing.T) {
	check := func(t *testing.T, who process, when step) {
		t.Parallel()
		w := newWorld(t, who, when)
		w.play()
		if who != processNone && !w.trigger.fired {
			t.Errorf("the step was not reached")
		}
		for _, fault := range w.faults() {
			t.Error(fault)
		}
		if t.Failed() {
			t.Log("\n" + strings.Join(w.events, "\n"))
		}
	}
	t.Run("nobody", func(t *testing.T) { check(t, processNone, stepRecorded) })
	for _, who := range killed {
		for _, when := range steps {
			if possible(who, when) {
				t.Run(fmt.Sprintf("%s/%s", who, when), func(t *testing.T) { check(t, who, when) })
			}
		}
	}
}

// faults judges a world that has come to rest, by its diary.
func (w *world) faults() (out []string) {
	fault := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, g := range w.gangs {
		did, last := time.Duration(0), time.Duration(0)
		for _, r := range g.runs {
			last = r.to.Sub(r.from)
			did += last
		}
		switch {
		case g.ID == keeperID && (len(g.runs) != 1 || !g.runs[0].to.IsZero()):
			fault("what runs at home was disturbed: %v", g.runs)
		case g.ID != keeperID && (g.done.IsZero() || did < g.Duration):
			fault("%s is lost: it has run for %s of %s", g.ID, did, g.Duration)
		case g.ID != keeperID && g.done.After(g.Deadline):
			fault("%s is through at %s, and was due at %s", g.ID, g.done.Format("15:04:05"), g.Deadline.Format("15:04:05"))
		}
	}
	// A gang is whole: where one member runs, so does the other, from when to when.
	type when struct {
		job      string
		from, to time.Time
	}
	members := map[when]int{}
	for _, m := range w.cloud {
		for _, r := range m.runs {
			members[when(r)]++
		}
		if m.exists() {
			fault("machine %s (%s), made at %s, is left", m.name, m.id, m.made.Format("15:04:05"))
			continue
		}
		unused, since := time.Duration(0), m.made
		for _, r := range m.runs {
			unused, since = max(unused, r.from.Sub(since)), r.to
		}
		unused = max(unused, m.gone.Sub(since))
		if unused > period+w.away() {
			fault("machine %s (%s) was paid for from %s to %s and did nothing for %s", m.name, m.id, m.made.Format("15:04:05"), m.gone.Format("15:04:05"), unused)
		}
	}
	for r, n := range members {
		if n != 2 {
			fault("%d members of %s ran from %s to %s", n, r.job, r.from.Format("15:04:05"), r.to.Format("15:04:05"))
		}
	}
	return out
}

// away is how long those were not there who have to act, at most.
func (w *world) away() time.Duration {
	if w.trigger.fired {
		return mended + 2*look
	}
	return 0
}

// The judge finds each kind of fault.
func TestKillsAreJudged(t *testing.T) {
	at := func(minutes int) time.Time { return burstTime.Add(time.Duration(minutes) * time.Minute) }
	runs := func(from, to int) []span { return []span{{"m", at(from), at(to)}} }
	sound := func() *world {
		return &world{now: at(300), cloud: []*machine{
			{id: "i-0", name: "p-0", made: at(0), gone: at(58), runs: runs(8, 38)}, {id: "i-1", name: "p-1", made: at(1), gone: at(58), runs: runs(8, 38)},
		}, gangs: []*gang{
			{Job: model.Job{ID: keeperID}, runs: []span{{keeperID, at(0), time.Time{}}}},
			{Job: model.Job{ID: "m", Duration: 30 * time.Minute, Deadline: at(90)}, done: at(38), runs: runs(8, 38)},
		}}
	}
	tests := map[string]struct {
		set  func(*world)
		want string
	}{
		"sound":        {func(*world) {}, ""},
		"an orphan":    {func(w *world) { w.cloud[1].gone = time.Time{} }, "i-1), made at 12:01:00, is left"},
		"left idle":    {func(w *world) { w.cloud[0].gone = at(99) }, "did nothing for 1h1m0s"},
		"never used":   {func(w *world) { w.cloud = append(w.cloud, &machine{id: "i-2", made: at(0), gone: at(61)}) }, "did nothing for 1h1m0s"},
		"lost":         {func(w *world) { w.gangs[1].done = time.Time{} }, "m is lost"},
		"not done":     {func(w *world) { w.gangs[1].runs[0].to = at(20) }, "it has run for 12m0s of 30m0s"},
		"late":         {func(w *world) { w.gangs[1].done = at(91) }, "m is through at 13:31:00, and was due at 13:30:00"},
		"half of it":   {func(w *world) { w.cloud[0].runs[0].to = at(37) }, "1 members of m ran"},
		"home stopped": {func(w *world) { w.gangs[0].runs[0].to = at(9) }, "what runs at home was disturbed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := sound()
			test.set(w)
			if got := strings.Join(w.faults(), "; "); !strings.Contains(got, test.want) || test.want == "" && got != "" {
				t.Errorf("faults are %q, want %q", got, test.want)
			}
		})
	}
}
