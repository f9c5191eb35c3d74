package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// recalledFor is how long the gateway knows of a member that was stopped with
// its gang, after it was last asked about it: `nomad job restart -reschedule`
// waits for each one's successor in turn.
const recalledFor = time.Hour

// recalls remembers the members of gangs that were stopped as a whole, so that
// each is shown with the member that succeeds it.
type recalls struct {
	mu      sync.Mutex
	members map[string]recalled
	// busy are the jobs of which a member is being stopped.
	busy map[string]chan struct{}
}

// recalled is a member that was stopped with its gang.
type recalled struct {
	namespace, job string
	// group and name are the allocation's, in Nomad's terms.
	group, name string
	created     uint64
	until       time.Time
}

func (c *recalls) add(allocs []*api.AllocationListStub, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members == nil {
		c.members = map[string]recalled{}
	}
	for id, m := range c.members {
		if now.After(m.until) {
			delete(c.members, id)
		}
	}
	for _, a := range allocs {
		c.members[a.ID] = recalled{namespace: a.Namespace, job: a.JobID, group: a.TaskGroup, name: a.Name, created: a.CreateIndex, until: now.Add(recalledFor)}
	}
}

// find returns a member that was stopped with its gang.
func (c *recalls) find(id string, now time.Time) (recalled, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.members[id]
	if !ok || now.After(m.until) {
		return recalled{}, false
	}
	m.until = now.Add(recalledFor)
	c.members[id] = m
	return m, true
}

// has says whether a member was stopped with its gang.
func (c *recalls) has(id string, now time.Time) bool {
	_, ok := c.find(id, now)
	return ok
}

// of says whether any member of a job was stopped with its gang.
func (c *recalls) of(namespace, job string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if m.namespace == namespace && m.job == job && !now.After(m.until) {
			return true
		}
	}
	return false
}

// turn waits until nobody else stops a member of the job. Two that were told
// to stop at the same moment might be placed in each other's place by Nomad.
func (c *recalls) turn(ctx context.Context, job string) (done func(), err error) {
	for {
		c.mu.Lock()
		if c.busy == nil {
			c.busy = map[string]chan struct{}{}
		}
		other, taken := c.busy[job]
		if !taken {
			mine := make(chan struct{})
			c.busy[job] = mine
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				delete(c.busy, job)
				c.mu.Unlock()
				close(mine)
			}, nil
		}
		c.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// serveStop handles the stop of an allocation. Nomad would place a member of a
// gang anew at once, beside the others. What the user may do is done first, in
// the user's name, and settles whether it is allowed; then the planner is told
// to stop the gang as a whole, and to place it again when all have ended.
func (g *Gateway) serveStop(w http.ResponseWriter, r *http.Request, rt route) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, memberBody))
	if err != nil {
		refuse(w, http.StatusBadRequest, "The request's body could not be read: %v.", err)
		return
	}
	m, err := g.gangOf(r.Context(), rt)
	if err == nil && m.alloc != nil && len(m.others) > 0 {
		var done func()
		if done, err = g.recalls.turn(r.Context(), m.alloc.Namespace+"/"+m.alloc.JobID); err == nil {
			defer done()
			m, err = g.gangOf(r.Context(), rt)
		}
	}
	switch {
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, "Caravan could not look up the gang of allocation %q, nothing was done: %v. Try again; if it stays so, see the log of caravan agent.", rt.jobID, err)
		return
	case m.leaving || m.alloc == nil && g.recalls.has(rt.jobID, g.cfg.Now()):
		g.answerCovered(w, r, rt)
		return
	}
	a, p := g.sendBody(r.Context(), r, r.Method, "", body)
	if p != nil {
		refuse(w, p.status, "%s", p.text)
		return
	}
	if a.ok() && len(m.others) > 0 {
		if err := g.recall(r, m); err != nil {
			g.log.Error("recall gang", "namespace", m.alloc.Namespace, "job", m.alloc.JobID, "error", err)
			refuse(w, http.StatusBadGateway, "Allocation %s was stopped, and Nomad places it again by itself; but its gang could not be told to stop with it: %v. To restart the gang, stop another of its members.", rt.jobID, err)
			return
		}
	}
	relay(w, a)
}

// member is an allocation and the gang that it is in.
type member struct {
	// alloc is nil if it is no running member of a gang.
	alloc *api.Allocation
	// group is what the record calls its gang, "" for the whole job.
	group string
	// others are the running ones of its gang besides itself.
	others []*api.AllocationListStub
	// leaving: its gang is being stopped as a whole already.
	leaving bool
}

// gangOf looks up the gang of an allocation that is to be stopped.
func (g *Gateway) gangOf(ctx context.Context, rt route) (member, error) {
	var out member
	alloc, rec, spec, err := g.lookMember(ctx, rt.jobID)
	if err != nil || rec == nil || alloc.DesiredStatus != api.AllocDesiredStatusRun || alloc.ClientTerminalStatus() {
		return out, err
	}
	if canaryGroups(rec)[alloc.TaskGroup] {
		// It stops no gang: the planner looks after what is beside one.
		return out, nil
	}
	out.alloc = alloc
	if spec.Gang == model.GangGroup {
		out.group, _, _ = rewrite.OriginByName(rec.Original, alloc.TaskGroup)
	}
	if rec.Phase == record.PhaseRollback {
		out.leaving = true
		return out, nil
	}
	if r := rec.Recalled(out.group); r != nil && !r.Taken {
		out.leaving = true
		return out, nil
	}
	out.others, err = g.siblings(ctx, alloc, rec, spec, func(a *api.AllocationListStub) bool {
		return a.ClientStatus == api.AllocClientStatusRunning || a.ClientStatus == api.AllocClientStatusPending
	})
	return out, err
}

// recall writes down that the gang is to be stopped as a whole.
func (g *Gateway) recall(r *http.Request, m member) error {
	// One member is stopped: a client that hangs up now must not leave half.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), record.ArrivingFor)
	defer cancel()
	by := g.submitterOf(ctx, r)
	err := record.ErrConflict
	for range attempts {
		var rec *record.Record
		if rec, err = g.cfg.Records.Get(ctx, m.alloc.Namespace, m.alloc.JobID); err != nil {
			break
		}
		if rec.Phase != record.PhaseAdmitted && rec.Phase != record.PhaseRunning {
			break // the planner is stopping all of it for another reason
		}
		rec.Recall(record.Recall{Group: m.group, Alloc: m.alloc.ID, By: by, At: g.cfg.Now()})
		if err = g.cfg.Records.Put(ctx, rec); !errors.Is(err, record.ErrConflict) {
			break
		}
	}
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return fmt.Errorf("write record: %w", err)
	}
	g.recalls.add(append(m.others, m.alloc.Stub()), g.cfg.Now())
	return nil
}

// lookMember reads an allocation and the record of its job. The record is nil if
// the allocation is in no gang in force.
func (g *Gateway) lookMember(ctx context.Context, id string) (*api.Allocation, *record.Record, gangspec.Spec, error) {
	var none gangspec.Spec
	alloc, _, err := g.cfg.Client.Allocations().Info(id, (&api.QueryOptions{}).WithContext(ctx))
	if isNotFound(err) {
		return nil, nil, none, nil // Nomad says so itself
	}
	if err != nil {
		return nil, nil, none, fmt.Errorf("read allocation with the planner's own token: %w", err)
	}
	if alloc.Job != nil && !rewritten(alloc.Job) {
		return alloc, nil, none, nil
	}
	rec, err := g.cfg.Records.Get(ctx, alloc.Namespace, alloc.JobID)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return alloc, nil, none, nil
	case err != nil:
		return nil, nil, none, fmt.Errorf("read record: %w", err)
	case rec.Original == nil || rec.Phase == record.PhaseQueued || rec.Phase == record.PhaseReleased:
		return alloc, nil, none, nil
	}
	// Faults elsewhere in the contract do not matter here.
	spec, _ := gangspec.Parse(rec.Original, g.cfg.Levels...)
	if spec.Gang != model.GangJob && spec.Gang != model.GangGroup {
		return alloc, nil, none, nil
	}
	return alloc, rec, spec, nil
}

// siblings are the members of an allocation's gang besides itself that are to
// run and that are wanted.
func (g *Gateway) siblings(ctx context.Context, alloc *api.Allocation, rec *record.Record, spec gangspec.Spec, wanted func(*api.AllocationListStub) bool) ([]*api.AllocationListStub, error) {
	stubs, _, err := g.cfg.Client.Jobs().Allocations(alloc.JobID, false, (&api.QueryOptions{Namespace: alloc.Namespace}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("list allocations with the planner's own token: %w", err)
	}
	mine, _, _ := rewrite.OriginByName(rec.Original, alloc.TaskGroup)
	slot := rewrite.SlotByName(rec.Original, alloc.TaskGroup)
	var out []*api.AllocationListStub
	for _, stub := range stubs {
		group, _, _ := rewrite.OriginByName(rec.Original, stub.TaskGroup)
		// Canaries are a gang of their own beside it.
		inGang := (spec.Gang == model.GangJob || group == mine) && rewrite.SlotByName(rec.Original, stub.TaskGroup) == slot
		if inGang && stub.ID != alloc.ID && stub.DesiredStatus == api.AllocDesiredStatusRun && wanted(stub) {
			out = append(out, stub)
		}
	}
	return out, nil
}

// placeOf names the place in its job that an allocation is in, in the user's
// terms, in which it stays when groups are split otherwise.
func placeOf(original *api.Job, group, name string) string {
	own, index, split := rewrite.OriginByName(original, group)
	if split {
		return fmt.Sprintf("%s[%d]", own, index)
	}
	return own + name[max(strings.LastIndexByte(name, '['), 0):]
}
