package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/recording"
)

// maxAnswer bounds what a client reads: a snapshot of the largest cluster is
// far below it, and a wrong address cannot fill the memory.
const maxAnswer = 1 << 30

var (
	// ErrNotFound is in the chain of a planner's answer that there is no such
	// thing.
	ErrNotFound = errors.New("not found")
	// ErrNotPlanner is in the chain of an answer that no planner gives.
	ErrNotPlanner = errors.New("no answer of a Caravan planner")
)

// Client talks to a planner's API.
type Client struct {
	base  *url.URL
	http  *http.Client
	token string
}

// NewClient returns a client for the planner at address; "" means the
// environment's CARAVAN_ADDR, or else DefaultAddress. hc may be nil. token is
// the Nomad ACL token that the planner checks, "" if there are no ACLs.
func NewClient(address, token string, hc *http.Client) (*Client, error) {
	if address == "" {
		address = os.Getenv(AddressEnv)
	}
	if address == "" {
		address = DefaultAddress
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("parse address %q: %w", address, err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("parse address %q: want http://HOST:PORT or https://HOST:PORT", address)
	}
	if hc == nil {
		hc = &http.Client{Timeout: 60 * time.Second}
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return &Client{base: u, http: hc, token: token}, nil
}

// Address is the planner's base URL.
func (c *Client) Address() string { return c.base.String() }

// Status asks how the planner is.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return get[Status](ctx, c, "status")
}

// Queue lists the jobs that wait, in the order in which they are served.
func (c *Client) Queue(ctx context.Context) ([]Job, error) {
	return get[[]Job](ctx, c, "queue")
}

// Reservations asks how the reservations stand.
func (c *Client) Reservations(ctx context.Context) ([]model.ReservationUse, error) {
	return get[[]model.ReservationUse](ctx, c, "reservations")
}

// Queues asks how the queues stand, by path.
func (c *Client) Queues(ctx context.Context) ([]model.QueueUse, error) {
	return get[[]model.QueueUse](ctx, c, "queues")
}

// Jobs lists all managed jobs.
func (c *Client) Jobs(ctx context.Context) ([]Job, error) {
	return get[[]Job](ctx, c, "jobs")
}

// Explain asks what was decided on a job and why.
func (c *Client) Explain(ctx context.Context, namespace, job string) (Explain, error) {
	return get[Explain](ctx, c, "explain", namespace, job)
}

// Unblock asks what could be stopped so that a job starts at once.
func (c *Client) Unblock(ctx context.Context, namespace, job string) (UnblockResult, error) {
	return get[UnblockResult](ctx, c, "unblock", namespace, job)
}

// WaitDecision asks for the first decision on that version of a job (the
// record's SpecHash) and waits for it up to the time given. What there is by
// then is the answer.
func (c *Client) WaitDecision(ctx context.Context, namespace, job, specHash string, wait time.Duration) (Explain, error) {
	q := url.Values{"wait": {wait.String()}, "hash": {specHash}}
	return do[Explain](ctx, c, http.MethodGet, nil, q, "explain", namespace, job)
}

// Topology asks for the tree.
func (c *Client) Topology(ctx context.Context) (Topology, error) {
	return get[Topology](ctx, c, "topology")
}

// NodeTopology asks for the inside of one node, by ID, ID prefix or name.
func (c *Client) NodeTopology(ctx context.Context, node string) (NodeTopology, error) {
	return get[NodeTopology](ctx, c, "topology", node)
}

// Snapshot asks for what the next decision would read.
func (c *Client) Snapshot(ctx context.Context) (*model.Snapshot, error) {
	return get[*model.Snapshot](ctx, c, "snapshot")
}

// Recording asks for what was last decided on, and the result.
func (c *Client) Recording(ctx context.Context) (*recording.Recording, error) {
	return get[*recording.Recording](ctx, c, "recording")
}

// Doctor asks for an examination of the cluster and the planner.
func (c *Client) Doctor(ctx context.Context) (Doctor, error) {
	return get[Doctor](ctx, c, "doctor")
}

// Plan asks what would be decided on a job. job is an *api.Job, or anything
// that is encoded like one.
func (c *Client) Plan(ctx context.Context, job any) (PlanResult, error) {
	return post[PlanResult](ctx, c, struct{ Job any }{job}, "plan")
}

// Release takes Caravan's hands off one job, or all.
func (c *Client) Release(ctx context.Context, req ReleaseRequest) (ReleaseResult, error) {
	return post[ReleaseResult](ctx, c, req, "release")
}

// Progress asks how far the gangs of a job are.
func (c *Client) Progress(ctx context.Context, namespace, job string) (Progress, error) {
	return get[Progress](ctx, c, "progress", namespace, job)
}

// Steer suspends, resumes or requeues the gangs of a job.
func (c *Client) Steer(ctx context.Context, verb Verb, req SteerRequest) (SteerResult, error) {
	return post[SteerResult](ctx, c, req, string(verb))
}

func get[T any](ctx context.Context, c *Client, path ...string) (T, error) {
	return do[T](ctx, c, http.MethodGet, nil, nil, path...)
}

func post[T any](ctx context.Context, c *Client, body any, path ...string) (T, error) {
	b, err := json.Marshal(body)
	if err != nil {
		var zero T
		return zero, fmt.Errorf("encode request: %w", err)
	}
	return do[T](ctx, c, http.MethodPost, b, nil, path...)
}

func do[T any](ctx context.Context, c *Client, method string, body []byte, query url.Values, path ...string) (T, error) {
	return send[T](ctx, c, method, "application/json", body, query, path...)
}

// send is do with a body of any type.
func send[T any](ctx context.Context, c *Client, method, contentType string, body []byte, query url.Values, path ...string) (T, error) {
	var out T
	// A job's ID may hold a slash, so each element is escaped by itself.
	escaped := make([]string, len(path))
	for i, p := range path {
		escaped[i] = url.PathEscape(p)
	}
	target := c.base.String() + Prefix + "/" + strings.Join(escaped, "/")
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return out, fmt.Errorf("make request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	if c.token != "" {
		req.Header.Set("X-Nomad-Token", c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return out, fmt.Errorf("reach the planner at %s: %w", c.base, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return out, fmt.Errorf("read the planner's answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return out, answerError(resp.StatusCode, b)
	}
	if resp.StatusCode == http.StatusNoContent {
		return out, nil
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return out, fmt.Errorf("decode the planner's answer to %s %s: %w", method, target, err)
	}
	return out, nil
}

// answerError keeps the answer's own words when they are ours, and shows the
// start of anything else: a proxy in between, or another program's port.
func answerError(status int, body []byte) error {
	e := &Error{Status: status}
	if json.Unmarshal(body, e) != nil || e.Message == "" {
		text := strings.TrimSpace(string(body))
		if len(text) > 200 {
			text = text[:200] + "…"
		}
		e.Message = fmt.Sprintf("unexpected answer %d: %s", status, text)
		e.Do = "check that the address is a Caravan planner's"
		return fmt.Errorf("%w: %w", ErrNotPlanner, e)
	}
	if status == http.StatusNotFound {
		return fmt.Errorf("%w: %w", ErrNotFound, e)
	}
	return e
}
