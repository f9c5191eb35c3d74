package apply

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// writers bounds how many jobs are worked on at once.
const writers = 8

// Records is where the records are kept; record.Store is one.
type Records interface {
	Put(ctx context.Context, rec *record.Record) error
	Delete(ctx context.Context, rec *record.Record) error
}

// Executor does what is to be done. It keeps nothing but how often Nomad has
// refused what, so another one can take over at any moment.
type Executor struct {
	client  *api.Client
	records Records
	checker *Checker
	opts    Options

	mu      sync.Mutex
	refused map[key]refusals
}

// NewExecutor returns an Executor. Client and records are the planner's own.
func NewExecutor(client *api.Client, records Records, opts Options) *Executor {
	return &Executor{client: client, records: records, checker: NewChecker(opts), opts: opts.withDefaults(), refused: map[key]refusals{}}
}

// Due is when Execute is due again even if nothing happens in Nomad; zero if
// never.
func (e *Executor) Due() time.Time { return e.checker.Due() }

// Execute brings Nomad closer to what is intended: first what the Checker
// finds to be done, then the plan's preemptions, its admissions and its resizes, in
// their order. plan may be nil. Jobs that a step has changed are admitted only after
// the next look. It returns one result for each thing that was tried.
func (e *Executor) Execute(ctx context.Context, v *observe.View, plan *model.Plan) []Result {
	steps := e.checker.Check(v)
	x := &execution{Executor: e, touched: map[key]bool{}, newRecords: map[key]*record.Record{}, results: e.Run(ctx, v, steps)}
	if plan == nil {
		return x.results
	}
	x.round = newRound(e.checker, v)
	x.noteSteps(v, steps)
	for _, p := range plan.Preemptions {
		k := keyOf(p.Namespace, p.Job)
		if x.try(k, func() *Result { return e.giveWay(ctx, x.round, p) }) {
			x.touched[k] = true // even if it failed
		}
	}
	promises := byJob(plan.Promises)
	for _, d := range plan.Decisions {
		if d.Action == model.ActionAdmit {
			x.admit(ctx, d, promises)
		}
	}
	for i := range plan.Resizes {
		size := &plan.Resizes[i]
		x.try(keyOf(size.Namespace, size.Job), func() *Result { return e.size(ctx, x.round, size) })
	}
	for i := range plan.Promises { // those that are not tried are made again in the next plan
		p := &plan.Promises[i]
		k := keyOf(p.Namespace, p.Job)
		x.try(k, func() *Result { return e.promise(ctx, x.round, k, p, x.newRecords[k]) })
	}
	return x.results
}

// execution is one call of Execute.
type execution struct {
	*Executor
	round *round
	// touched are the jobs that something was done to since the look, newRecords
	// what steps have written down for jobs.
	touched    map[key]bool
	newRecords map[key]*record.Record
	results    []Result
}

// noteSteps takes in what the Checker's steps were, the first of the results.
func (x *execution) noteSteps(v *observe.View, steps []Step) {
	for i, step := range steps {
		k := key{step.Namespace, step.Job}
		if step.Register != nil || len(step.Stop) > 0 || step.Forget != nil || x.results[i].Err != nil {
			x.touched[k] = true
		} else if step.Put != nil {
			// Only remembered: the decision on the job still holds.
			if m, ok := v.Job(step.Namespace, step.Job); !ok || m.Record != nil {
				x.touched[k] = true
			}
		}
		if step.Put != nil {
			x.newRecords[k] = step.Put
		}
	}
}

// try does something for a job, unless it has been changed since the look or
// nothing more can be done, and says whether it was tried.
func (x *execution) try(k key, do func() *Result) bool {
	if x.touched[k] || halted(x.results) {
		return false
	}
	result := do()
	if result == nil {
		return false
	}
	x.touched[k] = result.Changed
	x.results = append(x.results, *result)
	return true
}

// admit carries out an admission, of a job or of its canaries.
func (x *execution) admit(ctx context.Context, d model.Decision, promises map[key]*model.Promise) {
	job, canaries := observe.CanaryOf(d.Job)
	k := keyOf(d.Namespace, job)
	a := &admission{executor: x.Executor, round: x.round, decision: d, record: x.newRecords[k], promise: promises[k]}
	run := a.run
	if canaries {
		run = a.runCanaries
	}
	x.try(k, func() *Result { return run(ctx, k) })
}

// keyOf is a job's key, as a plan names jobs.
func keyOf(namespace, job string) key {
	return key{cmp.Or(namespace, api.DefaultNamespace), job}
}

func halted(results []Result) bool {
	for _, r := range results {
		if halts(r.Err) {
			return true
		}
	}
	return false
}

// Run takes the steps, several jobs at once, and returns a result for each. When
// Nomad as a whole is in trouble the steps left are not tried.
func (e *Executor) Run(ctx context.Context, v *observe.View, steps []Step) []Result {
	results := make([]Result, len(steps))
	var mu sync.Mutex
	var halt error
	var group errgroup.Group
	group.SetLimit(writers)
	for i := range steps {
		step := &steps[i]
		results[i] = Result{Namespace: step.Namespace, Job: step.Job, Kind: step.Kind, Reason: step.Reason}
		group.Go(func() error {
			mu.Lock()
			stop := halt
			mu.Unlock()
			if stop != nil {
				results[i].Err = fmt.Errorf("not tried: %w", stop)
				return nil
			}
			results[i].Changed, results[i].Err = e.take(ctx, v, step)
			if halts(results[i].Err) {
				mu.Lock()
				halt = results[i].Err
				mu.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait() // no step returns its error to the group
	return results
}

// take takes one step.
func (e *Executor) take(ctx context.Context, v *observe.View, step *Step) (changed bool, err error) {
	k := key{step.Namespace, step.Job}
	if err := e.waiting(k, step.Index, v.Taken); err != nil {
		return false, err
	}
	if step.Put != nil {
		e.tellWhy(ctx, step)
		if step.ReadSource {
			step.Put.Source = e.source(ctx, step)
			step.Source = step.Put.Source
		}
		if err := e.put(ctx, step.Put, v.Taken); err != nil {
			return false, err
		}
		changed = true
	}
	if step.Register != nil {
		if err := e.register(ctx, step.Namespace, step.Register, step.Index, step.Source); err != nil {
			e.note(k, step.Index, v.Taken, err)
			return changed, err
		}
		changed = true
	}
	if step.Reschedule {
		if err := e.reschedule(ctx, step.Namespace, step.Job); err != nil {
			return changed, err
		}
		changed = true
	}
	for _, id := range step.Stop {
		if err := e.stop(ctx, step.Namespace, id); err != nil {
			return changed, err
		}
		changed = true
	}
	if step.Forget != nil {
		if err := e.records.Delete(ctx, step.Forget); err != nil {
			return changed, variablesError("delete record", err)
		}
		if step.Ending != nil && e.opts.Ended != nil {
			e.opts.Ended(*step.Ending)
		}
		changed = true
	}
	return changed, nil
}

// put writes a record, with what its job has had up to now.
func (e *Executor) put(ctx context.Context, rec *record.Record, now time.Time) error {
	rec.Account(now)
	return variablesError("write record", e.records.Put(ctx, rec))
}

func (e *Executor) register(ctx context.Context, namespace string, job *api.Job, index uint64, source *api.JobSubmission) error {
	_, _, err := e.client.Jobs().RegisterOpts(job, &api.RegisterOptions{
		EnforceIndex: true, ModifyIndex: index, Submission: source,
	}, (&api.WriteOptions{Namespace: namespace}).WithContext(ctx))
	return classify(fmt.Sprintf("register job %q", deref(job.ID)), capability("submit-job", namespace), err)
}

func (e *Executor) reschedule(ctx context.Context, namespace, job string) error {
	_, _, err := e.client.Jobs().EvaluateWithOpts(job, api.EvalOptions{ForceReschedule: true}, (&api.WriteOptions{Namespace: namespace}).WithContext(ctx))
	return classify(fmt.Sprintf("evaluate job %q", job), capability("read-job", namespace), err)
}

func (e *Executor) stop(ctx context.Context, namespace, id string) error {
	_, err := e.client.Allocations().Stop(&api.Allocation{ID: id}, (&api.QueryOptions{Namespace: namespace}).WithContext(ctx))
	err = classify(fmt.Sprintf("stop allocation %s", id), capability("alloc-lifecycle", namespace), err)
	if isGone(err) {
		return nil
	}
	return err
}

// tellWhy completes a reason that speaks of a member that has failed. That
// Nomad cannot say why changes nothing.
func (e *Executor) tellWhy(ctx context.Context, step *Step) {
	if step.Failed == "" {
		return
	}
	a, _, err := e.client.Allocations().Info(step.Failed, (&api.QueryOptions{Namespace: step.Namespace}).WithContext(ctx))
	if err != nil {
		return
	}
	why := lastEvent(a)
	if why == "" {
		return
	}
	tell := func(text string) string { return strings.Replace(text, hasFailed, hasFailed+" "+why, 1) }
	step.Reason, step.Put.Reason = tell(step.Reason), tell(step.Put.Reason)
	if h := step.Put.History; len(h) > 0 {
		h[0].Text = tell(h[0].Text)
	}
}

// lastEvent is what the client said last about a task of an allocation that
// failed.
func lastEvent(a *api.Allocation) string {
	var last *api.TaskEvent
	task := ""
	for _, name := range slices.Sorted(maps.Keys(a.TaskStates)) {
		state := a.TaskStates[name]
		if state == nil || !state.Failed {
			continue
		}
		for _, e := range state.Events {
			if e != nil && e.DisplayMessage != "" && (e.Type == api.TaskTerminated || e.Type == api.TaskDriverFailure || e.Type == api.TaskSetupFailure) && (last == nil || e.Time > last.Time) {
				last, task = e, name
			}
		}
	}
	if last == nil {
		return ""
	}
	return fmt.Sprintf("(task %q: %s)", task, strings.TrimSuffix(strings.TrimSpace(last.DisplayMessage), "."))
}

// source reads the job file of a version; nil if Nomad does not have it.
func (e *Executor) source(ctx context.Context, step *Step) *api.JobSubmission {
	sub, _, err := e.client.Jobs().Submission(step.Job, step.Version, (&api.QueryOptions{Namespace: step.Namespace}).WithContext(ctx))
	if err != nil {
		return nil
	}
	return sub
}

func capability(name, namespace string) string {
	return fmt.Sprintf("the capability %s in namespace %q", name, namespace)
}
