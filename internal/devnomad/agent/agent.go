// Package agent is the stand-in's HTTP API: the part of Nomad's that Caravan,
// the official client library and the command line use.
package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-bexpr"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/client"
	"github.com/caravan-sched/caravan/internal/devnomad/server"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// Config is what the API serves.
type Config struct {
	Server *server.Server
	// Client returns the client with a node ID, or nil.
	Client func(id string) *client.Client
	// Address is the agent's own, "127.0.0.1:4646".
	Address string
	// Fail may answer a request instead of the API: a status other than 0 is
	// sent with the body as it is. Nil answers none.
	Fail func(*http.Request) (status int, body string)
	// Token is the management token; "" turns ACLs off.
	Token string
	// Region is the servers' own, "" for "global", and Regions are all that they
	// know, themselves included; nil for that one.
	Region  string
	Regions func() []string
	// Forward is the API of another region's servers; false: no path leads there. nil
	// is that always.
	Forward func(region string) (http.Handler, bool)
}

// Agent serves the API.
type Agent struct {
	cfg Config
	mux *http.ServeMux
	acl *acl
}

// New returns the API's handler.
func New(cfg Config) *Agent {
	cfg.Region = cmp.Or(cfg.Region, api.GlobalRegion)
	if cfg.Regions == nil {
		cfg.Regions = func() []string { return []string{cfg.Region} }
	}
	if cfg.Forward == nil {
		cfg.Forward = func(string) (http.Handler, bool) { return nil, false }
	}
	a := &Agent{cfg: cfg, mux: http.NewServeMux(), acl: newACL(cfg.Token, cfg.Server.Now())}
	a.routeJobs()
	a.routeNodes()
	a.routeAllocs()
	a.routeVariables()
	a.routeMisc()
	a.routeACL()
	return a
}

// ServeHTTP implements http.Handler.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.cfg.Fail != nil {
		if status, body := a.cfg.Fail(r); status != 0 {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
			return
		}
	}
	if region := r.URL.Query().Get("region"); region != "" && region != a.cfg.Region {
		a.forward(w, r, region)
		return
	}
	if h, pattern := a.mux.Handler(r); pattern == "" {
		refuse(w, r, h)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// refuse answers what no handler is there for: the multiplexer knows whether
// the path or the method is wrong, the words are Nomad's.
func refuse(w http.ResponseWriter, r *http.Request, h http.Handler) {
	var asked statusOnly
	h.ServeHTTP(&asked, r)
	if asked.code == http.StatusMethodNotAllowed {
		writeError(w, codef(asked.code, "Invalid method"))
		return
	}
	w.WriteHeader(http.StatusNotFound)
}

// statusOnly takes an answer's status and drops the rest.
type statusOnly struct{ code int }

func (s *statusOnly) Header() http.Header            { return http.Header{} }
func (s *statusOnly) Write(body []byte) (int, error) { return len(body), nil }
func (s *statusOnly) WriteHeader(code int)           { s.code = code }

// handler answers a request with an object or an error. A nil object is an
// empty answer.
type handler func(w http.ResponseWriter, r *http.Request) (any, error)

// handle registers a handler that needs a capability, "" for none. A pattern
// without a method is for writing; "any" is every method.
func (a *Agent) handle(pattern, capability string, h handler) {
	methods := []string{http.MethodPut, http.MethodPost}
	if method, path, ok := strings.Cut(pattern, " "); ok {
		methods, pattern = []string{method}, path
		if method == "any" {
			methods = []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete}
		}
	}
	for _, m := range methods {
		a.handleOne(m+" "+pattern, capability, h)
	}
}

func (a *Agent) handleOne(pattern, capability string, h handler) {
	a.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := a.acl.check(r, capability); err != nil {
			writeError(w, err)
			return
		}
		obj, err := h(w, r)
		if err != nil {
			writeError(w, err)
			return
		}
		if obj != nil {
			writeJSON(w, r, http.StatusOK, obj)
		}
	})
}

func writeJSON(w http.ResponseWriter, r *http.Request, status int, obj any) {
	var raw []byte
	var err error
	if v, ok := r.URL.Query()["pretty"]; ok && v[0] != "0" {
		raw, err = json.MarshalIndent(obj, "", "    ")
	} else {
		raw, err = json.Marshal(obj)
	}
	if err != nil {
		writeError(w, fmt.Errorf("encode answer: %w", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(raw)
}

func writeError(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	var coded *server.Error
	if errors.As(err, &coded) {
		code = coded.Code
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, err.Error())
}

func codef(code int, format string, args ...any) error {
	return &server.Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// decode reads a JSON body.
func decode(r *http.Request, out any) error {
	if r.Body == nil || r.Body == http.NoBody {
		return codef(400, "Request body is empty")
	}
	if err := json.NewDecoder(r.Body).Decode(out); err != nil {
		return codef(400, "%v", err)
	}
	return nil
}

// query are the options of a read.
type query struct {
	namespace string
	prefix    string
	index     uint64
	wait      time.Duration
	perPage   int
	nextToken string
	reverse   bool
	filter    *filter
}

// filter is an expression on the elements of a list, as they are stored.
type filter struct {
	eval *bexpr.Evaluator
	err  error
}

// keeps says whether an element belongs to the answer.
func (q query) keeps(element any) bool {
	if q.filter == nil {
		return true
	}
	ok, err := q.filter.eval.Evaluate(element)
	if err != nil && q.filter.err == nil {
		q.filter.err = codef(400, "failed to filter: %v", err)
	}
	return ok
}

const (
	defaultWait = 5 * time.Minute
	maxWait     = 10 * time.Minute
)

func parseQuery(r *http.Request) (query, error) {
	v := r.URL.Query()
	q := query{namespace: namespace(r), prefix: v.Get("prefix"), wait: defaultWait, nextToken: v.Get("next_token")}
	var err error
	if s := v.Get("index"); s != "" {
		if q.index, err = strconv.ParseUint(s, 10, 64); err != nil {
			return q, codef(400, "Invalid index")
		}
	}
	if s := v.Get("wait"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			return q, codef(400, "Invalid wait time")
		}
		if q.wait = min(d, maxWait); d == 0 {
			q.wait = defaultWait
		}
	}
	if s := v.Get("per_page"); s != "" {
		if q.perPage, err = strconv.Atoi(s); err != nil {
			return q, codef(400, "Expect a number for `per_page` query string parameter")
		}
	}
	if s := v.Get("filter"); s != "" {
		eval, err := bexpr.CreateEvaluator(s)
		if err != nil {
			return q, codef(400, "failed to create result paginator: failed to read filter expression: %v", err)
		}
		q.filter = &filter{eval: eval}
	}
	q.reverse = v.Get("reverse") == "true"
	return q, nil
}

func namespace(r *http.Request) string {
	if ns := r.URL.Query().Get("namespace"); ns != "" {
		return ns
	}
	return api.DefaultNamespace
}

// result is what a read found, and the index that a watcher waits to pass.
type result struct {
	obj   any
	index uint64
	err   error
}

// read answers a read, blocking as Nomad does: until the index is greater than
// the one asked for, or the wait is over.
func (a *Agent) read(f func(v *state.View, r *http.Request, q query) result) handler {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		q, err := parseQuery(r)
		if err != nil {
			return nil, err
		}
		// The wait is the caller's, so it goes by the machine's clock.
		ctx, cancel := context.WithTimeout(r.Context(), q.wait)
		defer cancel()
		for {
			changed := a.cfg.Server.Store().Changed()
			var res result
			a.cfg.Server.Store().View(func(v *state.View) { res = f(v, r, q) })
			if q.filter != nil && q.filter.err != nil {
				return nil, q.filter.err
			}
			if q.index == 0 || res.index > q.index || ctx.Err() != nil {
				setMeta(w, res.index)
				return res.obj, res.err
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
}

func setMeta(w http.ResponseWriter, index uint64) {
	w.Header().Set("X-Nomad-Index", strconv.FormatUint(index, 10))
	w.Header().Set("X-Nomad-KnownLeader", "true")
	w.Header().Set("X-Nomad-LastContact", "0")
}

func setIndex(w http.ResponseWriter, index uint64) {
	w.Header().Set("X-Nomad-Index", strconv.FormatUint(index, 10))
}

// page cuts a list to the page asked for; id names an element for the next
// token.
func page[T any](w http.ResponseWriter, q query, list []T, id func(T) string) []T {
	if q.nextToken != "" {
		for len(list) > 0 && id(list[0]) != q.nextToken {
			list = list[1:]
		}
	}
	if q.perPage > 0 && len(list) > q.perPage {
		w.Header().Set("X-Nomad-NextToken", id(list[q.perPage]))
		list = list[:q.perPage]
	}
	if list == nil {
		list = []T{}
	}
	return list
}

func reverse[T any](list []T) []T {
	out := make([]T, 0, len(list))
	for i := len(list) - 1; i >= 0; i-- {
		out = append(out, list[i])
	}
	return out
}

// flag reads a boolean parameter.
func flag(r *http.Request, name string, unset bool) (bool, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return unset, nil
	}
	b, err := strconv.ParseBool(s)
	if err != nil {
		return false, codef(500, "Failed to parse value of %q (%v) as a bool: %v", name, s, err)
	}
	return b, nil
}

func hasPrefix(id, prefix string) bool { return strings.HasPrefix(id, prefix) }

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
