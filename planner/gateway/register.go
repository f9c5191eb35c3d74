package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

const (
	// attempts is how often a registration is tried when planner and user change
	// one job at the same time.
	attempts = 5
	// neverIndex is a job index that no Nomad reaches.
	neverIndex = math.MaxInt64
)

// heldNote is what Nomad's UI shows of a gated job.
const heldNote = "Caravan holds this job until all that belongs together can be placed."

// errAgain says that the job or its record changed under a registration.
var errAgain = errors.New("the job changed in the meantime")

// serveRegister handles POST and PUT on /v1/jobs and /v1/job/:id.
func (g *Gateway) serveRegister(w http.ResponseWriter, r *http.Request, pathID string) {
	body, p := readBody(w, r, g.cfg.MaxBody)
	var req api.JobRegisterRequest
	if p == nil {
		p = decode(body, &req)
	}
	if p == nil {
		p = checkJob(req.Job, pathID)
	}
	if p != nil {
		refuse(w, p.status, "%s", p.text)
		return
	}
	if !g.takes(r, req.Job, req.WriteRequest) {
		g.pass(w, r, body)
		return
	}
	if g.launches(req.Job) {
		g.registerPeriodic(w, r, req)
		return
	}
	s, p := g.newSubmission(r, req)
	if p == nil {
		s.noteUnknown(body, &api.JobRegisterRequest{})
		s.method, s.path = r.Method, r.URL.EscapedPath()
		p = g.register(w, r, s, body)
	}
	if p != nil {
		refuse(w, p.status, "%s", p.text)
	}
}

// takes says whether the gateway takes the job in, rather than pass it, after
// putting the job in the form in which Nomad would take it: in its namespace,
// and nobody's child, for Nomad does not let a registration say so. A job that
// is registered stopped runs nothing; it passes. So does one for another region,
// where Nomad forwards it.
func (g *Gateway) takes(r *http.Request, job *api.Job, write api.WriteRequest) bool {
	namespace := namespaceOf(r, write, job)
	job.Namespace = &namespace
	job.Dispatched, job.ParentID = false, nil
	if g.foreign(regionOf(r, write, job)) {
		return false
	}
	return !deref(job.Stop) && (g.cfg.Managed(job) || g.launches(job))
}

// register brings a submission in and answers it as a registration. It answers
// itself unless it returns a problem. body is the request's.
func (g *Gateway) register(w http.ResponseWriter, r *http.Request, s *submission, body []byte) *problem {
	out, p := g.take(r, s)
	switch {
	case p != nil:
		return p
	case out.released:
		g.pass(w, r, body)
		return nil
	case out.refused != nil:
		relay(w, out.refused)
		return nil
	}
	if s.taken != nil {
		s.taken()
	}
	if err := g.answerRegistered(w, r, s, out); err != nil {
		g.log.Debug("answer registration", "namespace", s.namespace, "job", s.id, "error", err)
	}
	return nil
}

// take brings a submission in, again when the job has changed meanwhile.
func (g *Gateway) take(r *http.Request, s *submission) (outcome, *problem) {
	// Nothing is read or written on a user's behalf before Nomad has accepted
	// the job and the user's token for it.
	if !s.asPlanner {
		if a, p := g.rehearse(r, s); p != nil || a != nil {
			return outcome{refused: a}, p
		}
	}
	for range attempts {
		out, err := g.attempt(r, s)
		var p *problem
		switch {
		case errors.Is(err, errAgain):
			g.log.Debug("register again", "namespace", s.namespace, "job", s.id)
			continue
		case errors.As(err, &p):
			return outcome{}, p
		case err != nil:
			g.log.Error("register job", "namespace", s.namespace, "job", s.id, "error", err)
			return outcome{}, problemf(http.StatusServiceUnavailable, "Caravan could not take job %q in, nothing was registered: %v. Try again; if it stays so, see the log of caravan agent.", s.id, err)
		}
		return out, nil
	}
	return outcome{}, problemf(http.StatusConflict, "Job %q changes faster than it can be registered, nothing was registered. Try again in a moment.", s.id)
}

// rehearse lets Nomad check the gated job and the user's rights to it without
// any effect: a registration that enforces an index which the job never has is
// validated and authorised as a whole before it is refused for the index. A
// reply is Nomad's own refusal.
func (g *Gateway) rehearse(r *http.Request, s *submission) (*reply, *problem) {
	gated, err := rewrite.Gate(s.original)
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "Job %q cannot be gated: %v.", s.id, err)
	}
	a, p := g.send(r.Context(), r, s.method, s.path, s.requestFor(gated, neverIndex))
	switch {
	case p != nil:
		return nil, p
	case a.indexConflict():
		return nil, nil
	case a.ok():
		return nil, problemf(http.StatusBadGateway, "Nomad at %s does not enforce job indexes. Caravan needs Nomad 1.10 or newer.", g.cfg.Nomad.Redacted())
	}
	return a, nil
}

// outcome is what became of an attempt.
type outcome struct {
	// released: Caravan leaves the job alone, and Nomad gets it as it came.
	released bool
	// refused is Nomad's refusal.
	refused *reply
	// unchanged: nothing was registered. current and record are the job as it is
	// and what is remembered of it.
	unchanged bool
	record    *record.Record
	// kept: registered with the placement in force.
	kept bool
	// resized says how the job is resized where it runs; "" if it is not.
	resized string
	// replaced: a version that runs is stopped first.
	replaced bool
	current  *api.Job
	// accepted is Nomad's answer to the registration, response and fields what
	// is in it.
	accepted *reply
	response api.JobRegisterResponse
	fields   map[string]json.RawMessage
}

// attempt looks at the job and its record and does what they call for, once.
func (g *Gateway) attempt(r *http.Request, s *submission) (outcome, error) {
	rec, current, err := g.look(r.Context(), s.namespace, s.id)
	if err != nil {
		return outcome{}, err
	}
	if rec != nil {
		if err := s.complete(rec.Original); err != nil {
			return outcome{}, err
		}
	}
	if p := s.enforced(rec, current); p != nil {
		return outcome{}, p
	}
	if same(s, rec, current) {
		return outcome{unchanged: rec.Phase != record.PhaseReleased, released: rec.Phase == record.PhaseReleased, current: current, record: rec}, nil
	}
	g.findSource(r.Context(), s, current)
	next := g.newRecord(r, s, rec, current)
	if live(current) && rec != nil && rec.Route == nil && !inVain(rec, current) {
		size, err := g.resize(r, s, rec, current)
		if err != nil {
			return outcome{}, err
		}
		if size != nil {
			rewrite.Note(size.job, size.note, g.cfg.Link(s.namespace, s.id))
			out, err := g.commit(r, s, rec, size.next, size.job, current)
			out.resized = size.note
			return out, err
		}
		pinned, _, err := g.keep(r, s, rec, current)
		if err != nil {
			return outcome{}, err
		}
		if pinned != nil {
			next.Phase, next.Members, next.PlacedHash = rec.Phase, rec.Members, s.hash
			next.Submitted, next.Admitted, next.Deadline, next.Reason = rec.Submitted, rec.Admitted, rec.Deadline, rec.Reason
			next.History, next.Recalls, next.Growth = rec.History, rec.Recalls, rec.Growth
			if pinned, err = g.roll(r, s, rec, next, pinned, current); err != nil {
				return outcome{}, err
			}
			rewrite.Note(pinned, "Caravan: "+cmp.Or(rec.Reason, "the gang runs where it was placed."), g.cfg.Link(s.namespace, s.id))
			out, err := g.commit(r, s, rec, next, pinned, current)
			out.kept = true
			return out, err
		}
	}
	if p := g.mayReplace(r, s, rec, current); p != nil {
		return outcome{}, p
	}
	gated, err := rewrite.Gate(s.original)
	if err != nil {
		return outcome{}, fmt.Errorf("gate job: %w", err)
	}
	rewrite.Note(gated, heldNote, g.cfg.Link(s.namespace, s.id))
	out, err := g.commit(r, s, rec, next, gated, current)
	out.replaced = len(next.Members) > 0
	return out, err
}

// look reads the job and the record that tells of it; nil for what is not there.
func (g *Gateway) look(ctx context.Context, namespace, id string) (*record.Record, *api.Job, error) {
	rec, err := g.cfg.Records.Get(ctx, namespace, id)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return nil, nil, fmt.Errorf("read record: %w", err)
	}
	current, err := g.current(ctx, namespace, id)
	if err != nil {
		return nil, nil, err
	}
	if rec != nil && current != nil {
		// The last submission may not have reached Nomad: what there is, is the
		// one before it.
		rec = rec.InForce(deref(current.JobModifyIndex))
	}
	return rec, current, nil
}

// current reads the job alone.
func (g *Gateway) current(ctx context.Context, namespace, id string) (*api.Job, error) {
	job, _, err := g.cfg.Client.Jobs().Info(id, (&api.QueryOptions{Namespace: namespace}).WithContext(ctx))
	switch {
	case isNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read job with the planner's own token: %w", err)
	}
	return job, nil
}

// rewritten says whether a job has Caravan's marks. One that has none is no
// concern of the records, so that it can be dealt with when they are away.
func rewritten(job *api.Job) bool { return rewrite.IsGated(job) || rewrite.IsPinned(job) }

func isNotFound(err error) bool {
	var status api.UnexpectedResponseError
	return errors.As(err, &status) && status.StatusCode() == http.StatusNotFound
}

// live says whether a job runs or may run.
func live(job *api.Job) bool {
	return job != nil && !deref(job.Stop) && deref(job.Status) != "dead"
}

// same says whether a submission changes nothing: the live job is made from the
// same specification.
func same(s *submission, rec *record.Record, current *api.Job) bool {
	return Unchanged(rec, current, s.hash)
}

// inVain says whether what runs of a job waits for its gang without an identity
// to join it with: it came past the gateway, and no version of it can go on.
func inVain(rec *record.Record, current *api.Job) bool {
	_, task := rewrite.Unidentified(current)
	return task != "" && rec.Phase != record.PhaseReleased
}

// commit writes the record, then registers the job in the user's name, and puts
// the record back when Nomad refuses.
func (g *Gateway) commit(r *http.Request, s *submission, old, next *record.Record, job, current *api.Job) (outcome, error) {
	// From here on a client that hangs up must not leave half of it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), record.ArrivingFor)
	defer cancel()
	if err := g.cfg.Records.Put(ctx, next); errors.Is(err, record.ErrConflict) {
		return outcome{}, errAgain
	} else if err != nil {
		return outcome{}, fmt.Errorf("write record: %w", err)
	}
	var index uint64
	if current != nil {
		index = deref(current.JobModifyIndex)
	}
	a, p := g.registerIn(ctx, r, s, job, index)
	if p == nil && a.ok() {
		out := outcome{accepted: a}
		if err := errors.Join(json.Unmarshal(a.body, &out.fields), json.Unmarshal(a.body, &out.response)); err == nil {
			return out, nil
		}
		p = problemf(http.StatusBadGateway, "Nomad at %s answered the registration of job %q with something else. See `nomad job status %s`, and what is between Caravan and Nomad.", g.cfg.Nomad.Redacted(), s.id, s.id)
	}
	if err := g.putBack(ctx, old, next); err != nil {
		// The planner finds the record without its job, or with another, and
		// puts it right.
		g.log.Warn("put record back", "namespace", s.namespace, "job", s.id, "error", err)
	}
	switch {
	case p != nil:
		return outcome{}, p
	case a.indexConflict():
		return outcome{}, errAgain
	}
	return outcome{refused: a}, nil
}

// registerIn registers job at exactly that index: in the user's name, or in the
// planner's where Nomad has found the user allowed to do what needs it.
func (g *Gateway) registerIn(ctx context.Context, r *http.Request, s *submission, job *api.Job, index uint64) (*reply, *problem) {
	if !s.asPlanner {
		return g.send(ctx, r, s.method, s.path, s.requestFor(job, index))
	}
	resp, meta, err := g.cfg.Client.Jobs().RegisterOpts(job, &api.RegisterOptions{
		EnforceIndex: true, ModifyIndex: index, PolicyOverride: s.register.PolicyOverride, Submission: s.register.Submission,
	}, (&api.WriteOptions{Namespace: s.namespace}).WithContext(ctx))
	var refused api.UnexpectedResponseError
	if errors.As(err, &refused) && refused.HasStatusCode() {
		return &reply{status: refused.StatusCode(), header: http.Header{}, body: []byte(refused.Body())}, nil
	}
	if err != nil {
		return nil, unreachable(g.cfg.Nomad, err)
	}
	body, err := json.Marshal(resp)
	if err != nil {
		return nil, problemf(http.StatusBadGateway, "Nomad's answer to the registration of job %q cannot be encoded: %v.", s.id, err)
	}
	header := http.Header{"X-Nomad-Index": {strconv.FormatUint(meta.LastIndex, 10)}}
	return &reply{status: http.StatusOK, header: header, body: body}, nil
}

// putBack undoes the writing of next. If the planner wrote in between it is
// tried again, as long as the record is still about the same submission.
func (g *Gateway) putBack(ctx context.Context, old, next *record.Record) error {
	index := next.ModifyIndex
	for range attempts {
		var err error
		if old == nil {
			gone := *next
			gone.ModifyIndex = index
			err = g.cfg.Records.Delete(ctx, &gone)
		} else {
			back := *old
			back.ModifyIndex = index
			err = g.cfg.Records.Put(ctx, &back)
		}
		if !errors.Is(err, record.ErrConflict) {
			return err
		}
		now, err := g.cfg.Records.Get(ctx, next.Namespace, next.JobID)
		switch {
		case errors.Is(err, record.ErrNotFound):
			return nil
		case err != nil:
			return err
		case now.SpecHash != next.SpecHash:
			return nil
		}
		index = now.ModifyIndex
	}
	return record.ErrConflict
}
