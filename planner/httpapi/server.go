package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/recording"
	"github.com/caravan-sched/caravan/planner/observe"
)

// maxWait bounds how long a request may wait for a decision.
const maxWait = 5 * time.Minute

// TokenHeader carries the caller's Nomad ACL token.
const TokenHeader = "X-Nomad-Token"

// Right is what a request needs to be allowed to.
type Right string

const (
	// RightReadJob: read-job in the namespace.
	RightReadJob Right = "read-job"
	// RightReadNode: node:read.
	RightReadNode Right = "node:read"
	// RightReadOperator: operator:read.
	RightReadOperator Right = "operator:read"
	// RightManage: a management token.
	RightManage Right = "management"
)

// Backend is what the API shows. Errors that are an *Error are shown as they
// are, all others as an internal one.
type Backend interface {
	// Status is how the planner is.
	Status() Status
	// View is the newest one; nil while there is none yet.
	View() *observe.View
	// Explain fills in what was decided on a job.
	Explain(namespace, job string) (Explain, bool)
	// Speed is what is known of how fast a job works; nil if nothing is.
	Speed(namespace, job string) *Speed
	// Unblock finds what could be stopped so that a job that waits for room starts
	// at once; nil if it does not wait for room, or nothing would help.
	Unblock(namespace, job string) (*model.Unblock, error)
	// WaitDecision waits until a decision was made on that version of a job.
	WaitDecision(ctx context.Context, namespace, job, specHash string) (Explain, error)
	// Queue are the waiting jobs in the order in which they are served.
	Queue() []Job
	// Queues is how the queues stand, by path.
	Queues() []model.QueueUse
	// Reservations is how the reservations stand.
	Reservations() []model.ReservationUse
	// Recording is what was last decided on, and the result; nil before the first
	// decision.
	Recording() *recording.Recording
	// Plan says what would be decided.
	Plan(ctx context.Context, job *api.Job) (PlanResult, error)
	// Release takes Caravan's hands off jobs. Nomad checks with the caller's
	// token that they may be registered.
	Release(ctx context.Context, token string, req ReleaseRequest) (ReleaseResult, error)
	// Doctor examines the cluster.
	Doctor(ctx context.Context) Doctor
	// Authorize checks that Nomad grants the token that right; namespace is
	// "*" for any.
	Authorize(ctx context.Context, token string, right Right, namespace string) error
	Members
	Configurable
	Divider
	Buyer
}

// Handler serves the API. It expects paths with Prefix.
func Handler(b Backend) http.Handler {
	s := &server{b: b}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Prefix+"/status", s.answer(s.status))
	mux.HandleFunc("GET "+Prefix+"/queue", s.answer(s.queue))
	mux.HandleFunc("GET "+Prefix+"/queues", s.answer(s.queues))
	mux.HandleFunc("GET "+Prefix+"/reservations", s.answer(s.reservations))
	mux.HandleFunc("GET "+Prefix+"/jobs", s.answer(s.jobs))
	mux.HandleFunc("GET "+Prefix+"/explain/{namespace}/{job}", s.answer(s.explain))
	mux.HandleFunc("GET "+Prefix+"/unblock/{namespace}/{job}", s.answer(s.unblock))
	mux.HandleFunc("GET "+Prefix+"/topology", s.answer(s.topology))
	mux.HandleFunc("GET "+Prefix+"/topology/{node}", s.answer(s.node))
	mux.HandleFunc("GET "+Prefix+"/snapshot", s.answer(s.snapshot))
	mux.HandleFunc("GET "+Prefix+"/recording", s.answer(s.recording))
	mux.HandleFunc("GET "+Prefix+"/doctor", s.answer(s.doctor))
	mux.HandleFunc("GET "+Prefix+"/divisions", s.answer(s.divisions))
	mux.HandleFunc("POST "+Prefix+"/plan", s.answer(s.plan))
	mux.HandleFunc("POST "+Prefix+"/release", s.answer(s.release))
	s.handleMembers(mux)
	s.handleSettings(mux)
	s.handleBurst(mux)
	mux.HandleFunc("/", s.answer(unknown))
	return mux
}

type server struct{ b Backend }

// answer makes a handler of a function that returns a value or an error.
func (s *server) answer(f func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := f(r)
		if err != nil {
			writeError(w, err)
			return
		}
		write(w, http.StatusOK, out)
	}
}

func write(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		status = http.StatusInternalServerError
		b = []byte(`{"error":"the answer cannot be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that has gone away is no fault of ours.
	_, _ = w.Write(append(b, '\n'))
}

func writeError(w http.ResponseWriter, err error) {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Status: http.StatusInternalServerError, Message: err.Error()}
	}
	status := e.Status
	if status == 0 {
		status = http.StatusInternalServerError
	}
	write(w, status, e)
}

func unknown(r *http.Request) (any, error) {
	return nil, &Error{
		Status:  http.StatusNotFound,
		Message: fmt.Sprintf("%s %s is not a part of the API", r.Method, r.URL.Path),
		Do: "use GET " + Prefix + "/{status,queue,queues,reservations,jobs,explain/NAMESPACE/JOB,unblock/NAMESPACE/JOB,topology,topology/NODE,progress/NAMESPACE/JOB,snapshot,recording,settings,doctor,divisions,burst}, PUT or DELETE " +
			Prefix + "/settings/{policy,queues,reservations}, or POST " +
			Prefix + "/{plan,release,suspend,resume,requeue,burst/report,burst/forget}",
	}
}

func (s *server) authorize(r *http.Request, right Right, namespace string) error {
	return s.b.Authorize(r.Context(), r.Header.Get(TokenHeader), right, namespace)
}

// view is the newest View, for a caller who may see all of it.
func (s *server) view(r *http.Request, rights ...Right) (*observe.View, error) {
	for _, right := range rights {
		if err := s.authorize(r, right, "*"); err != nil {
			return nil, err
		}
	}
	v := s.b.View()
	if v == nil {
		st := s.b.Status()
		e := &Error{Status: http.StatusServiceUnavailable, Message: "the planner has not seen the cluster yet", Do: "try again in a moment"}
		if st.Nomad.Error != "" {
			e.Message += ": " + st.Nomad.Error
			e.Do = "see " + Prefix + "/status"
		}
		return nil, e
	}
	return v, nil
}

func (s *server) status(*http.Request) (any, error) { return s.b.Status(), nil }

func (s *server) queue(r *http.Request) (any, error) {
	if _, err := s.view(r, RightReadJob); err != nil {
		return nil, err
	}
	return s.working(s.visible(r, s.b.Queue())), nil
}

func (s *server) queues(r *http.Request) (any, error) {
	if _, err := s.view(r, RightReadJob); err != nil {
		return nil, err
	}
	return orEmpty(s.b.Queues()), nil
}

// reservations names jobs of all namespaces, and nodes.
func (s *server) reservations(r *http.Request) (any, error) {
	if _, err := s.view(r, RightReadJob, RightReadNode); err != nil {
		return nil, err
	}
	return orEmpty(s.b.Reservations()), nil
}

func (s *server) jobs(r *http.Request) (any, error) {
	v, err := s.view(r, RightReadJob)
	if err != nil {
		return nil, err
	}
	out := make([]Job, 0, len(v.Managed))
	for i := range v.Managed {
		if e, ok := s.b.Explain(v.Managed[i].Namespace, v.Managed[i].ID); ok {
			out = append(out, e.Job)
		}
	}
	return s.working(s.visible(r, out)), nil
}

// working adds how far jobs have come of which something is placed.
func (s *server) working(jobs []Job) []Job {
	for i := range jobs {
		if jobs[i].Placed > 0 {
			jobs[i].Work = barrier.Summaries(s.b.Gangs(jobs[i].Namespace, jobs[i].ID))
		}
	}
	return orEmpty(jobs)
}

// visible drops the jobs of namespaces that the caller must not read.
func (s *server) visible(r *http.Request, jobs []Job) []Job {
	allowed := map[string]bool{}
	out := make([]Job, 0, len(jobs))
	for _, j := range jobs {
		ok, known := allowed[j.Namespace]
		if !known {
			ok = s.authorize(r, RightReadJob, j.Namespace) == nil
			allowed[j.Namespace] = ok
		}
		if ok {
			out = append(out, j)
		}
	}
	return out
}

// orEmpty makes an empty list [] and not null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// explain answers at once or, with ?wait=DURATION and ?hash=SPEC_HASH, once a
// decision was made on that version of the job.
func (s *server) explain(r *http.Request) (any, error) {
	namespace, job := r.PathValue("namespace"), r.PathValue("job")
	if err := s.authorize(r, RightReadJob, namespace); err != nil {
		return nil, err
	}
	if text := r.URL.Query().Get("wait"); text != "" {
		wait, err := time.ParseDuration(text)
		if err != nil || wait < 0 || wait > maxWait {
			return nil, &Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("wait is %q", text), Do: "give a duration from 0s to " + maxWait.String()}
		}
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		e, err := s.b.WaitDecision(ctx, namespace, job, r.URL.Query().Get("hash"))
		if err == nil || !errors.Is(err, context.DeadlineExceeded) {
			e.Gangs = s.b.Gangs(namespace, job)
			e.Work = barrier.Summaries(e.Gangs)
			return e, err
		}
	}
	if _, err := s.view(r); err != nil {
		return nil, err
	}
	e, ok := s.b.Explain(namespace, job)
	if !ok {
		return nil, notManaged(namespace, job)
	}
	e.Gangs, e.Speed = s.b.Gangs(namespace, job), s.b.Speed(namespace, job)
	e.Work = barrier.Summaries(e.Gangs)
	return e, nil
}

// unblock names jobs of all namespaces, and takes as long as a decision.
func (s *server) unblock(r *http.Request) (any, error) {
	namespace, job := r.PathValue("namespace"), r.PathValue("job")
	if _, err := s.view(r, RightReadJob); err != nil {
		return nil, err
	}
	if err := s.authorize(r, RightReadJob, namespace); err != nil {
		return nil, err
	}
	if _, ok := s.b.Explain(namespace, job); !ok {
		return nil, notManaged(namespace, job)
	}
	found, err := s.b.Unblock(namespace, job)
	return UnblockResult{found}, err
}

func (s *server) topology(r *http.Request) (any, error) {
	v, err := s.view(r, RightReadNode)
	if err != nil {
		return nil, err
	}
	return Tree(v), nil
}

func (s *server) node(r *http.Request) (any, error) {
	v, err := s.view(r, RightReadNode)
	if err != nil {
		return nil, err
	}
	return Inside(v, r.PathValue("node"))
}

func (s *server) snapshot(r *http.Request) (any, error) {
	v, err := s.view(r, RightManage)
	if err != nil {
		return nil, err
	}
	return v.Snapshot, nil
}

func (s *server) recording(r *http.Request) (any, error) {
	if err := s.authorize(r, RightManage, "*"); err != nil {
		return nil, err
	}
	rec := s.b.Recording()
	if rec == nil {
		return nil, &Error{Status: http.StatusServiceUnavailable, Message: "nothing was decided yet", Do: "try again in a moment; caravan status says what the planner waits for"}
	}
	return rec, nil
}

// doctor answers an operator, who sees the names of all nodes and jobs in it,
// even while the planner has not seen the cluster yet.
func (s *server) doctor(r *http.Request) (any, error) {
	for _, right := range []Right{RightReadOperator, RightReadNode, RightReadJob} {
		if err := s.authorize(r, right, "*"); err != nil {
			return nil, err
		}
	}
	return s.b.Doctor(r.Context()), nil
}
