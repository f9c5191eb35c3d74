// Package sim plays the jobs of a trace on a modelled cluster in virtual time.
// Every decision is made by the code that decides in the planner, or by one of
// the baselines that it is compared with; the models are in models.go and
// speed.go, and docs/simulator.md says where they are from.
package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// Setup is one run.
type Setup struct {
	Cluster Cluster
	// Jobs are sorted by submission; the first is submitted at 0 or later.
	Jobs []trace.Job
	// Estimates are how long each job is thought to run, in seconds, 0 where
	// nobody knows; nil: nobody knows of any.
	Estimates []float64
	// Unsaved says of which jobs nothing that they have done outlasts a stop; nil: of
	// none. Elastic ones save it.
	Unsaved   []bool
	Scheduler Scheduler
	// Interval is how far apart decisions are at least, in seconds.
	Interval float64
	Speed    Speed
	// Growth is nil where it is linear.
	Growth      Growth
	Restart     Restart
	Checkpoints Checkpoints
	Failures    Failures
	// Divide is how long it takes to divide a GPU otherwise, in seconds, and
	// Interference by which part of its time a task takes longer for each other one
	// that has a time slice of the same GPU.
	Divide       float64
	Interference float64
	Seed         uint64
	// Log is told of every event; nil: nobody is.
	Log func(Event)
	// Spans is for how many GPUs it is kept who had them when; 0 is none.
	Spans int
	// Progress is told how many jobs are done, now and then; nil: nobody is.
	Progress func(done int)
}

// run is one run under way.
type run struct {
	Setup
	now      float64
	calendar calendar
	jobs     []job
	ledger   *ledger
	meter    meter
	gauges   gauges
	// planned is when the next decision is due; never if none is.
	planned, decided float64
	open             int // jobs that are not done
	parts            *parts
	// allocated counts the GPUs that somebody has, busy those of whole gangs, both
	// in units.
	allocated, busy int
	// idle counts the decisions in a row that left the cluster empty.
	idle int
	// vain counts those in which somebody waits besides, nodes that are down or not, and
	// empty is since when they do.
	vain  int
	empty float64
	// quiet is since when nothing happens although nodes can be bought, never if
	// something does; stuck says that it has been so for maxQuiet.
	quiet float64
	stuck bool
	// holders are the jobs by node.
	holders []map[int]bool
	down    []bool
	rng     *rand.Rand
	series  series
	// rows are the numbers of the nodes' first GPUs.
	rows  []int
	spans []Span
	// cloud are the places of bought nodes; nil where there are none.
	cloud *cloud
}

// Run plays a setup until all jobs are done.
func Run(ctx context.Context, s Setup) (*Outcome, error) {
	r := &run{Setup: s, jobs: make([]job, len(s.Jobs)), ledger: newLedger(&s.Cluster), parts: newParts(&s.Cluster), planned: never, quiet: never, decided: -s.Interval, open: len(s.Jobs),
		holders: make([]map[int]bool, len(s.Cluster.Nodes)), down: make([]bool, len(s.Cluster.Nodes)), rng: rand.New(rand.NewPCG(s.Seed, 0xfa11))}
	if r.Speed == nil {
		r.Speed = Even{}
	}
	if r.Growth == nil {
		r.Growth = linear
	}
	r.gauges = newGauges(s.Jobs, s.Cluster.PerNode)
	holds := s.Cluster.holder()
	for i := range s.Jobs {
		r.jobs[i] = newJob(&s.Jobs[i])
		if s.Estimates != nil {
			r.jobs[i].estimate = s.Estimates[i]
		}
		r.jobs[i].unsaved = s.Unsaved != nil && s.Unsaved[i]
		if !holds(&s.Jobs[i]) {
			return nil, fmt.Errorf("%w: job %s asks for %d GPUs: the cluster of %d, at most %d on a node, cannot hold it", ErrSetup, s.Jobs[i].ID, s.Jobs[i].GPUs, s.Cluster.GPUs, s.Cluster.PerNode)
		}
		r.calendar.add(event{at: s.Jobs[i].Submit, what: submitted, of: i})
	}
	r.ledger.byModel(&s.Cluster, r.jobs)
	for n := range r.holders {
		r.holders[n] = map[int]bool{}
	}
	for n := range s.Cluster.homes() {
		r.failLater(n)
	}
	if err := r.openCloud(); err != nil {
		return nil, err
	}
	_, r.meter.horizon = trace.Span(s.Jobs)
	r.series.step = r.meter.horizon / samples
	row := 0
	for i := range s.Cluster.Nodes {
		r.rows = append(r.rows, row)
		row += len(s.Cluster.Nodes[i].GPUs)
	}
	r.meter.gpus = s.Cluster.GPUs
	for r.open > 0 && !r.stuck {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e, ok := r.calendar.next()
		if !ok {
			return nil, fmt.Errorf("%w: %d jobs wait for ever: nothing happens any more and the scheduler does not start them", ErrSetup, r.open)
		}
		if e.at > maxTime && r.open > 0 {
			return nil, fmt.Errorf("jobs that have not ended: %d: %w", r.open, tooLong(e.at))
		}
		r.advance(e.at)
		if err := r.handle(e); err != nil {
			return nil, fmt.Errorf("at %.3f s: %w", r.now, err)
		}
	}
	return r.outcome(), nil
}

// advance moves the time on; what was so until then is counted.
func (r *run) advance(to float64) {
	if to > r.now {
		r.meter.pass(r, to)
		r.gauges.pass(r.ledger, r.now, to, r.meter.horizon)
		r.series.take(r, to)
		r.now = to
	}
}

func (r *run) handle(e event) error {
	switch e.what {
	case submitted:
		return r.submit(e.of)
	case finished:
		if j := &r.jobs[e.of]; j.phase == running && j.turn == e.turn {
			return r.finish(e.of)
		}
	case loaded:
		if j := &r.jobs[e.of]; j.phase == running && j.turn == e.turn {
			r.log(e.of, EventResize, j.pieces, j.speed)
		}
	case stopped:
		if j := &r.jobs[e.of]; j.phase == leaving && j.turn == e.turn {
			return r.left(e.of)
		}
	case divided:
		return r.divided(e.of, e.turn)
	case failed, repaired:
		r.meter.events++
		return r.fail(e.of, e.what == failed)
	case booted, given, taken:
		if r.cloud.turn[e.of] != e.turn {
			return nil
		}
		if r.meter.events++; e.what == booted {
			return r.arrive(e.of)
		}
		return r.depart(e.of, e.what == given)
	case decide:
		if e.at == r.planned {
			return r.decide()
		}
	}
	return nil
}

// ask plans a decision, not sooner than the interval allows.
func (r *run) ask(at float64) { r.plan(max(at, r.decided+r.Interval)) }

// plan plans a decision at a time, unless one comes before.
func (r *run) plan(at float64) {
	if at < r.planned {
		r.planned = at
		r.calendar.add(event{at: at, what: decide})
	}
}

func (r *run) submit(i int) error {
	j := &r.jobs[i]
	r.meter.events++
	j.phase, j.asked = waiting, r.now
	j.apart, j.presence = r.gauges.apart(j.GPUs), r.gauges.presence
	r.gauges.present++
	r.queue(j, 1)
	r.log(i, EventSubmit, nil, 0)
	r.ask(r.now)
	return r.Scheduler.Submit(r.now, Ask{Job: i, ID: j.ID, Submitted: j.Submit, Deadline: j.Deadline, Estimate: j.estimate, Unsaved: j.unsaved, GPUs: j.GPUs, Min: j.Min, Max: j.Max, Queue: j.Queue, Class: j.Class, Interactive: j.interactive(), Model: j.Model, Share: j.Share, Profile: j.Profile, Models: allowed(j.GPUModels)})
}

func (r *run) finish(i int) error {
	j := &r.jobs[i]
	r.meter.events++
	j.advance(r.now)
	j.left = 0
	j.phase, j.ended = done, r.now
	j.presence = r.gauges.presence - j.presence
	r.gauges.present--
	r.log(i, EventFinish, j.pieces, 0)
	r.release(i)
	r.open--
	if r.Progress != nil && r.open%64 == 0 {
		r.Progress(len(r.jobs) - r.open)
	}
	r.ask(r.now)
	return r.Scheduler.Finish(r.now, i)
}

// release takes a job's GPUs away.
func (r *run) release(i int) {
	j := &r.jobs[i]
	j.held += float64(j.has()) / unit * (r.now - j.began)
	r.drop(i)
	j.turn++
}

// drop takes a job's GPUs away, whatever becomes of it.
func (r *run) drop(i int) {
	j := &r.jobs[i]
	r.span(i)
	r.give(j.pieces)
	for _, p := range j.pieces {
		delete(r.holders[p.Node], i)
	}
	r.allocated -= j.has()
	if j.working {
		r.busy -= j.has()
	}
	had := j.pieces
	j.pieces, j.placed, j.working = nil, 0, false
	r.disturb(had)
}

// queue notes that one job more, or less, waits. Who asks for a MIG instance cannot
// have whole GPUs.
func (r *run) queue(j *job, change int) {
	if j.inParts() {
		r.parts.waiting += change
	}
	switch {
	case j.Profile != "":
	case j.GPUModels != "":
		r.ledger.kinds.wait(j.GPUs, j.GPUModels, change)
	default:
		r.ledger.wait(j.GPUs, change)
	}
}

// place gives a job GPUs beside those that it has.
func (r *run) place(i int, pieces []Piece) error {
	j := &r.jobs[i]
	each := j.units(pieces)
	if models := allowed(j.GPUModels); slices.ContainsFunc(pieces, func(p Piece) bool { return !r.Cluster.mayRunOn(p.Node, models) }) {
		return fmt.Errorf("job %s: some of %v is none of %s", j.ID, pieces, j.GPUModels)
	}
	switch {
	case len(pieces) == 1 && pieces[0].Part > 0:
		if err := r.parts.take(i, j.Profile, pieces[0], each); err != nil {
			return fmt.Errorf("job %s: %w", j.ID, err)
		}
	case j.Profile != "":
		return fmt.Errorf("job %s: %v: it asks for an instance %s", j.ID, pieces, j.Profile)
	case !r.ledger.take(pieces):
		return fmt.Errorf("job %s: some of %v is not free", j.ID, pieces)
	}
	for _, p := range pieces {
		r.holders[p.Node][i] = true
	}
	if len(j.pieces) > 0 {
		r.span(i) // from now on it has more
	}
	j.spanned = r.now
	j.pieces = append(slices.Clone(j.pieces), pieces...)
	n := count(pieces)
	j.placed += n
	j.each = each
	r.allocated += n * each
	r.disturb(pieces)
	return nil
}

// give frees pieces, but not those of nodes that are down.
func (r *run) give(pieces []Piece) {
	for _, p := range pieces {
		switch {
		case p.Part > 0:
			r.parts.give(p)
		case !r.down[p.Node]:
			r.ledger.give([]Piece{p})
		}
	}
}

func (r *run) left(i int) error {
	j := &r.jobs[i]
	r.meter.events++
	j.stops++
	if j.unsaved {
		r.lose(j, j.Duration)
	}
	r.log(i, EventStop, j.pieces, 0)
	r.release(i)
	r.wait(i)
	r.ask(r.now)
	return r.Scheduler.Left(r.now, i)
}

// wait puts a job that was placed back among those that wait.
func (r *run) wait(i int) {
	j := &r.jobs[i]
	j.phase, j.asked, j.lately = waiting, r.now, 0
	r.queue(j, 1)
}

func (r *run) decide() error {
	r.planned, r.decided = never, r.now
	// The only look at the real clock: how long a decision takes.
	began := time.Now()
	actions, again, err := r.Scheduler.Decide(r.now)
	r.meter.decided(time.Since(began))
	if err != nil {
		return fmt.Errorf("decide: %w", err)
	}
	r.meter.events += len(actions)
	for _, a := range actions {
		if err := r.act(a); err != nil {
			return fmt.Errorf("%w: %w; it was to be done because: %s", ErrScheduler, err, a.Reason)
		}
	}
	if err := r.trade(); err != nil {
		return err
	}
	if again > 0 {
		r.ask(again)
	}
	r.watchQuiet(len(actions))
	return r.watchVain(len(actions))
}

// unborn counts the jobs that are still to be submitted.
func (r *run) unborn() int {
	n := 0
	for i := range r.jobs {
		if r.jobs[i].phase == unborn {
			n++
		}
	}
	return n
}

// outcome sums up.
func (r *run) outcome() *Outcome {
	bought := 0.0
	if r.cloud != nil {
		bought = r.Scheduler.(buyer).Spent(r.now)
	}
	end := r.now
	if r.stuck {
		end = r.quiet
	}
	return &Outcome{bought: bought, unfinished: r.unfinished(), jobs: r.jobs, meter: r.meter, useless: r.gauges.useless, renting: r.gauges.renting, cluster: r.Cluster, end: end, samples: r.series.list, spans: r.spans}
}

func (r *run) nodesOf(pieces []Piece) int {
	var nodes []int
	for _, p := range pieces {
		if !slices.Contains(nodes, p.Node) {
			nodes = append(nodes, p.Node)
		}
	}
	return len(nodes)
}
