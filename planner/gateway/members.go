package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

const (
	// memberBody bounds the body of a request about an allocation, in bytes.
	memberBody = 64 << 10
	// coveredFor is how long a member that was stopped or restarted with its
	// gang answers to a request of its own with "done already". Every such
	// request starts it anew for the others: `nomad job restart` goes from
	// member to member, each when the one before it runs again.
	coveredFor = 60 * time.Second
)

// covered remembers the members that were stopped or restarted because another
// of their gang was.
type covered struct {
	mu    sync.Mutex
	until map[string]time.Time
	// gang are the members that were dealt with together, by each of them.
	gang map[string][]string
}

// add notes members that were dealt with together.
func (c *covered) add(kind kind, ids []string, body []byte, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil {
		c.until, c.gang = map[string]time.Time{}, map[string][]string{}
	}
	for key, until := range c.until {
		if now.After(until) {
			delete(c.until, key)
			delete(c.gang, key)
		}
	}
	var all []string
	for _, id := range ids {
		all = append(all, coveredKey(kind, id, body))
	}
	for _, key := range all {
		c.until[key], c.gang[key] = now.Add(coveredFor), all
	}
}

// take says whether a member was dealt with already, once.
func (c *covered) take(kind kind, id string, body []byte, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := coveredKey(kind, id, body)
	until, ok := c.until[key]
	if !ok || now.After(until) {
		return false
	}
	for _, other := range c.gang[key] {
		if _, waits := c.until[other]; waits {
			c.until[other] = now.Add(coveredFor)
		}
	}
	delete(c.until, key)
	delete(c.gang, key)
	return true
}

// coveredKey names what was done to a member; the body says to which tasks.
func coveredKey(kind kind, id string, body []byte) string {
	return fmt.Sprintf("%d/%s/%s", kind, id, body)
}

// serveMember handles the stop or restart of an allocation. One member of a
// gang cannot go on, or start over, by itself: what is done to it is done to
// all of them, each in the user's own name.
func (g *Gateway) serveMember(w http.ResponseWriter, r *http.Request, rt route) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, memberBody))
	if err != nil {
		refuse(w, http.StatusBadRequest, "The request's body could not be read: %v.", err)
		return
	}
	if g.covered.take(rt.kind, rt.jobID, body, g.cfg.Now()) {
		g.answerCovered(w, r, rt)
		return
	}
	// Read before anything is done: afterwards the gang is not what it was. It
	// is shown to nobody.
	others, err := g.siblings(r.Context(), rt)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "Caravan could not look up the gang of allocation %q, nothing was done: %v. Try again; if it stays so, see the log of caravan agent.", rt.jobID, err)
		return
	}
	a, p := g.sendBody(r.Context(), r, r.Method, "", body)
	if p != nil {
		refuse(w, p.status, "%s", p.text)
		return
	}
	if a.ok() && len(others) > 0 {
		if p := g.fanOut(r, rt, body, others); p != nil {
			refuse(w, p.status, "%s", p.text)
			return
		}
	}
	relay(w, a)
}

// answerCovered answers for a member that has been dealt with. Nomad says
// whether the user may know of it.
func (g *Gateway) answerCovered(w http.ResponseWriter, r *http.Request, rt route) {
	a, p := g.send(r.Context(), r, http.MethodGet, "/v1/allocation/"+url.PathEscape(rt.jobID), nil)
	switch {
	case p != nil:
		refuse(w, p.status, "%s", p.text)
		return
	case !a.ok():
		relay(w, a)
		return
	}
	var alloc api.Allocation
	if err := json.Unmarshal(a.body, &alloc); err != nil {
		refuse(w, http.StatusBadGateway, "Nomad's answer about allocation %q cannot be read: %v.", rt.jobID, err)
		return
	}
	out := map[string]any{}
	if rt.kind == kindAllocStop {
		out["EvalID"], out["Index"] = alloc.EvalID, alloc.ModifyIndex
	}
	if err := answer(w, r, alloc.ModifyIndex, out); err != nil {
		g.log.Debug("answer for a member", "allocation", rt.jobID, "error", err)
	}
}

// siblings are the running members of an allocation's gang besides itself; none
// if it is in no gang of several.
func (g *Gateway) siblings(ctx context.Context, rt route) ([]*api.AllocationListStub, error) {
	q := (&api.QueryOptions{}).WithContext(ctx)
	alloc, _, err := g.cfg.Client.Allocations().Info(rt.jobID, q)
	if isNotFound(err) {
		return nil, nil // Nomad says so itself
	}
	if err != nil {
		return nil, fmt.Errorf("read allocation with the planner's own token: %w", err)
	}
	if alloc.Job != nil && !rewritten(alloc.Job) {
		return nil, nil
	}
	rec, err := g.cfg.Records.Get(ctx, alloc.Namespace, alloc.JobID)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read record: %w", err)
	case rec.Original == nil || rec.Phase != record.PhaseAdmitted && rec.Phase != record.PhaseRunning:
		return nil, nil
	}
	// Faults elsewhere in the contract do not matter here.
	spec, _ := gangspec.Parse(rec.Original, g.cfg.Levels...)
	if spec.Gang != model.GangJob && spec.Gang != model.GangGroup {
		return nil, nil
	}
	q = (&api.QueryOptions{Namespace: alloc.Namespace}).WithContext(ctx)
	stubs, _, err := g.cfg.Client.Jobs().Allocations(alloc.JobID, false, q)
	if err != nil {
		return nil, fmt.Errorf("list allocations with the planner's own token: %w", err)
	}
	mine, _, _ := rewrite.OriginByName(rec.Original, alloc.TaskGroup)
	var out []*api.AllocationListStub
	for _, stub := range stubs {
		group, _, _ := rewrite.OriginByName(rec.Original, stub.TaskGroup)
		active := stub.DesiredStatus == api.AllocDesiredStatusRun && (stub.ClientStatus == api.AllocClientStatusRunning ||
			rt.kind == kindAllocStop && stub.ClientStatus == api.AllocClientStatusPending)
		if active && stub.ID != alloc.ID && (spec.Gang == model.GangJob || group == mine) {
			out = append(out, stub)
		}
	}
	return out, nil
}

// fanOut does to the other members what was done to one.
func (g *Gateway) fanOut(r *http.Request, rt route, body []byte, others []*api.AllocationListStub) *problem {
	// One member is done with: a client that hangs up now must not leave half.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), record.ArrivingFor)
	defer cancel()
	var done, failed []string
	var last string
	for _, other := range others {
		target := "/v1/allocation/" + other.ID + "/stop"
		content := body
		if rt.kind == kindAllocRestart {
			target, content = "/v1/client/allocation/"+other.ID+"/restart", restartBody(body, other)
		}
		a, p := g.sendBody(ctx, r, r.Method, target, content)
		switch {
		case p != nil:
			failed, last = append(failed, other.ID), p.text
		case !a.ok():
			failed, last = append(failed, other.ID), string(a.body)
		default:
			done = append(done, other.ID)
		}
	}
	g.covered.add(rt.kind, done, body, g.cfg.Now())
	if len(failed) > 0 {
		return problemf(http.StatusBadGateway, "Allocation %s and %d more of its gang were dealt with, but not %v: %s. Try again for those.", rt.jobID, len(done), failed, last)
	}
	return nil
}

// restartBody is the body of a restart for another member, which may not have
// the task that was named: then all of its running tasks are restarted.
func restartBody(body []byte, other *api.AllocationListStub) []byte {
	var req struct {
		TaskName string
		AllTasks bool
	}
	if json.Unmarshal(body, &req) != nil || req.TaskName == "" {
		return body
	}
	if _, has := other.TaskStates[req.TaskName]; has {
		return body
	}
	return []byte(`{}`)
}
