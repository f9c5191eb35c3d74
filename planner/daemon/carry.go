package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// outcome is what came of carrying a plan out.
type outcome struct {
	// plan is what was decided as far as it was done: an admission that Nomad
	// refuses is a wait, and one that was not tried is left out.
	plan *model.Plan
	// changed: something was written, so that another look is due at once.
	changed bool
	// overtaken: somebody else changed something in between; the next look
	// shows what.
	overtaken bool
	// problems are what went wrong, by job.
	problems map[jobKey]string
	// trouble joins the problems that an operator should see.
	trouble error
	// due is when something is due even if nothing happens; zero if nothing is.
	due time.Time
	// halted: Nomad as a whole is in trouble, and is to be left in peace.
	halted bool
}

// carrier has plans carried out in Nomad.
type carrier interface {
	// Execute does what earlier decisions still need, and then carries a plan
	// out.
	Execute(ctx context.Context, v *observe.View, plan *model.Plan) outcome
	// Release takes gate and pins off one job with the caller's token; note says
	// what stays.
	Release(ctx context.Context, token string, m *observe.Managed) (note string, err error)
}

// nomadCarrier is the carrier of a real cluster.
type nomadCarrier struct {
	executor *apply.Executor
	records  apply.Records
	client   *api.Client // without a token of its own
}

func (c nomadCarrier) Execute(ctx context.Context, v *observe.View, plan *model.Plan) outcome {
	out := outcomeOf(plan, c.executor.Execute(ctx, v, plan))
	out.due = c.executor.Due()
	return out
}

// codeRefused is the reason's code where Nomad would not do what was decided.
const codeRefused = "refused"

func outcomeOf(plan *model.Plan, results []apply.Result) outcome {
	out := outcome{plan: new(model.Plan), problems: map[jobKey]string{}}
	admitted := map[jobKey]apply.Result{}
	stopped, resized := map[jobKey]bool{}, map[jobKey]bool{}
	for _, r := range results {
		key := jobKey{r.Namespace, r.Job}
		out.changed = out.changed || r.Changed
		switch r.Kind {
		case apply.KindAdmit:
			admitted[key] = r
		case apply.KindResize:
			resized[key] = resized[key] || r.Err == nil && r.Changed
		case apply.KindPreempt, apply.KindMove:
			stopped[key] = r.Err == nil && r.Changed
		}
		switch {
		case r.Err == nil, errors.Is(r.Err, context.Canceled):
		case errors.Is(r.Err, apply.ErrChanged), errors.Is(r.Err, record.ErrConflict):
			out.overtaken = true
		case errors.Is(r.Err, apply.ErrNoFit):
			out.problems[key] = r.Err.Error()
		default:
			out.problems[key] = r.Err.Error()
			out.trouble = errors.Join(out.trouble, fmt.Errorf("job %q in namespace %q: %w", r.Job, r.Namespace, r.Err))
		}
		out.halted = out.halted || errors.Is(r.Err, apply.ErrUnavailable) || errors.Is(r.Err, apply.ErrThrottled) || errors.Is(r.Err, apply.ErrGarbage)
	}
	for _, d := range plan.Decisions {
		if d.Action == model.ActionAdmit {
			r, tried := admitted[jobKey{d.Namespace, d.Job}]
			switch {
			case !tried, errors.Is(r.Err, apply.ErrChanged), errors.Is(r.Err, record.ErrConflict), errors.Is(r.Err, context.Canceled):
				continue
			case r.Err != nil:
				d = refused(d, r.Err.Error())
			case !r.Changed:
				d = refused(d, r.Reason)
			}
		}
		out.plan.Decisions = append(out.plan.Decisions, d)
	}
	for _, p := range plan.Preemptions {
		if stopped[jobKey{p.Namespace, p.Job}] {
			out.plan.Preemptions = append(out.plan.Preemptions, p)
		}
	}
	for _, r := range plan.Resizes {
		if resized[jobKey{r.Namespace, r.Job}] {
			out.plan.Resizes = append(out.plan.Resizes, r)
		}
	}
	return out
}

func refused(d model.Decision, why string) model.Decision {
	d.Action, d.Reason, d.Members = model.ActionWait, why, nil
	d.Detail.Code = codeRefused
	return d
}

// noteKept says what a release cannot take away.
const noteKept = "its running members keep their GPU constraints, which cannot be taken away without restarting them; they go with the next submission of the job file"

// noteCompleted says why a job cannot be released whole.
const noteCompleted = "its pins stay, because a member has completed and would run again if the job were registered anew; they go with the next submission"

// noteParts says what letting go of a gang that waits means.
const noteParts = "it waited as a whole: from now on Nomad places it as it places any job, and may place a part of it; members that join the barrier wait there for the others"

// Release writes down first that the job is released, so that nobody gates it
// again, and then registers it. Nomad checks the caller's right to do that; if
// it refuses, the record is put back.
func (c nomadCarrier) Release(ctx context.Context, token string, m *observe.Managed) (string, error) {
	before := m.Record
	if before != nil && before.Phase == record.PhaseReleased {
		return "it was released before", nil
	}
	if stillStops(m) {
		return "", errors.New("members of it are still being stopped, and Nomad would run the job a second time beside them; nothing was done: release it again when they have ended, at the latest after their kill_timeout")
	}
	var after record.Record
	if before != nil {
		after = *before
	} else {
		original, err := rewrite.Strip(m.Current, nil)
		if err != nil {
			return "", fmt.Errorf("take gate and pins out: %w", err)
		}
		after = record.Record{Namespace: m.Namespace, JobID: m.ID, Original: original, SpecHash: m.SpecHash, Submitted: m.Model.Submitted}
	}
	job, kept, err := rewrite.Release(m.Current, after.Original)
	if err != nil {
		return "", fmt.Errorf("take gate and pins out: %w", err)
	}
	after.Phase, after.Reason, after.Members = record.PhaseReleased, "released by an operator", nil
	if err := c.records.Put(ctx, &after); err != nil {
		return "", err
	}
	ended := m.Current.Stop != nil && *m.Current.Stop
	if m.BatchDone || ended {
		if ended {
			return "it is stopped; nothing was registered", nil
		}
		return noteCompleted, nil
	}
	options := &api.RegisterOptions{EnforceIndex: true, ModifyIndex: *m.Current.JobModifyIndex, Submission: after.Source}
	q := (&api.WriteOptions{Namespace: m.Namespace, AuthToken: token}).WithContext(ctx)
	if _, _, err := c.client.Jobs().RegisterOpts(job, options, q); err != nil {
		var answer api.UnexpectedResponseError
		if errors.As(err, &answer) && answer.StatusCode() == http.StatusForbidden {
			err = fmt.Errorf("your token lacks submit-job in namespace %s: %w", m.Namespace, err)
		}
		return "", errors.Join(fmt.Errorf("register the job without gate and pins: %w", err), c.putBack(ctx, before, &after))
	}
	switch {
	case kept:
		return noteKept, nil
	case m.Model.State == model.StateQueued && m.Model.Gang != model.GangNone && members(&m.Model) > 1:
		return noteParts, nil
	}
	return "", nil
}

// stillStops says whether what Caravan takes off still runs. A job that it takes
// off has the gate, and Nomad would place it anew at once without.
func stillStops(m *observe.Managed) bool {
	if m.Record == nil || m.Record.Phase != record.PhaseRollback && m.Record.Phase != record.PhaseQueued {
		return false
	}
	return slices.ContainsFunc(m.Allocs, func(a *api.AllocationListStub) bool {
		runs := a.ClientStatus == api.AllocClientStatusRunning || a.ClientStatus == api.AllocClientStatusPending
		return runs && (a.DesiredStatus != api.AllocDesiredStatusRun || m.Record.Phase == record.PhaseRollback)
	})
}

// members is how many the job asks for.
func members(j *model.Job) int {
	n := 0
	for _, g := range j.Groups {
		n += g.Count
	}
	return n
}

// putBack undoes a release that Nomad refused.
func (c nomadCarrier) putBack(ctx context.Context, before, after *record.Record) error {
	if before == nil {
		return c.records.Delete(ctx, after)
	}
	old := *before
	old.ModifyIndex = after.ModifyIndex
	return c.records.Put(ctx, &old)
}
