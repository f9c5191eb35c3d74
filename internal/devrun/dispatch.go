package devrun

import (
	"context"
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// parameterized makes the gang a job that only its dispatches run.
func parameterized(j *api.Job) {
	j.ParameterizedJob = &api.ParameterizedJobConfig{Payload: "optional", MetaOptional: []string{"experiment"}}
}

// playDispatch dispatches two gangs of which one fits.
func (r *run) playDispatch(ctx context.Context) error {
	parent, _, err := read(trainGangFile, parameterized)
	if err != nil {
		return err
	}
	r.step(trainGang, "submitting jobspecs/"+trainGangFile+" as a parameterized job")
	if _, _, err := r.planner.nomad.Jobs().Register(parent, nil); err != nil {
		return fmt.Errorf("submit %s: %w", trainGang, err)
	}
	first, err := r.dispatch(parent, "a")
	if err != nil {
		return err
	}
	if err := r.waitWhole(ctx, first); err != nil {
		return err
	}
	second, err := r.dispatch(parent, "b")
	if err != nil {
		return err
	}
	err = poll(ctx, "the planner has decided on "+second, func() (bool, error) {
		e, err := r.planner.api.Explain(ctx, api.DefaultNamespace, second)
		if err == nil && e.Action != model.ActionWait {
			err = fmt.Errorf("it decided to %s", e.Action)
		}
		if err == nil {
			r.step(second, "waits: "+e.Reason)
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	r.step(first, "stopping it")
	if _, _, err := r.planner.nomad.Jobs().Deregister(first, false, nil); err != nil {
		return fmt.Errorf("stop %s: %w", first, err)
	}
	if err := r.waitWhole(ctx, second); err != nil {
		return err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkWaitedWhole(seen, second, seen.heldUntil(first)))
	return r.checkChild(ctx, second, "b")
}

// dispatch dispatches a gang and returns its job's ID.
func (r *run) dispatch(parent *api.Job, experiment string) (id string, err error) {
	r.step(*parent.ID, "dispatching experiment "+experiment)
	resp, _, err := r.planner.nomad.Jobs().Dispatch(*parent.ID, map[string]string{"experiment": experiment}, []byte("input"), "", nil)
	if err != nil {
		return "", fmt.Errorf("dispatch %s: %w", *parent.ID, err)
	}
	r.expect(resp.DispatchedJobID, parent)
	return resp.DispatchedJobID, nil
}

// checkChild: the dispatched job has what it was given.
func (r *run) checkChild(ctx context.Context, id, experiment string) error {
	job, _, err := r.planner.nomad.Jobs().Info(id, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("read %s: %w", id, err)
	}
	var faults []string
	if got := job.Meta["experiment"]; got != experiment {
		faults = append(faults, fmt.Sprintf("its meta experiment is %q, not %q", got, experiment))
	}
	r.report.Checks = append(r.report.Checks, result("input:"+id, faults, "it has the meta that it was dispatched with"))
	return nil
}
