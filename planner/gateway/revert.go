package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"

	"github.com/hashicorp/nomad/api"
)

// neverVersion is a version that no job reaches.
const neverVersion = math.MaxInt64

// decodeRequest reads a small request about a job; false if it has been
// answered.
func (g *Gateway) decodeRequest(w http.ResponseWriter, r *http.Request, out any) ([]byte, bool) {
	body, p := readBody(w, r, g.cfg.MaxBody)
	if p == nil {
		p = decode(body, out)
	}
	if p != nil {
		refuse(w, p.status, "%s", p.text)
		return nil, false
	}
	return body, true
}

// serveRevert handles a revert to one of the user's own versions: what was
// submitted then is submitted again, and gated or pinned like any submission.
func (g *Gateway) serveRevert(w http.ResponseWriter, r *http.Request, id string) {
	var req api.JobRevertRequest
	body, ok := g.decodeRequest(w, r, &req)
	if !ok {
		return
	}
	if req.JobID != id || g.elsewhere(r, req.WriteRequest) {
		g.pass(w, r, body)
		return
	}
	namespace := namespaceOf(r, req.WriteRequest, &api.Job{})
	versions, err := g.history(r.Context(), namespace, id)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "Caravan could not revert job %q: %v. Try again; if it stays so, see the log of caravan agent.", id, err)
		return
	}
	at := -1
	for i, v := range versions {
		if v.covers(req.JobVersion) {
			at = i
		}
	}
	// What Nomad does not know it says itself; a version without devices, or
	// one that was stopped, holds nothing.
	if at < 0 || deref(versions[at].newest.Stop) || !g.takes(r, versions[at].own, req.WriteRequest) || g.launches(versions[at].own) {
		g.pass(w, r, body)
		return
	}
	if p := g.revert(w, r, req, versions, at, body); p != nil {
		refuse(w, p.status, "%s", p.text)
	}
}

// revert submits one of the versions anew. It answers itself unless it returns a
// problem.
func (g *Gateway) revert(w http.ResponseWriter, r *http.Request, req api.JobRevertRequest, versions []*userVersion, at int, body []byte) *problem {
	rehearsal := req
	rehearsal.EnforcePriorVersion = new(uint64(neverVersion))
	a, p := g.send(r.Context(), r, r.Method, "", rehearsal)
	switch {
	case p != nil:
		return p
	case a.ok():
		return problemf(http.StatusBadGateway, "Nomad at %s does not enforce versions. Caravan needs Nomad 1.10 or newer.", g.cfg.Nomad.Redacted())
	case !bytes.Contains(a.body, []byte("enforcing version")):
		relay(w, a)
		return nil
	}
	// The texts are Nomad's own, as far as the user's terms allow.
	if at == 0 {
		return problemf(http.StatusInternalServerError, "can't revert to current version")
	}
	if prior := req.EnforcePriorVersion; prior != nil && !versions[0].covers(*prior) {
		return problemf(http.StatusInternalServerError, "Current job has version %d; enforcing version %d", versions[0].number(), *prior)
	}
	target := versions[at]
	namespace := deref(target.own.Namespace)
	_, source := g.jobFile(r.Context(), namespace, req.JobID, target.newest)
	s, p := g.newSubmission(r, api.JobRegisterRequest{Job: target.own, Submission: source, WriteRequest: req.WriteRequest})
	if p != nil {
		return p
	}
	if req.EnforcePriorVersion != nil {
		// What was looked at is what must still be there.
		s.register.EnforceIndex, s.register.JobModifyIndex = true, deref(versions[0].newest.JobModifyIndex)
	}
	return g.register(w, r, s, body)
}

// history reads a job's versions with the planner's own token; none if there is
// no such job.
func (g *Gateway) history(ctx context.Context, namespace, id string) ([]*userVersion, error) {
	var answer struct{ Versions []json.RawMessage }
	q := (&api.QueryOptions{Namespace: namespace}).WithContext(ctx)
	_, err := g.cfg.Client.Raw().Query("/v1/job/"+url.PathEscape(id)+"/versions", &answer, q)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read versions with the planner's own token: %w", err)
	}
	return g.userVersions(ctx, namespace, id, answer.Versions)
}
