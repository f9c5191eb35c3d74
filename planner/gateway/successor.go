package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

const (
	// successorEvery is how long one look for a member's successor waits.
	successorEvery = time.Second
	// successorWait is how long a blocking query waits by default, as in Nomad.
	successorWait = 5 * time.Minute
	// indexHeader holds the index to wait for next.
	indexHeader = "X-Nomad-Index"
)

// serveAlloc answers a read of an allocation that was stopped with its gang. To
// Nomad it has no successor, for the gang was placed anew as a whole; who waits
// for it is shown the member that has its place now.
func (g *Gateway) serveAlloc(w http.ResponseWriter, r *http.Request, rt route) {
	m, known := g.recalls.find(rt.jobID, g.cfg.Now())
	if !known || r.URL.Query().Get(rawParameter) == rawValue {
		Pass(g.proxy, w, r)
		return
	}
	q := r.URL.Query()
	asked, err := strconv.ParseUint(cmp.Or(q.Get("index"), "0"), 10, 64)
	wait, errWait := time.ParseDuration(cmp.Or(q.Get("wait"), successorWait.String()))
	if err != nil || errWait != nil {
		Pass(g.proxy, w, r) // Nomad says what is wrong with it
		return
	}
	until := time.Now().Add(wait)
	q.Set("wait", successorEvery.String())
	short := r.Clone(r.Context())
	short.URL.RawQuery = q.Encode()
	for {
		a := g.ask(w, short)
		if a == nil {
			return
		}
		index, err := g.withSuccessor(r, m, a)
		if err != nil {
			// Nomad's own answer is better than none.
			g.log.Warn("show the successor of an allocation", "allocation", rt.jobID, "error", err)
			relay(w, a)
			return
		}
		if index > asked || !time.Now().Before(until) {
			relay(w, a)
			return
		}
	}
}

// withSuccessor puts a member's successor into Nomad's answer about it, and
// returns the index that the answer has then.
func (g *Gateway) withSuccessor(r *http.Request, m recalled, a *reply) (uint64, error) {
	next, err := g.successor(r.Context(), m)
	if err != nil {
		return 0, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(a.body, &fields); err != nil {
		return 0, fmt.Errorf("read Nomad's answer: %w", err)
	}
	id := ""
	index, _ := strconv.ParseUint(a.header.Get(indexHeader), 10, 64)
	if next != nil {
		id, index = next.ID, max(index, next.CreateIndex)
	}
	if fields["NextAllocation"], err = json.Marshal(id); err != nil {
		return 0, fmt.Errorf("encode allocation: %w", err)
	}
	if a.body, err = encodeFor(r, fields); err != nil {
		return 0, fmt.Errorf("encode allocation: %w", err)
	}
	a.header.Set(indexHeader, strconv.FormatUint(index, 10))
	return index, nil
}

// successor is the member that has the place of one that was stopped with its
// gang; nil while there is none. What Nomad placed by itself before the planner
// had gated the job is none.
func (g *Gateway) successor(ctx context.Context, m recalled) (*api.AllocationListStub, error) {
	rec, err := g.cfg.Records.Get(ctx, m.namespace, m.job)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read record: %w", err)
	}
	group, _, _ := rewrite.OriginByName(rec.Original, m.group)
	if recall := rec.Recalled(group); recall != nil && !recall.Taken || rec.Phase != record.PhaseAdmitted && rec.Phase != record.PhaseRunning {
		return nil, nil
	}
	stubs, _, err := g.cfg.Client.Jobs().Allocations(m.job, false, (&api.QueryOptions{Namespace: m.namespace}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("list allocations with the planner's own token: %w", err)
	}
	place := placeOf(rec.Original, m.group, m.name)
	var out *api.AllocationListStub
	for _, stub := range stubs {
		if stub.CreateIndex > m.created && stub.DesiredStatus == api.AllocDesiredStatusRun &&
			placeOf(rec.Original, stub.TaskGroup, stub.Name) == place && (out == nil || stub.CreateIndex > out.CreateIndex) {
			out = stub
		}
	}
	return out, nil
}

// recallShown is how long after a user told a gang to stop the gate is no
// placement failure: nothing was tried yet.
const recallShown = time.Minute

// serveEvaluations answers a list of a job's evaluations. While a gang that a
// user told to stop waits for all of it to end, the gate is no placement
// failure to tell the user of: `nomad job restart -reschedule` would give up.
func (g *Gateway) serveEvaluations(w http.ResponseWriter, r *http.Request, rt route) {
	if !g.recalls.of(queryNamespace(r), rt.jobID, g.cfg.Now()) {
		Pass(g.proxy, w, r)
		return
	}
	g.serveView(w, r, rt)
}

// viewEvaluations leaves out the placement failures of a gang that is being
// placed anew: what keeps it is the gate.
func (g *Gateway) viewEvaluations(ctx context.Context, namespace, id string, body []byte) (any, error) {
	rec, err := g.cfg.Records.Get(ctx, namespace, id)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read record: %w", err)
	}
	waits := false
	for _, recall := range rec.Recalls {
		waits = waits || !recall.Taken || rec.Phase == record.PhaseRollback || g.cfg.Now().Sub(recall.At) < recallShown
	}
	if !waits {
		return nil, nil
	}
	var evals []map[string]json.RawMessage
	if err := json.Unmarshal(body, &evals); err != nil {
		return nil, fmt.Errorf("read Nomad's answer: %w", err)
	}
	for _, eval := range evals {
		// Nomad names the gate in one evaluation, and in the next only the classes
		// of nodes that it has excluded.
		if _, has := eval["FailedTGAllocs"]; has {
			eval["FailedTGAllocs"] = json.RawMessage("null")
		}
	}
	return evals, nil
}
