package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

const (
	// DefaultWait is how long a registration's answer waits for the first
	// decision.
	DefaultWait = 3 * time.Second
	// DefaultMaxBody is the largest registration read, in bytes.
	DefaultMaxBody = 64 << 20
)

// Records is where the records of managed jobs are kept; record.Store is one.
type Records interface {
	// Get returns record.ErrNotFound for a job that has none.
	Get(ctx context.Context, namespace, job string) (*record.Record, error)
	// Put writes with check-and-set on the record's ModifyIndex, which it then
	// sets; record.ErrConflict means that somebody else wrote.
	Put(ctx context.Context, rec *record.Record) error
	// List returns all records that can be read, and record.ErrDamaged if there
	// are others.
	List(ctx context.Context) ([]*record.Record, error)
	// Delete removes the record with check-and-set on its ModifyIndex.
	Delete(ctx context.Context, rec *record.Record) error
}

// Waiter tells what was decided on a job.
type Waiter interface {
	// WaitDecision wakes the planner and returns the first decision on the
	// submission with that hash, or ctx's error.
	WaitDecision(ctx context.Context, namespace, job, specHash string) (httpapi.Explain, error)
}

// Config is what a Gateway works with.
type Config struct {
	// Nomad is the base URL of Nomad's HTTP API: http, https or unix.
	Nomad *url.URL
	// TLS is for the connection to Nomad; nil uses the system's authorities and
	// no client certificate.
	TLS *api.TLSConfig
	// Client reads Nomad with the planner's own token. What it reads is never
	// shown to a user whose own token has not been accepted for the same job.
	Client *api.Client
	// Managed says whether Caravan manages a job; its namespace is set.
	Managed func(job *api.Job) bool
	// Levels are the names of the operator's own topology levels.
	Levels []string
	// Region is the Nomad region that this Caravan plans for; "" asks Nomad.
	// Requests for another pass, and Nomad forwards them.
	Region string
	// Anywhere: a job for which nobody names a region may be sent to any of the
	// regions that are planned for.
	Anywhere bool
	Records  Records
	// Cluster is what a running gang is pinned with when a new submission
	// leaves it where it is.
	Cluster func(ctx context.Context) (*rewrite.Cluster, error)
	Waiter  Waiter
	// Preview says what would be decided on a job, for `nomad job plan`; nil
	// leaves it out.
	Preview func(ctx context.Context, job *api.Job) (httpapi.PlanResult, error)
	// Link is where a person reads the decision on a job; nil is nowhere. It goes
	// into the job's ui block.
	Link func(namespace, job string) string
	// Wait bounds the wait for the first decision; 0 is DefaultWait, less than 0
	// does not wait.
	Wait time.Duration
	// MaxBody is the largest registration read, in bytes; 0 is DefaultMaxBody.
	MaxBody int64
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	Log hclog.Logger
}

// Gateway is Nomad's HTTP API with managed jobs held at the door. The server
// that it runs in must have no read or write timeout: streams and blocking
// queries take as long as they take.
type Gateway struct {
	cfg   Config
	proxy *httputil.ReverseProxy
	http  *http.Client
	log   hclog.Logger
	// covered are members that were restarted with their gang, recalls those
	// that were stopped with it.
	covered covered
	recalls recalls
	own     ownRegion
	// moved is told of evaluations of other regions that it answers with; nil tells
	// nobody.
	moved func(eval, region string)
}

// New returns a Gateway. The error names every missing or wrong setting.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	transport, err := newTransport(cfg.Nomad, cfg.TLS)
	if err != nil {
		return nil, err
	}
	return &Gateway{
		cfg:   cfg,
		proxy: newProxy(cfg.Nomad, transport, cfg.Log),
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		log: cfg.Log,
	}, nil
}

// complete fills in the defaults.
func (c *Config) complete() error {
	var faults []error
	switch {
	case c.Nomad == nil:
		faults = append(faults, errors.New("no address of Nomad"))
	case c.Nomad.Scheme == "unix" && c.Nomad.Path != "":
	case (c.Nomad.Scheme == "http" || c.Nomad.Scheme == "https") && c.Nomad.Host != "":
	default:
		faults = append(faults, fmt.Errorf("the address of Nomad is %q: allowed are http://HOST:PORT, https://HOST:PORT and unix:///PATH", c.Nomad))
	}
	for _, part := range []struct {
		name    string
		missing bool
	}{
		{"client", c.Client == nil}, {"managed", c.Managed == nil}, {"records", c.Records == nil},
		{"cluster", c.Cluster == nil}, {"waiter", c.Waiter == nil},
	} {
		if part.missing {
			faults = append(faults, fmt.Errorf("no %s", part.name))
		}
	}
	if c.Wait == 0 {
		c.Wait = DefaultWait
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.Link == nil {
		c.Link = func(string, string) string { return "" }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	if len(faults) > 0 {
		return fmt.Errorf("set up gateway: %w", errors.Join(faults...))
	}
	return nil
}

// ServeHTTP serves one request of Nomad's API.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rt := classify(r)
	if rt.kind.aboutOne() && g.elsewhere(r, api.WriteRequest{}) {
		Pass(g.proxy, w, r)
		return
	}
	switch rt.kind {
	case kindRegister:
		g.serveRegister(w, r, rt.jobID)
	case kindPlan:
		g.servePlan(w, r, rt.jobID)
	case kindRevert:
		g.serveRevert(w, r, rt.jobID)
	case kindScale:
		g.serveScale(w, r, rt.jobID)
	case kindDispatch:
		g.serveDispatch(w, r, rt.jobID)
	case kindJob, kindVersions, kindScaleStatus, kindSummary:
		g.serveView(w, r, rt)
	case kindAllocStop:
		g.serveStop(w, r, rt)
	case kindAllocRestart:
		g.serveRestart(w, r, rt)
	case kindAlloc:
		g.serveAlloc(w, r, rt)
	case kindEvaluations:
		g.serveEvaluations(w, r, rt)
	case kindDeployments:
		g.serveDeployments(w, r, rt)
	case kindJobDeployment:
		g.serveJobDeployment(w, r, rt)
	case kindDeployment, kindDeploymentAllocs:
		g.serveDeployment(w, r, rt)
	case kindDeploymentChange:
		g.serveDeploymentChange(w, r, rt)
	case kindRedirect:
		redirect(w, r, rt.target)
	case kindRefuse:
		refuse(w, http.StatusBadRequest, "Caravan's gateway does not pass this request, because %s and it may register a job. Send PUT /v1/jobs as Nomad's documentation has it.", rt.why)
	default:
		Pass(g.proxy, w, r)
	}
}
