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
	results := e.Run(ctx, v, steps)
	touched := map[key]bool{}
	for i, step := range steps {
		if step.Register != nil || len(step.Stop) > 0 || step.Forget != nil || results[i].Err != nil {
			touched[key{step.Namespace, step.Job}] = true
		} else if step.Put != nil {
			// Only remembered: the decision on the job still holds.
			if m, ok := v.Job(step.Namespace, step.Job); !ok || m.Record != nil {
				touched[key{step.Namespace, step.Job}] = true
			}
		}
	}
	if plan == nil {
		return results
	}
	newRecords := map[key]*record.Record{}
	for _, step := range steps {
		if step.Put != nil {
			newRecords[key{step.Namespace, step.Job}] = step.Put
		}
	}
	r, promises := newRound(e.checker, v), byJob(plan.Promises)
	for _, p := range plan.Preemptions {
		k := key{cmp.Or(p.Namespace, api.DefaultNamespace), p.Job}
		if touched[k] || halted(results) {
			continue
		}
		if result := e.giveWay(ctx, r, p); result != nil {
			touched[k] = true
			results = append(results, *result)
		}
	}
	for _, d := range plan.Decisions {
		k := key{d.Namespace, d.Job}
		if k.namespace == "" {
			k.namespace = api.DefaultNamespace
		}
		job, canaries := observe.CanaryOf(k.job)
		k.job = job
		if d.Action != model.ActionAdmit || touched[k] || halted(results) {
			continue
		}
		a := &admission{executor: e, round: r, decision: d, record: newRecords[k], promise: promises[k]}
		run := a.run
		if canaries {
			run = a.runCanaries
		}
		if result := run(ctx, k); result != nil {
			touched[k] = result.Changed
			results = append(results, *result)
		}
	}
	for i := range plan.Resizes {
		size := &plan.Resizes[i]
		k := key{cmp.Or(size.Namespace, api.DefaultNamespace), size.Job}
		if touched[k] || halted(results) {
			continue
		}
		if result := e.size(ctx, r, size); result != nil {
			touched[k] = result.Changed
			results = append(results, *result)
		}
	}
	for i := range plan.Promises {
		p := &plan.Promises[i]
		k := key{cmp.Or(p.Namespace, api.DefaultNamespace), p.Job}
		if touched[k] || halted(results) {
			continue // made again in the next plan
		}
		if result := e.promise(ctx, r, k, p, newRecords[k]); result != nil {
			results = append(results, *result)
		}
	}
	return results
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
