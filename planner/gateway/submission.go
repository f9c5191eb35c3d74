package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
	"github.com/caravan-sched/caravan/planner/taskcheck"
)

// submission is a managed job on its way in.
type submission struct {
	// method and path (escaped) are where it is registered.
	method, path string
	// asPlanner: it is registered with the planner's own token, since Nomad has
	// found the user allowed to do what it comes from, which needs no right to
	// submit jobs.
	asPlanner bool
	// register is the request's body; its Job is original, in its namespace.
	register api.JobRegisterRequest
	original *api.Job
	// hash is original's.
	hash      string
	spec      gangspec.Spec
	namespace string
	id        string
	// taken, if set, is called when it has been taken in, before the answer.
	taken func()
	// diff asks a dry-run for Nomad's own difference.
	diff bool
	// notes go into the answer's warnings.
	notes []string
}

// newSubmission reads a managed job's contract. The problem lists all faults.
func (g *Gateway) newSubmission(r *http.Request, req api.JobRegisterRequest) (*submission, *problem) {
	original, err := rewrite.Strip(req.Job, nil)
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "Job %q cannot be read: %v.", *req.Job.ID, err)
	}
	s := &submission{
		method:    http.MethodPut,
		path:      "/v1/jobs",
		register:  req,
		original:  original,
		hash:      gangspec.Hash(original),
		namespace: *req.Job.Namespace,
		id:        *req.Job.ID,
		notes:     gangspec.Warnings(original),
	}
	if s.spec, err = taskcheck.Parse(original, g.cfg.Levels...); err != nil {
		return nil, faultsOf(s.id, err)
	}
	return s, nil
}

// noteUnknown tells the user of a field that is left out. The body goes into
// whole.
func (s *submission) noteUnknown(body []byte, whole any) {
	if field := unknownField(body, whole); field != "" {
		s.notes = append(s.notes, "Caravan does not know the field "+field+" of the request and left it out; it may be newer than this version of Caravan.")
	}
}

// faultsOf lists a contract's faults, one a line.
func faultsOf(id string, err error) *problem {
	var faults *gangspec.Error
	if !errors.As(err, &faults) {
		return problemf(http.StatusBadRequest, "Job %q: %v.", id, err)
	}
	lines := make([]string, 0, len(faults.Faults))
	for _, sentence := range faults.Sentences() {
		lines = append(lines, "  * "+sentence)
	}
	return problemf(http.StatusBadRequest, "Job %q cannot be queued, nothing was registered:\n%s", id, strings.Join(lines, "\n"))
}

// unknownField names a field of the body that this program's copy of Nomad's
// API does not have, "" if there is none. The body goes into whole.
func unknownField(body []byte, whole any) string {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err := dec.Decode(whole)
	if err == nil {
		return ""
	}
	_, field, found := strings.Cut(err.Error(), "unknown field ")
	if !found {
		return ""
	}
	return field
}

// complete takes from the user's last submission what this one leaves to it.
func (s *submission) complete(last *api.Job) error {
	if last == nil {
		return nil
	}
	// A job that was read from Nomad and is sent back carries gate or pins, and
	// lacks what they put aside.
	if rewrite.IsGated(s.register.Job) || rewrite.IsPinned(s.register.Job) {
		original, err := rewrite.Strip(s.register.Job, last)
		if err != nil {
			return fmt.Errorf("strip job: %w", err)
		}
		s.original = original
	}
	s.preserve(last)
	s.hash = gangspec.Hash(s.original)
	return nil
}

// preserve carries out PreserveCounts and PreserveResources against the user's
// last submission: Nomad itself would take them from the rewritten job.
func (s *submission) preserve(last *api.Job) {
	before := map[string]*api.TaskGroup{}
	for _, group := range last.TaskGroups {
		before[deref(group.Name)] = group
	}
	for _, group := range s.original.TaskGroups {
		old := before[deref(group.Name)]
		if old == nil {
			continue
		}
		if s.register.PreserveCounts {
			group.Count = old.Count
		}
		if s.register.PreserveResources {
			preserveResources(old, group)
		}
	}
}

func preserveResources(old, group *api.TaskGroup) {
	before := map[string]*api.Resources{}
	for _, t := range old.Tasks {
		before[t.Name] = t.Resources
	}
	for _, t := range group.Tasks {
		if r := before[t.Name]; r != nil {
			t.Resources = r
		}
	}
}

// requestFor is the registration to be sent to Nomad in place of the user's.
func (s *submission) requestFor(job *api.Job, index uint64) api.JobRegisterRequest {
	out := s.register
	out.Job = job
	out.EnforceIndex, out.JobModifyIndex = true, index
	out.PreserveCounts, out.PreserveResources = false, false
	return out
}

// enforced says whether the user's -check-index holds. The user knows the job's
// index from a plan or an inspection; since then Caravan may have registered
// the same submission again, with gate or pins, which is no change to a user.
func (s *submission) enforced(rec *record.Record, current *api.Job) *problem {
	if !s.register.EnforceIndex {
		return nil
	}
	asked := s.register.JobModifyIndex
	var now uint64
	if current != nil {
		now = deref(current.JobModifyIndex)
	}
	if asked == now {
		return nil
	}
	if current != nil && rec != nil && asked > rec.PriorIndex && asked < now {
		return nil
	}
	// The prefix, the status and the closing of the text are what Nomad's CLI
	// recognises.
	if current == nil {
		return problemf(http.StatusInternalServerError, "%s %d: job %q does not exist", api.RegisterEnforceIndexErrPrefix, asked, s.id)
	}
	return problemf(http.StatusInternalServerError, "%s %d: job %q was submitted again in the meantime, its index is %d now", api.RegisterEnforceIndexErrPrefix, asked, s.id, now)
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
