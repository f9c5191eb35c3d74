package apply

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// What follows is for jobs that are sent from one region of a federation to
// another; each Executor is one region's. Package federate says in which order
// it is called.

// Withheld says whether the job has ended, as of the last Execute, and its record
// stays since Options.Withhold has said so.
func (e *Executor) Withheld(namespace, job string) bool { return e.checker.Withheld(namespace, job) }

// Would asks Nomad whether it would take a job that is to be sent here. Nothing is
// changed.
func (e *Executor) Would(ctx context.Context, rec *record.Record) error {
	gated, err := e.arrival(rec)
	if err != nil {
		return err
	}
	_, _, err = e.client.Jobs().PlanOpts(gated, &api.PlanOptions{}, (&api.WriteOptions{Namespace: rec.Namespace}).WithContext(ctx))
	return classify(fmt.Sprintf("plan job %q", rec.JobID), capability("submit-job", rec.Namespace), err)
}

// Arrive registers a job that was sent here, with the gate, if it is at index in
// Nomad still; 0 is a job that Nomad does not know.
func (e *Executor) Arrive(ctx context.Context, rec *record.Record, index uint64) error {
	gated, err := e.arrival(rec)
	if err != nil {
		return err
	}
	return e.register(ctx, rec.Namespace, gated, index, rec.Source)
}

// arrival is the gated job. It is in the region to which it is sent, whatever
// region its user's was in.
func (e *Executor) arrival(rec *record.Record) (*api.Job, error) {
	if rec.Original == nil {
		return nil, fmt.Errorf("send job %q: %w: its record has no specification", rec.JobID, ErrRefused)
	}
	gated, err := rewrite.Gate(rec.Original)
	if err != nil {
		return nil, fmt.Errorf("gate job %q: %w: %w", rec.JobID, ErrRefused, err)
	}
	gated.Region = nil
	link := ""
	if e.opts.Link != nil {
		link = e.opts.Link(rec.Namespace, rec.JobID)
	}
	rewrite.Note(gated, "Caravan: it was submitted in region "+rec.Home+" and sent here.", link)
	return gated, nil
}

// Write writes a record.
func (e *Executor) Write(ctx context.Context, rec *record.Record, now time.Time) error {
	return e.put(ctx, rec, now)
}

// End stops a job if nobody has changed it since it was looked at.
func (e *Executor) End(ctx context.Context, m *observe.Managed) error {
	stopped := *m.Current
	stopped.Stop = new(true)
	stopped.VersionTag, stopped.Stable, stopped.Status = nil, nil, nil
	return e.register(ctx, m.Namespace, &stopped, deref(m.Current.JobModifyIndex), m.Record.Source)
}

// Stop stops a job, whatever version it has come to.
func (e *Executor) Stop(ctx context.Context, namespace, job string) error {
	_, _, err := e.client.Jobs().DeregisterOpts(job, &api.DeregisterOptions{}, (&api.WriteOptions{Namespace: namespace}).WithContext(ctx))
	err = classify(fmt.Sprintf("stop job %q", job), capability("submit-job", namespace), err)
	if isGone(err) {
		return nil
	}
	return err
}

// Find is a job as Nomad has it now; nil if there is none of that name.
func (e *Executor) Find(ctx context.Context, namespace, job string) (*api.Job, error) {
	found, _, err := e.client.Jobs().Info(job, (&api.QueryOptions{Namespace: namespace}).WithContext(ctx))
	err = classify(fmt.Sprintf("read job %q", job), capability("read-job", namespace), err)
	if isGone(err) {
		return nil, nil
	}
	return found, err
}

// Forget deletes a record.
func (e *Executor) Forget(ctx context.Context, rec *record.Record) error {
	return variablesError("delete record", e.records.Delete(ctx, rec))
}
