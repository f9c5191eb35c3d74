package server

import (
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/sched"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// maxPayload is the most bytes that a dispatch may carry.
const maxPayload = 16 << 10

// Dispatch makes a child of a parameterized job. Its payload is kept with the
// job and reaches no task.
func (s *Server) Dispatch(k state.Key, req *api.JobDispatchRequest) (*api.JobDispatchResponse, error) {
	resp := &api.JobDispatchResponse{}
	err := s.update(state.EventJobRegistered, func(tx *state.Tx) error {
		if tx.SchedulerConfig().RejectJobRegistration {
			return errorf(403, "Job registration, dispatch, and scale are disabled by the scheduler configuration")
		}
		parent := tx.Job(k)
		switch {
		case parent == nil:
			return errorf(500, "parameterized job not found")
		case !parent.IsParameterized():
			return errorf(500, "Specified job %q is not a parameterized job", k.ID)
		case parent.Stop != nil && *parent.Stop:
			return errorf(500, "Specified job %q is stopped", k.ID)
		}
		if err := checkDispatch(parent.ParameterizedJob, req); err != nil {
			return err
		}
		child, err := CopyJob(parent)
		if err != nil {
			return err
		}
		id := fmt.Sprintf("%s/dispatch-%d-%s", k.ID, tx.Now.Unix(), uuid.NewString()[:8])
		child.ID, child.Name, child.ParentID = &id, &id, parent.ID
		child.Dispatched, child.Payload = true, req.Payload
		for key, value := range req.Meta {
			child.SetMeta(key, value)
		}
		child.SubmitTime = ptr(tx.Now.UnixNano())
		tx.PutJob(child, nil)
		e := newEval(child, sched.TriggerJobRegister)
		e.JobModifyIndex = tx.Index
		tx.PutEval(e)
		resp.DispatchedJobID, resp.EvalID, resp.EvalCreateIndex, resp.JobCreateIndex, resp.LastIndex = id, e.ID, tx.Index, tx.Index, tx.Index
		return nil
	})
	return resp, err
}

// checkDispatch looks at the input in the order and with the words of Nomad.
func checkDispatch(c *api.ParameterizedJobConfig, req *api.JobDispatchRequest) error {
	switch n := len(req.Payload); {
	case c.Payload == "required" && n == 0:
		return errorf(500, "Payload is not provided but required by parameterized job")
	case c.Payload == "forbidden" && n > 0:
		return errorf(500, "Payload provided but forbidden by parameterized job")
	case n > maxPayload:
		return errorf(500, "Payload exceeds maximum size; %d > %d", n, maxPayload)
	}
	var unpermitted, missing []string
	for key := range req.Meta {
		if !slices.Contains(c.MetaRequired, key) && !slices.Contains(c.MetaOptional, key) {
			unpermitted = append(unpermitted, key)
		}
	}
	slices.Sort(unpermitted)
	if len(unpermitted) > 0 {
		return errorf(500, "Dispatch request included unpermitted metadata keys: %v", unpermitted)
	}
	for _, key := range c.MetaRequired {
		if _, ok := req.Meta[key]; !ok {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		return errorf(500, "Dispatch did not provide required meta keys: %v", missing)
	}
	return nil
}
