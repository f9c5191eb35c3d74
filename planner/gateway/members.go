package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/record"
)

const (
	// memberBody bounds the body of a request about an allocation, in bytes.
	memberBody = 64 << 10
	// coveredFor is how long a member that was restarted with its gang answers
	// to a request of its own with "done already". Every such request starts it
	// anew for the others: `nomad job restart` goes from member to member, each
	// when the one before it runs again.
	coveredFor = 60 * time.Second
)

// covered remembers the members that were restarted because another of their
// gang was.
type covered struct {
	mu    sync.Mutex
	until map[string]time.Time
	// gang are the members that were dealt with together, by each of them.
	gang map[string][]string
}

// add notes members that were dealt with together.
func (c *covered) add(ids []string, body []byte, now time.Time) {
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
		all = append(all, coveredKey(id, body))
	}
	for _, key := range all {
		c.until[key], c.gang[key] = now.Add(coveredFor), all
	}
}

// take says whether a member was dealt with already, once.
func (c *covered) take(id string, body []byte, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := coveredKey(id, body)
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
func coveredKey(id string, body []byte) string { return id + "/" + string(body) }

// serveRestart handles the restart of an allocation in place. One member of a
// gang cannot start over by itself: what is done to it is done to all of them,
// each in the user's own name.
func (g *Gateway) serveRestart(w http.ResponseWriter, r *http.Request, rt route) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, memberBody))
	if err != nil {
		refuse(w, http.StatusBadRequest, "The request's body could not be read: %v.", err)
		return
	}
	if g.covered.take(rt.jobID, body, g.cfg.Now()) {
		g.answerCovered(w, r, rt)
		return
	}
	// Read before anything is done: afterwards the gang is not what it was. It
	// is shown to nobody.
	others, err := g.runningWith(r.Context(), rt)
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

// runningWith are the members of an allocation's gang besides itself that run;
// none if it is in no gang of several.
func (g *Gateway) runningWith(ctx context.Context, rt route) ([]*api.AllocationListStub, error) {
	alloc, rec, spec, err := g.lookMember(ctx, rt.jobID)
	if err != nil || rec == nil || rec.Phase == record.PhaseRollback {
		return nil, err
	}
	return g.siblings(ctx, alloc, rec, spec, func(a *api.AllocationListStub) bool {
		return a.ClientStatus == api.AllocClientStatusRunning
	})
}

// fanOut restarts the other members after one.
func (g *Gateway) fanOut(r *http.Request, rt route, body []byte, others []*api.AllocationListStub) *problem {
	// One member is done with: a client that hangs up now must not leave half.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), record.ArrivingFor)
	defer cancel()
	var done, failed []string
	var last string
	for _, other := range others {
		target := "/v1/client/allocation/" + other.ID + "/restart"
		a, p := g.sendBody(ctx, r, r.Method, target, restartBody(body, other))
		switch {
		case p != nil:
			failed, last = append(failed, other.ID), p.text
		case !a.ok():
			failed, last = append(failed, other.ID), string(a.body)
		default:
			done = append(done, other.ID)
		}
	}
	g.covered.add(done, body, g.cfg.Now())
	if len(failed) > 0 {
		return problemf(http.StatusBadGateway, "Allocation %s and %d more of its gang were restarted, but not %v: %s. Try again for those.", rt.jobID, len(done), failed, last)
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
