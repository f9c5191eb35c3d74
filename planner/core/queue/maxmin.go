package queue

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/share"
)

// Max-min fairness where GPUs differ (Narayanan et al., Gavel, OSDI'20; the
// arithmetic is in package share). A linear program says which part of the time
// each job is to run on each model of GPUs, so that whoever has least, measured by
// the speed that an equal part of every model would give him, has as much as can
// be. Time goes in rounds: what has been placed keeps its GPUs for one. Then those
// go first who have had least of what they are to have: their priority is that
// part of the time by the one that they ran in (the paper's section 5).
//
// What is simpler here than in the paper. Jobs alike are one in the program, and
// where there are more kinds than it can bear, kinds that are nearly alike are
// taken for one. Rounds begin for each job when it is placed, and nothing is stopped
// at the end of one unless somebody takes its GPUs: so a job that runs does not move
// to another model by itself. No two jobs share a GPU.

// MaxMin are the parameters of maxmin.
type MaxMin struct {
	// Round is how long a job keeps its GPUs at least; 0 means DefaultRound.
	Round time.Duration `json:"round_ns,omitempty"`
}

// DefaultRound is several times what a restart takes; the paper's rounds have 6
// minutes.
const DefaultRound = 20 * time.Minute

// Validate reports every fault.
func (m MaxMin) Validate() error {
	if m.Round != 0 && (m.Round < MinLease || m.Round > MaxLease) {
		return fmt.Errorf("%w: maxmin.round %s: want %s to %s", ErrPolicy, m.Round, MinLease, MaxLease)
	}
	return nil
}

// WithDefaults is m with its zeros filled in.
func (m MaxMin) WithDefaults() MaxMin {
	if m.Round == 0 {
		m.Round = DefaultRound
	}
	return m
}

// maxKinds bounds the kinds of jobs in the program, and maxTimes its variables:
// kinds by models of GPUs.
const (
	maxKinds = 96
	maxTimes = 192
)

type maxMin struct{ MaxMin }

func newMaxMin(p Policy) Discipline { return maxMin{p.MaxMin.WithDefaults()} }

// Stand implements Discipline.
func (m maxMin) Stand(s Situation) []Standing {
	r := m.newRound(s)
	out := make([]Standing, len(s.Jobs))
	var rest []int
	for i := range s.Jobs {
		e := &s.Jobs[i]
		if turn, longer := e.turnOf(m.Round); e.Running && e.Turn < turn {
			r.take(e, r.modelIndex(e.Model))
			out[i] = Standing{Class: classHeld, Key: r.key(i), Why: fmt.Sprintf("%s; its round lasts for another %s%s", r.why(i), (turn - e.Turn).Round(time.Second), longer)}
		} else {
			rest = append(rest, i)
		}
	}
	chosen := r.choose(rest)
	for _, i := range rest {
		st := Standing{Class: classOther, Key: r.key(i), Why: r.why(i) + "; not chosen for the next round, so it gets what others leave"}
		if at, ok := chosen[i]; ok {
			st.Class, st.Why = classChosen, r.why(i)+"; chosen for the next round"
			if e := &s.Jobs[i]; e.Running || e.namesModels() || len(s.Models) == 1 {
				st.Why += " on " + s.Models[at].Name
			}
			if e := &s.Jobs[i]; !e.Running && len(e.Job.Models) > 1 {
				st.Model = s.Models[at].Name
			}
		}
		out[i] = st
	}
	spread(s, out)
	return out
}

// round is one round: who is to have what, and what of it is given.
type round struct {
	s     *Situation
	kinds *kinds
	parts []share.Part
	// free are the GPUs of each model that are not given yet.
	free []int
}

func (m maxMin) newRound(s Situation) *round {
	r := &round{s: &s, kinds: kindsOf(&s)}
	capacity := make([]int, len(s.Models))
	for at := range s.Models {
		capacity[at] = s.Models[at].GPUs
	}
	r.free = slices.Clone(capacity)
	parts, err := share.MaxMin(capacity, r.kinds.runners)
	if err != nil { // numbers that cannot be: everybody is to have the same
		parts = make([]share.Part, len(r.kinds.runners))
		for k := range parts {
			parts[k] = share.Part{Time: make([]float64, len(capacity)), Level: 1}
			for at, speed := range r.kinds.runners[k].Speed {
				parts[k].Time[at] = min(speed, 1)
			}
		}
	}
	for k := range parts { // what differs by less than this is equal
		for at, time := range parts[k].Time {
			parts[k].Time[at] = math.Round(time*1e6) / 1e6
		}
	}
	r.parts = parts
	return r
}

func (r *round) modelIndex(name string) int {
	at, found := slices.BinarySearchFunc(r.s.Models, name, func(m ModelGPUs, name string) int { return strings.Compare(m.Name, name) })
	if !found {
		return -1
	}
	return at
}

func (r *round) take(e *Entry, at int) {
	if at >= 0 {
		r.free[at] -= max(e.Held, 0)
	}
}

// target is the part of the time that a job is to run.
func (r *round) target(i int) float64 {
	sum := 0.0
	for _, time := range r.parts[r.kinds.of[i]].Time {
		sum += time
	}
	return sum
}

// received is the part of the time, since it was submitted, in which a job ran.
func (e *Entry) received() float64 {
	if e.Ran <= 0 {
		return 0
	}
	return e.Ran.Seconds() / (e.Ran + e.Waited).Seconds()
}

// receivedOn is the same by model. What of it nobody knows on which model it was,
// it is taken to have had as it was to.
func (r *round) receivedOn(i int) []float64 {
	e, out := &r.s.Jobs[i], make([]float64, len(r.s.Models))
	if e.Ran <= 0 {
		return out
	}
	rest := e.Ran.Seconds()
	for at := range out {
		ran := e.Job.RanByModel[r.s.Models[at].Name].Seconds()
		if r.s.Models[at].Name == e.Model {
			ran += (e.Ran - e.Job.Ran).Seconds() // since it was noted last
		}
		out[at] = min(ran, rest)
		rest -= out[at]
	}
	whole, target := (e.Ran + e.Waited).Seconds(), r.target(i)
	for at, time := range r.parts[r.kinds.of[i]].Time {
		if target > 0 {
			out[at] += rest * time / target
		}
		out[at] /= whole
	}
	return out
}

// noPart is the key of those that are to have nothing, since they can run nowhere,
// and the most that a key can be.
const noPart = 1e9

// key is the inverse of the paper's priority, for all models together.
func (r *round) key(i int) float64 {
	if target := r.target(i); target > 1e-9 {
		return min(r.s.Jobs[i].received()/target, noPart)
	}
	return noPart
}

// pair is a job on a model, with the paper's priority: what it is to have there by
// what it has had.
type pair struct {
	job, model            int
	priority, part, speed float64
}

// choose chooses jobs for the round, and the model for each: the pair with the
// highest priority first, as long as there is room. What runs stays where it is.
func (r *round) choose(jobs []int) map[int]int {
	var pairs []pair
	for _, i := range jobs {
		e, received := &r.s.Jobs[i], r.receivedOn(i)
		for at, time := range r.parts[r.kinds.of[i]].Time {
			if e.Running && r.s.Models[at].Name != e.Model || !(r.kinds.speeds[i][at] > 0) {
				continue
			}
			p := pair{job: i, model: at, part: time, speed: r.kinds.speeds[i][at]}
			switch {
			case time < 1e-9:
			case received[at] > 0:
				p.priority = time / received[at]
			default:
				p.priority = math.Inf(1)
			}
			pairs = append(pairs, p)
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(b.part, a.part), cmp.Compare(a.job, b.job), cmp.Compare(b.speed, a.speed))
	})
	chosen := map[int]int{}
	for _, p := range pairs {
		e := &r.s.Jobs[p.job]
		gpus := e.Asked
		if e.Running {
			gpus = e.Held
		}
		if _, has := chosen[p.job]; !has && gpus <= r.free[p.model] {
			chosen[p.job] = p.model
			r.free[p.model] -= gpus
		}
	}
	return chosen
}

// why says what a job is to have, and what it has had. One that names no models is
// placed on any, whatever the program reckons with.
func (r *round) why(i int) string {
	part := &r.parts[r.kinds.of[i]]
	if sum := r.target(i); sum >= 0.005 && len(r.s.Models) > 1 && !r.s.Jobs[i].namesModels() {
		return fmt.Sprintf("to run %.0f %% of the time, on whatever it fits, %.2g times an equal part; has run %.0f %%", 100*sum, part.Level, 100*r.s.Jobs[i].received())
	}
	var on []string
	for at, time := range part.Time {
		if time >= 0.005 {
			on = append(on, fmt.Sprintf("%.0f %% on %s", 100*time, r.s.Models[at].Name))
		}
	}
	if len(on) == 0 {
		return "no part of the time, since no model has GPUs for it"
	}
	return fmt.Sprintf("to run %s of the time, %.2g times an equal part; has run %.0f %%", strings.Join(on, " and "), part.Level, 100*r.s.Jobs[i].received())
}

// kinds are the jobs by what they ask for and how fast they are.
type kinds struct {
	runners []share.Runner
	// of is each job's kind, speeds its speeds by model.
	of     []int
	speeds [][]float64
}

// kindsOf tells kinds apart as finely as the program can bear.
func kindsOf(s *Situation) *kinds {
	k := &kinds{of: make([]int, len(s.Jobs)), speeds: make([][]float64, len(s.Jobs))}
	for i := range s.Jobs {
		k.speeds[i] = speedsOf(&s.Jobs[i], s.Models)
	}
	most := max(1, min(maxKinds, maxTimes/max(1, len(s.Models))))
	for _, steps := range []float64{0, 16, 8, 4, 2, 1, 0.5, 0.25} { // 0 is exactly
		if k.group(s, steps, most) {
			return k
		}
	}
	k.group(s, 0.125, math.MaxInt)
	return k
}

// group takes for one kind what is alike up to a step, of which there are so many
// to a doubling. It is false if there are more kinds than may be.
func (k *kinds) group(s *Situation, steps float64, most int) bool {
	k.runners = nil
	kind := map[string]int{}
	sum := map[int]int{}
	for i := range s.Jobs {
		e := &s.Jobs[i]
		gpus := max(e.Asked, e.Held, 1)
		key := kindKey(gpus, k.speeds[i], steps)
		at, there := kind[key]
		if !there {
			if at = len(k.runners); at >= most {
				return false
			}
			kind[key] = at
			k.runners = append(k.runners, share.Runner{GPUs: gpus, Speed: slices.Clone(k.speeds[i])})
		}
		k.of[i] = at
		k.runners[at].Jobs++
		sum[at] += gpus
	}
	for at := range k.runners { // all their GPUs are there
		r := &k.runners[at]
		r.GPUs = max(1, (sum[at]+r.Jobs/2)/r.Jobs)
	}
	return true
}

func kindKey(gpus int, speeds []float64, steps float64) string {
	step := func(x float64) float64 {
		if steps == 0 || !(x > 0) {
			return x
		}
		return math.Round(math.Log2(x)*steps) / steps
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%g", step(float64(gpus)))
	for _, speed := range speeds {
		fmt.Fprintf(&b, " %g", step(speed))
	}
	return b.String()
}

// speedsOf are a job's speeds by model: those that it names, or 1 on all where it
// names none.
func speedsOf(e *Entry, models []ModelGPUs) []float64 {
	out := make([]float64, len(models))
	only := e.namedModel()
	for at := range models {
		switch {
		case len(e.Job.Models) == 0 && (only == "" || only == models[at].Name):
			out[at] = 1
		case len(e.Job.Models) > 0:
			for _, m := range e.Job.Models {
				if m.Name == models[at].Name {
					out[at] = m.Speed
				}
			}
		}
	}
	return out
}

// namesModels reports whether it is placed on the models that it names, and on no
// others.
func (e *Entry) namesModels() bool { return len(e.Job.Models) > 0 || e.namedModel() != "" }

// namedModel is the model in a device's name: "nvidia/gpu/MODEL".
func (e *Entry) namedModel() string {
	for i := range e.Job.Groups {
		for _, d := range e.Job.Groups[i].Devices {
			if parts := strings.SplitN(d.Name, "/", 3); len(parts) == 3 {
				return parts[2]
			}
		}
	}
	return ""
}
