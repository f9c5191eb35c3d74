package apply

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// Checker says what is to be done next, by what is intended and what is there.
// It changes nothing. It may be used by one goroutine at a time.
type Checker struct {
	opts Options

	mu sync.Mutex
	// hashes remembers the user's version of each job by the job's index.
	hashes map[key]hashed
	// missing is since when a gang's members have been in trouble.
	missing map[key]map[troubleKey]time.Time
	// sound remembers of which version of a job it is known that its pins hold,
	// and repinned when pins were last set right.
	sound    map[key]pinsChecked
	repinned map[key]time.Time
	// forced is when Nomad was asked last to start a job's failed members again.
	forced map[key]time.Time
	// told is when allocations that are lost were told to stop.
	told map[string]time.Time
	// withheld are the jobs whose records stay although they have ended.
	withheld map[key]bool
	// next is when something is due even if nothing happens.
	next time.Time
}

type key struct{ namespace, job string }

type hashed struct {
	index      uint64
	recordHash string
	hash       string
}

// NewChecker returns a Checker.
func NewChecker(opts Options) *Checker {
	return &Checker{opts: opts.withDefaults(), hashes: map[key]hashed{}, missing: map[key]map[troubleKey]time.Time{},
		sound: map[key]pinsChecked{}, repinned: map[key]time.Time{}, forced: map[key]time.Time{}, told: map[string]time.Time{}}
}

// Check returns the next step for each job that needs one, in the view's
// order. The view's time is the time.
func (c *Checker) Check(v *observe.View) []Step {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next, c.withheld = time.Time{}, map[key]bool{}
	r := newRound(c, v)
	var steps []Step
	present := map[key]bool{}
	for i := range v.Managed {
		j := r.job(&v.Managed[i])
		present[j.key()] = true
		if step := j.check(); step != nil && !c.withholds(step) {
			steps = append(steps, *step)
		}
	}
	for _, rec := range v.Orphans {
		if arriving(rec, v.Taken) {
			continue
		}
		step := Step{Namespace: rec.Namespace, Job: rec.JobID, Kind: KindForget,
			Reason: "Nomad does not know the job any more", Forget: rec}
		if !c.withholds(&step) {
			steps = append(steps, step)
		}
	}
	keep(c.hashes, present)
	keep(c.missing, present)
	keep(c.sound, present)
	keep(c.repinned, present)
	keep(c.forced, present)
	maps.DeleteFunc(c.told, func(id string, _ time.Time) bool { return !r.allocs[id].Lost })
	return steps
}

// Due is when the next look is due even if nothing happens in Nomad, as of the
// last Check; zero if never.
func (c *Checker) Due() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}

// round is one Check.
type round struct {
	*Checker
	view    *observe.View
	allocs  map[string]model.Alloc
	cluster *rewrite.Cluster
	nodes   map[string]*model.Node
	// pinChecks is how many jobs' pins were looked at.
	pinChecks int
	// saves are the gangs that are saving their checkpoints; nil until somebody asks.
	saves preempt.Loads
}

func newRound(c *Checker, v *observe.View) *round {
	r := &round{Checker: c, view: v, allocs: map[string]model.Alloc{}}
	if v.Snapshot != nil {
		for _, a := range v.Snapshot.Allocs {
			r.allocs[a.ID] = a
		}
	}
	return r
}

func (r *round) pins() *rewrite.Cluster {
	if r.cluster == nil {
		r.cluster = Cluster(r.view)
	}
	return r.cluster
}

// job is one job in a round.
type job struct {
	*round
	m   *observe.Managed
	rec *record.Record
	cur *api.Job
	// states are the members in force; see settle.
	states []observe.MemberState
}

func (r *round) job(m *observe.Managed) *job {
	j := &job{round: r, m: m, rec: m.Record, cur: m.Current}
	if j.rec != nil && (j.rec.Phase == record.PhaseAdmitted || j.rec.Phase == record.PhaseRunning) {
		j.states = fresh(m, j.rec)
	}
	return j
}

func (j *job) key() key { return key{j.m.Namespace, j.m.ID} }

func (j *job) now() time.Time { return j.view.Taken }

// step begins a step about the job.
func (j *job) step(kind Kind, reason string) *Step {
	return &Step{Namespace: j.m.Namespace, Job: j.m.ID, Kind: kind, Reason: reason}
}

// next is a copy of the record, to be changed and written.
func (j *job) next(reason string) *record.Record {
	out := *j.rec
	if reason != "" {
		out.Reason = reason
	}
	if deref(j.cur.JobModifyIndex) > out.PriorIndex {
		out.Prior = nil // Nomad has this version
	}
	return &out
}

// check is the next step, nil if there is none.
func (j *job) check() *Step {
	if j.cur == nil {
		return nil
	}
	stopped, dead := deref(j.cur.Stop), deref(j.cur.Status) == "dead"
	live := j.live()
	switch {
	case j.rec == nil && (stopped || dead):
		return nil
	case j.rec == nil:
		return j.adopt(len(live))
	case j.rec.Phase == record.PhaseReleased:
		return nil
	case stopped && len(live) == 0, dead && j.through():
		step := j.step(KindForget, "the job has ended")
		step.Forget = j.rec
		if e, tells := j.ending(); tells {
			step.Ending = &e
		}
		return step
	case stopped:
		return nil
	}
	if deref(j.cur.JobModifyIndex) <= j.rec.PriorIndex && (j.rec.Home != "" || arriving(j.rec, j.now())) {
		return nil // it is one of that name from before
	}
	if step := j.resubmitted(); step != nil {
		return step
	}
	switch j.rec.Phase {
	case record.PhaseAdmitted:
		return j.admitted()
	case record.PhaseRunning:
		return j.running()
	case record.PhaseRollback:
		return j.rollback(live)
	default:
		return j.queued(live)
	}
}

// through says whether a dead job's members have done what they were placed
// for. Nomad calls other jobs dead for a moment, too.
func (j *job) through() bool {
	if j.rec.Phase != record.PhaseRunning && j.rec.Phase != record.PhaseAdmitted {
		return false
	}
	for _, s := range j.states {
		if s.State.Holds() || s.State == observe.AllocNone && j.rec.Phase == record.PhaseAdmitted {
			return false
		}
	}
	return true
}

// live are the allocations that still hold something and whose client can be
// reached.
func (j *job) live() []*api.AllocationListStub {
	var out []*api.AllocationListStub
	for _, a := range j.m.Allocs {
		if held, ok := j.allocs[a.ID]; ok && !held.Lost {
			out = append(out, a)
		}
	}
	return out
}

// stoppable are the IDs of the allocations that hold something and that are
// not told to stop yet. Lost ones are told too, now and then: they obey when
// their node is back, and until then nothing shows that they know.
func (j *job) stoppable(only func(*api.AllocationListStub) bool) []string {
	var out []string
	for _, a := range j.m.Allocs {
		held, holds := j.allocs[a.ID]
		if !holds || a.DesiredStatus != api.AllocDesiredStatusRun || !only(a) {
			continue
		}
		if held.Lost {
			if told, ok := j.told[a.ID]; ok && told.Add(j.opts.RetryMax).After(j.now()) {
				continue
			}
			j.told[a.ID] = j.now()
		}
		out = append(out, a.ID)
	}
	return out
}

func all(*api.AllocationListStub) bool { return true }

// adopt makes a record of a job that is seen for the first time.
func (j *job) adopt(live int) *Step {
	orig, err := rewrite.Strip(j.cur, nil)
	if err != nil {
		return j.step(KindNote, fmt.Sprintf("the job cannot be read: %v", err))
	}
	step := j.step(KindAdopt, "")
	rec := j.submission(orig)
	step.Put, step.ReadSource, step.Version = rec, true, int(deref(j.cur.Version))
	gated := rewrite.IsGated(j.cur)
	vain := j.inVain()
	switch {
	case live > 0 && vain != "":
		rec.Phase, rec.Reason = record.PhaseRollback, vain
		rec.Note(j.now(), string(KindRollback), vain)
		if !gated {
			step.Register, err = j.gated(orig)
		}
	case j.m.Adopted, live > 0 && j.m.Model.Gang == model.GangNone:
		rec.Phase, rec.PlacedHash, rec.Unpinned = record.PhaseRunning, rec.SpecHash, true
		for _, s := range j.m.Members {
			rec.Members = append(rec.Members, s.Member)
		}
		rec.Reason = "Nomad placed it by itself before Caravan saw it; it runs on where it is"
		if !j.m.Adopted && !gated {
			rec.Reason = "Nomad placed a part of it by itself before Caravan saw it; that runs on where it is, and the rest is placed when it has ended"
			step.Register, err = rewrite.GateCurrent(j.cur)
		}
	default:
		if live > 0 {
			rec.Phase = record.PhaseRollback
			rec.Reason = "Nomad placed a part of the gang by itself; that is stopped, and the gang waits whole"
		}
		if !gated {
			step.Register, err = j.gated(orig)
		}
	}
	if err != nil {
		return j.step(KindNote, fmt.Sprintf("the job cannot be gated: %v", err))
	}
	step.Reason, step.Index = rec.Reason, deref(j.cur.JobModifyIndex)
	return step
}

// submission is the record of a submission that came past the gateway.
func (j *job) submission(orig *api.Job) *record.Record {
	rec := &record.Record{
		Namespace: j.m.Namespace, JobID: j.m.ID, Original: orig, SpecHash: gangspec.Hash(orig),
		Submitter: deref(j.cur.NomadTokenID), Submitted: j.m.Model.Submitted, Phase: record.PhaseQueued,
	}
	if i := deref(j.cur.JobModifyIndex); i > 0 {
		rec.PriorIndex = i - 1
	}
	return rec
}

// resubmitted finds a version that the user has registered with Nomad itself.
// What runs of the one before is stopped when the new one is queued.
func (j *job) resubmitted() *Step {
	if j.userHash() == j.rec.SpecHash {
		return nil
	}
	if was := j.rec.InForce(deref(j.cur.JobModifyIndex)); was != j.rec {
		return j.notArrived(was)
	}
	orig, err := rewrite.Strip(j.cur, j.rec.Original)
	if err != nil {
		return j.step(KindNote, fmt.Sprintf("the job cannot be read: %v", err))
	}
	if step := j.beginRollout(orig); step != nil {
		return step
	}
	if step := j.beginResize(orig); step != nil {
		return step
	}
	rec := j.submission(orig)
	rec.Submitted = time.Unix(0, deref(j.cur.SubmitTime)).UTC()
	rec.PlacedHash, rec.Members, rec.ModifyIndex = j.rec.PlacedHash, j.rec.Members, j.rec.ModifyIndex
	rec.Route, rec.Home = j.rec.Route, j.rec.Home
	rec.Reason = "the job was changed in Nomad itself, by hand or by Nomad's own roll-back of a failed deployment; this version is queued"
	rec.History = j.rec.History
	rec.Note(j.now(), string(KindResubmit), rec.Reason)
	step := j.step(KindResubmit, rec.Reason)
	step.Put, step.ReadSource, step.Version = rec, true, int(deref(j.cur.Version))
	if !rewrite.IsGated(j.cur) {
		if step.Register, err = j.gated(orig); err != nil {
			return j.step(KindNote, fmt.Sprintf("the job cannot be gated: %v", err))
		}
		step.Index = deref(j.cur.JobModifyIndex)
	}
	return step
}

// notArrived puts the record of the version before back. The gateway could not:
// Nomad's Variables were away as well when it could not register the new one.
func (j *job) notArrived(was *record.Record) *Step {
	step := j.step(KindNote, fmt.Sprintf("a version that was submitted at %s did not reach Nomad, so the one before it stays in force; submit it again",
		j.rec.Arriving.Format(time.RFC3339)))
	step.Put = was
	step.Put.Note(j.now(), string(KindNote), step.Reason)
	return step
}

// userHash names the user's version of the job as it is in Nomad; the
// record's where it cannot be told.
func (j *job) userHash() string {
	if to := rewrite.RollingTo(j.cur); to != "" && (to == j.rec.SpecHash || j.rec.Rollout != nil && to == j.rec.Rollout.SpecHash) {
		return j.rec.SpecHash
	}
	index := deref(j.cur.JobModifyIndex)
	known := j.hashes[j.key()]
	if known.hash != "" && known.index == index && known.recordHash == j.rec.SpecHash {
		return known.hash
	}
	own, err := rewrite.Strip(j.cur, j.rec.Original)
	if err != nil {
		return j.rec.SpecHash
	}
	hash := gangspec.Hash(own)
	j.hashes[j.key()] = hashed{index: index, recordHash: j.rec.SpecHash, hash: hash}
	return hash
}

// gated is the user's job with the gate.
func (j *job) gated(orig *api.Job) (*api.Job, error) {
	out, err := rewrite.Gate(orig)
	if err == nil {
		rewrite.Note(out, "Caravan holds this job until all that belongs together can be placed.", j.link())
	}
	return out, err
}

func (j *job) link() string {
	if j.opts.Link == nil {
		return ""
	}
	return j.opts.Link(j.m.Namespace, j.m.ID)
}
