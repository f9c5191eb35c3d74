package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// Nomad makes no deployment for a job that Caravan rolls. Its users look for
// one, and promote or fail it; so the gateway shows each update that is under
// way, and the last that has ended, as the deployment that Nomad would have.

const (
	// pollDeployments is how often an update is looked at for a blocking query.
	pollDeployments = time.Second
	// blockDefault and blockMost are Nomad's own times for a blocking query.
	blockDefault = 5 * time.Minute
	blockMost    = 10 * time.Minute
)

// deploymentID is the ID of an update's deployment: the same for whoever asks.
func deploymentID(rec *record.Record) string {
	began := began(rec)
	if began.IsZero() {
		return ""
	}
	sum := sha256.Sum256([]byte(rec.Namespace + "\x00" + rec.JobID + "\x00" + strconv.FormatInt(began.UnixNano(), 10)))
	// Version 8 of RFC 9562: a UUID of one's own making.
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	h := hex.EncodeToString(sum[:16])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// began is when the update under way began, or the last one; zero without one.
func began(rec *record.Record) time.Time {
	switch {
	case rec.Original == nil:
		return time.Time{}
	case rec.Rollout != nil:
		return rec.Rollout.Began
	case rec.Ended != nil:
		return rec.Ended.Began
	}
	return time.Time{}
}

// deployment shows an update, and the allocations that run the new version. The
// job is nil if Nomad does not have it any more.
func (g *Gateway) deployment(ctx context.Context, rec *record.Record) (*api.Deployment, []*api.AllocationListStub, error) {
	q := (&api.QueryOptions{Namespace: rec.Namespace}).WithContext(ctx)
	job, err := g.current(ctx, rec.Namespace, rec.JobID)
	if err != nil || job == nil {
		return nil, nil, err
	}
	stubs, _, err := g.cfg.Client.Jobs().Allocations(rec.JobID, false, q)
	if err != nil {
		return nil, nil, fmt.Errorf("list allocations with the planner's own token: %w", err)
	}
	d := &api.Deployment{
		ID: deploymentID(rec), Namespace: rec.Namespace, JobID: rec.JobID,
		JobVersion: deref(job.Version), JobModifyIndex: deref(job.ModifyIndex), JobSpecModifyIndex: deref(job.JobModifyIndex), JobCreateIndex: deref(job.CreateIndex),
		TaskGroups: map[string]*api.DeploymentState{}, StatusDescription: rec.Reason,
		CreateIndex: rec.ModifyIndex, ModifyIndex: rec.ModifyIndex, CreateTime: began(rec).UnixNano(), ModifyTime: began(rec).UnixNano(),
	}
	d.Status = statusOf(rec)
	canaries := map[string]int{}
	promoted := false
	if ro := rec.Rollout; ro != nil {
		d.CreateIndex, d.ModifyTime = max(ro.Index, 1), ro.Step.UnixNano()
		if c := ro.Canary; c != nil {
			canaries, promoted = c.Wanted, !c.Open()
		}
	} else {
		canaries, promoted = rec.Ended.Canaries, !rec.Ended.Failed
		d.StatusDescription, d.ModifyTime = rec.Ended.Text, rec.Ended.Ended.UnixNano()
	}
	for _, tg := range rec.Original.TaskGroups {
		u := gangspec.UpdateOf(rec.Original, deref(tg.Name))
		state := &api.DeploymentState{
			AutoRevert: deref(u.AutoRevert), ProgressDeadline: deref(u.ProgressDeadline),
			DesiredTotal: gangspec.Count(tg), DesiredCanaries: canaries[deref(tg.Name)],
		}
		state.Promoted = promoted && state.DesiredCanaries > 0
		if ro := rec.Rollout; ro != nil && ro.Failed == "" {
			state.RequireProgressBy = ro.Step.Add(state.ProgressDeadline)
		}
		d.TaskGroups[deref(tg.Name)] = state
	}
	return d, countDeployed(rec, d, stubs), nil
}

// statusOf is an update's status in Nomad's words.
func statusOf(rec *record.Record) string {
	switch ro := rec.Rollout; {
	case ro == nil && rec.Ended.Failed, ro != nil && ro.Failed != "":
		return api.DeploymentStatusFailed
	case ro == nil:
		return api.DeploymentStatusSuccessful
	case ro.Paused:
		return api.DeploymentStatusPaused
	}
	return api.DeploymentStatusRunning
}

// countDeployed counts the allocations of the new version in a deployment's
// groups, and returns them.
func countDeployed(rec *record.Record, d *api.Deployment, stubs []*api.AllocationListStub) []*api.AllocationListStub {
	type place struct {
		group string
		index int
		slot  int
	}
	turned, canary := map[place]bool{}, map[place]bool{}
	note := func(to map[place]bool, group string, index, slot int) {
		to[place{group, index, slot}], to[place{group, -1, slot}] = true, true
	}
	rolled := map[record.Place]bool{}
	if rec.Rollout != nil {
		for _, p := range rec.Rollout.Rolled {
			rolled[p] = true
		}
	}
	for _, m := range rec.Members {
		if rec.Rollout == nil || rolled[record.Place{Group: m.Group, Index: m.Index}] {
			note(turned, m.Group, m.Index, m.Slot)
		}
	}
	for _, m := range rec.Rollout.Beside() {
		note(turned, m.Group, m.Index, m.Slot)
		note(canary, m.Group, m.Index, m.Slot)
	}
	var out []*api.AllocationListStub
	for _, a := range stubs {
		group, index, split := rewrite.OriginByName(rec.Original, a.TaskGroup)
		if !split {
			index = -1
		}
		at := place{group, index, rewrite.SlotByName(rec.Original, a.TaskGroup)}
		state := d.TaskGroups[group]
		if state == nil || !turned[at] || a.DesiredStatus != api.AllocDesiredStatusRun {
			continue
		}
		out = append(out, a)
		state.PlacedAllocs++
		if canary[at] {
			state.PlacedCanaries = append(state.PlacedCanaries, a.ID)
		}
		h := a.DeploymentStatus
		switch {
		case rec.Rollout != nil && rec.Rollout.Marked[a.ID], h != nil && h.Healthy != nil && *h.Healthy:
			state.HealthyAllocs++
		case a.ClientStatus == api.AllocClientStatusFailed, h != nil && h.Healthy != nil:
			state.UnhealthyAllocs++
		}
	}
	return out
}

// updates are the records with an update to show that the user may read of.
func (g *Gateway) updates(r *http.Request, match func(*record.Record) bool) ([]*record.Record, error) {
	all, err := g.cfg.Records.List(r.Context())
	if err != nil && !errors.Is(err, record.ErrDamaged) {
		return nil, fmt.Errorf("list records: %w", err)
	}
	var out []*record.Record
	for _, rec := range all {
		if deploymentID(rec) != "" && match(rec) && g.mayRead(r, rec) {
			out = append(out, rec)
		}
	}
	return out, nil
}

// mayRead asks Nomad, in the user's name, whether they may see the job.
func (g *Gateway) mayRead(r *http.Request, rec *record.Record) bool {
	a, p := g.send(r.Context(), within(r, rec.Namespace), http.MethodGet, "/v1/job/"+url.PathEscape(rec.JobID), nil)
	return p == nil && a.ok()
}

// within is the user's request with no query but the namespace and region.
func within(r *http.Request, namespace string) *http.Request {
	q := url.Values{"namespace": {namespace}}
	if region := r.URL.Query().Get("region"); region != "" {
		q.Set("region", region)
	}
	out := r.Clone(r.Context())
	out.URL.RawQuery = q.Encode()
	return out
}

// serveDeployments answers a list of deployments: Nomad's own, and an update's.
func (g *Gateway) serveDeployments(w http.ResponseWriter, r *http.Request, rt route) {
	g.block(w, r, func(r *http.Request) (any, uint64, *reply, error) {
		a, p := g.send(r.Context(), r, http.MethodGet, "", nil)
		if p != nil {
			return nil, 0, nil, p
		}
		if !a.ok() {
			return nil, 0, a, nil
		}
		var list []json.RawMessage
		if err := json.Unmarshal(a.body, &list); err != nil {
			return nil, 0, a, nil
		}
		index, _ := strconv.ParseUint(a.header.Get("X-Nomad-Index"), 10, 64)
		namespace, prefix := queryNamespace(r), strings.ReplaceAll(r.URL.Query().Get("prefix"), "-", "")
		found, err := g.updates(r, func(rec *record.Record) bool {
			return (namespace == "*" || rec.Namespace == namespace) && (rt.jobID == "" || rec.JobID == rt.jobID) &&
				strings.HasPrefix(strings.ReplaceAll(deploymentID(rec), "-", ""), prefix)
		})
		if err != nil {
			return nil, 0, nil, err
		}
		out := []any{}
		for _, rec := range found {
			d, _, err := g.deployment(r.Context(), rec)
			if err != nil {
				return nil, 0, nil, err
			}
			if d != nil {
				out, index = append(out, d), max(index, d.ModifyIndex)
			}
		}
		for _, d := range list {
			out = append(out, d)
		}
		return out, index, nil, nil
	})
}

// serveJobDeployment answers which deployment of a job is the latest.
func (g *Gateway) serveJobDeployment(w http.ResponseWriter, r *http.Request, rt route) {
	namespace := queryNamespace(r)
	g.serveUpdate(w, r, func(rec *record.Record) bool { return rec.Namespace == namespace && rec.JobID == rt.jobID }, false)
}

// serveDeployment answers what an update is about, or its allocations.
func (g *Gateway) serveDeployment(w http.ResponseWriter, r *http.Request, rt route) {
	g.serveUpdate(w, r, func(rec *record.Record) bool { return deploymentID(rec) == rt.jobID }, rt.kind == kindDeploymentAllocs)
}

// serveUpdate answers with the update that matches; without one, Nomad does.
func (g *Gateway) serveUpdate(w http.ResponseWriter, r *http.Request, match func(*record.Record) bool, allocs bool) {
	if found, err := g.updates(r, match); err != nil || len(found) == 0 {
		// Without the records Nomad's own answer is better than none.
		Pass(g.proxy, w, r)
		return
	}
	g.block(w, r, func(r *http.Request) (any, uint64, *reply, error) {
		found, err := g.updates(r, match)
		if err != nil {
			return nil, 0, nil, err
		}
		if len(found) == 0 {
			return nil, 0, nil, problemf(http.StatusNotFound, "deployment not found")
		}
		d, of, err := g.deployment(r.Context(), found[0])
		switch {
		case err != nil:
			return nil, 0, nil, err
		case d == nil:
			return nil, 0, nil, problemf(http.StatusNotFound, "deployment not found")
		}
		index := d.ModifyIndex
		for _, a := range of {
			index = max(index, a.ModifyIndex)
		}
		if allocs {
			return slices.Concat([]*api.AllocationListStub{}, of), index, nil, nil
		}
		return d, index, nil, nil
	})
}

// block answers a query, a blocking one when something has changed. Nomad is
// asked again and again: an update is made of several of its things.
func (g *Gateway) block(w http.ResponseWriter, r *http.Request, look func(*http.Request) (out any, index uint64, instead *reply, err error)) {
	q := r.URL.Query()
	seen, _ := strconv.ParseUint(q.Get("index"), 10, 64)
	wait, err := time.ParseDuration(q.Get("wait"))
	if err != nil || wait <= 0 {
		wait = blockDefault
	}
	end := g.cfg.Now().Add(min(wait, blockMost))
	q.Del("index")
	q.Del("wait")
	now := r.Clone(r.Context())
	now.URL.RawQuery = q.Encode()
	for {
		out, index, instead, err := look(now)
		var p *problem
		switch {
		case r.Context().Err() != nil:
			refuse(w, http.StatusServiceUnavailable, "Caravan's gateway ended this request before Nomad answered. Try again.")
			return
		case errors.As(err, &p):
			refuse(w, p.status, "%s", p.text)
			return
		case err != nil:
			refuse(w, http.StatusServiceUnavailable, "Caravan could not look up its updates: %v. Try again; if it stays so, see the log of caravan agent.", err)
			return
		case instead != nil:
			relay(w, instead)
			return
		}
		if seen == 0 || index > seen || !g.cfg.Now().Before(end) {
			w.Header().Set("X-Nomad-KnownLeader", "true")
			w.Header().Set("X-Nomad-LastContact", "0")
			if err := answer(w, r, max(index, 1), out); err != nil {
				g.log.Debug("answer with deployments", "error", err)
			}
			return
		}
		select {
		case <-r.Context().Done():
		case <-time.After(pollDeployments):
		}
	}
}
