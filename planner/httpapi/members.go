package httpapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/barrier/identity"
)

// RightSubmitJob: submit-job in the namespace.
const RightSubmitJob Right = "submit-job"

// Members is what the API does for members of gangs, and for operators about
// gangs that run.
type Members interface {
	// Join and Report are long polls of a member's; identity is its workload
	// identity. The errors wrap those of packages barrier and identity.
	Join(ctx context.Context, identity string, req gangapi.JoinRequest) (barrier.Reply[gangapi.JoinAnswer], error)
	Report(ctx context.Context, identity string, req gangapi.ReportRequest) (barrier.Reply[gangapi.ReportAnswer], error)
	// Gangs are a job's gangs at the barrier or running.
	Gangs(namespace, job string) []barrier.Status
	// Steer does to a job's gangs what an operator says.
	Steer(ctx context.Context, verb Verb, req SteerRequest) (SteerResult, error)
}

// Verb is what an operator has done to the gangs of a job.
type Verb string

const (
	// VerbSuspend and VerbResume stop and continue every process.
	VerbSuspend Verb = "suspend"
	VerbResume  Verb = "resume"
	// VerbRequeue stops the job, with a checkpoint where its members take one,
	// and queues it again.
	VerbRequeue Verb = "requeue"
)

// SteerRequest is POST /suspend, /resume and /requeue.
type SteerRequest struct {
	Namespace string `json:"namespace,omitempty"`
	Job       string `json:"job"`
	// Reason is for people; it may be empty.
	Reason string `json:"reason,omitempty"`
}

// SteerResult says what came of it.
type SteerResult struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	// Changed is false when there was nothing to do. Note says in words what was
	// done, or why nothing was.
	Changed bool   `json:"changed"`
	Note    string `json:"note"`
}

// Progress is GET /progress/{namespace}/{job}: how far its gangs are.
type Progress struct {
	Namespace string           `json:"namespace"`
	Job       string           `json:"job"`
	Gangs     []barrier.Status `json:"gangs"`
}

// maxMember bounds a member's request in bytes: a node has a few dozen GPUs.
const maxMember = 64 << 10

func (s *server) handleMembers(mux *http.ServeMux) {
	mux.HandleFunc("POST "+gangapi.JoinPath, member(s.b.Join))
	mux.HandleFunc("POST "+gangapi.ReportPath, member(s.b.Report))
	mux.HandleFunc("GET "+Prefix+"/progress/{namespace}/{job}", s.answer(s.progress))
	for _, verb := range []Verb{VerbSuspend, VerbResume, VerbRequeue} {
		mux.HandleFunc("POST "+Prefix+"/"+string(verb), s.answer(func(r *http.Request) (any, error) { return s.steer(r, verb) }))
	}
}

// member answers a member's request.
func member[Req, Answer any](ask func(context.Context, string, Req) (barrier.Reply[Answer], error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req Req
		if err := decodeMax(r, &req, maxMember); err != nil {
			writeError(w, err)
			return
		}
		reply, err := ask(r.Context(), r.Header.Get(gangapi.IdentityHeader), req)
		switch {
		case r.Context().Err() != nil:
			return // nobody listens any more
		case err != nil:
			writeError(w, memberError(w, err))
			return
		}
		writeReply(w, r, reply)
	}
}

// memberError says in words, and with what to do, why a member is not answered.
func memberError(w http.ResponseWriter, err error) error {
	var e *Error
	switch {
	case errors.As(err, &e):
	case errors.Is(err, identity.ErrMissing):
		e = &Error{Status: http.StatusUnauthorized, Message: err.Error(),
			Do: fmt.Sprintf("give the task identity { name = %q, aud = [%q], file = true, ttl = \"1h\" }, and send the token in the header %s; "+
				"tasks of the caravan driver that Caravan has placed have that block", gangapi.IdentityName, gangapi.Audience, gangapi.IdentityHeader)}
	case errors.Is(err, identity.ErrInvalid):
		e = &Error{Status: http.StatusUnauthorized, Message: err.Error(),
			Do: fmt.Sprintf("send the token of the task's identity block with the name %q and aud = [%q]", gangapi.IdentityName, gangapi.Audience)}
	case errors.Is(err, barrier.ErrRequest):
		e = &Error{Status: http.StatusBadRequest, Message: err.Error()}
	case errors.Is(err, identity.ErrKeys), errors.Is(err, barrier.ErrNotLeading), errors.Is(err, barrier.ErrBusy):
		w.Header().Set("Retry-After", "1")
		e = &Error{Status: http.StatusServiceUnavailable, Message: err.Error(), Do: "try again in a moment"}
	default:
		return err
	}
	return e
}

// writeReply writes an answer whose end may have been encoded, and packed, for
// many members at once.
func writeReply[T any](w http.ResponseWriter, r *http.Request, reply barrier.Reply[T]) {
	if reply.Tail == nil {
		write(w, http.StatusOK, reply.Answer)
		return
	}
	head, err := json.Marshal(reply.Answer)
	if err != nil {
		writeError(w, fmt.Errorf("encode answer: %w", err))
		return
	}
	head = bytes.TrimSuffix(head, []byte("}"))
	tail := reply.Tail.Plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		// One packed stream may follow another.
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err := z.Write(head)
		if err = errors.Join(err, z.Close()); err == nil {
			head, tail = packed.Bytes(), reply.Tail.Gzip
			w.Header().Set("Content-Encoding", "gzip")
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(head)+len(tail)))
	w.WriteHeader(http.StatusOK)
	// A client that has gone away is no fault of ours.
	_, _ = w.Write(head)
	_, _ = w.Write(tail)
}

func (s *server) progress(r *http.Request) (any, error) {
	namespace, job := r.PathValue("namespace"), r.PathValue("job")
	if err := s.authorize(r, RightReadJob, namespace); err != nil {
		return nil, err
	}
	if _, err := s.view(r); err != nil {
		return nil, err
	}
	if _, ok := s.b.Explain(namespace, job); !ok {
		return nil, notManaged(namespace, job)
	}
	return Progress{Namespace: namespace, Job: job, Gangs: orEmpty(s.b.Gangs(namespace, job))}, nil
}

func notManaged(namespace, job string) *Error {
	return &Error{
		Status:  http.StatusNotFound,
		Message: fmt.Sprintf("Caravan manages no job %q in namespace %q", job, namespace),
		Do:      "check the name with nomad job status; a job is managed when it is a service or batch job that asks for a managed device",
	}
}

func (s *server) steer(r *http.Request, verb Verb) (any, error) {
	var req SteerRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	if req.Job = strings.TrimSpace(req.Job); req.Job == "" {
		return nil, &Error{Status: http.StatusBadRequest, Message: "the request names no job", Do: `send {"namespace": …, "job": …}`}
	}
	if req.Namespace == "" {
		req.Namespace = api.DefaultNamespace
	}
	if err := s.authorize(r, RightSubmitJob, req.Namespace); err != nil {
		return nil, err
	}
	if _, err := s.view(r); err != nil {
		return nil, err
	}
	if _, ok := s.b.Explain(req.Namespace, req.Job); !ok {
		return nil, notManaged(req.Namespace, req.Job)
	}
	return s.b.Steer(r.Context(), verb, req)
}
