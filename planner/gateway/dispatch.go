package gateway

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"path"

	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/rewrite"
)

const (
	// noMetaKey is a meta key that no parameterized job allows: Nomad compares
	// keys as they are, and job files cannot hold this one.
	noMetaKey = "caravan rehearsal\n"
	// dispatchInfix is between a parent's ID and what makes a child's unique.
	dispatchInfix = "/dispatch-"
	// envParent tells a task which job it was dispatched from.
	envParent = "NOMAD_JOB_PARENT_ID"
)

// serveDispatch handles the dispatch of a parameterized job that asks for
// managed devices. A child of Nomad's own could be neither gated nor pinned,
// since Nomad does not let it be registered again; so it is launched as an
// ordinary job, with the same ID, input and environment.
func (g *Gateway) serveDispatch(w http.ResponseWriter, r *http.Request, id string) {
	var req struct {
		api.JobDispatchRequest
		api.WriteRequest
	}
	body, ok := g.decodeRequest(w, r, &req)
	if !ok {
		return
	}
	namespace := namespaceOf(r, req.WriteRequest, &api.Job{})
	parent, err := g.current(r.Context(), namespace, id)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "Caravan could not dispatch job %q: %v. Try again; if it stays so, see the log of caravan agent.", id, err)
		return
	}
	if parent == nil || !parent.IsParameterized() || (req.JobID != "" && req.JobID != id) || g.elsewhere(r, req.WriteRequest) {
		g.pass(w, r, body)
		return
	}
	child, err := childOf(parent)
	if err != nil || !g.cfg.Managed(child) {
		g.pass(w, r, body)
		return
	}
	if parent.IsPeriodic() {
		refuse(w, http.StatusBadRequest, "Job %q is parameterized and periodic at once. What Nomad would dispatch is a periodic job, which Caravan cannot take in with its input. Make it either, or submit the jobs one by one.", id)
		return
	}
	if p := g.dispatch(w, r, req.JobDispatchRequest, req.WriteRequest, parent, child); p != nil {
		refuse(w, p.status, "%s", p.text)
	}
}

// childOf is a parameterized or periodic job as one of its launches would be.
func childOf(parent *api.Job) (*api.Job, error) {
	child, err := rewrite.Strip(parent, nil)
	if err != nil {
		return nil, err
	}
	child.Namespace = parent.Namespace
	child.ParameterizedJob, child.Periodic, child.Dispatched = nil, nil, false
	return child, nil
}

// dispatch answers itself unless it returns a problem.
func (g *Gateway) dispatch(w http.ResponseWriter, r *http.Request, req api.JobDispatchRequest, write api.WriteRequest, parent, child *api.Job) *problem {
	a, p := g.rehearseDispatch(r, req, write, parent)
	if p != nil {
		return p
	}
	if a != nil {
		relay(w, a)
		return nil
	}
	token := r.URL.Query().Get("idempotency_token")
	child.ID = new(dispatchedID(*parent.ID, req.IdPrefixTemplate, token, g.cfg.Now().Unix()))
	child.Name = child.ID
	if req.Priority != 0 {
		child.Priority = &req.Priority
	}
	for key, value := range req.Meta {
		child.SetMeta(key, value)
	}
	for _, group := range child.TaskGroups {
		for _, task := range group.Tasks {
			carryInput(task, *parent.ID, req.Payload)
		}
	}
	s, p := g.newSubmission(r, api.JobRegisterRequest{Job: child, WriteRequest: write})
	if p != nil {
		return p
	}
	s.asPlanner = true
	if token != "" {
		// Asked for again, it is answered with what there is.
		there, err := g.current(r.Context(), s.namespace, s.id)
		if err != nil {
			return problemf(http.StatusServiceUnavailable, "Caravan could not dispatch job %q: %v. Try again.", *parent.ID, err)
		}
		if there != nil {
			return g.answerDispatched(w, r, s, api.JobRegisterResponse{}, there)
		}
	}
	return g.launch(w, r, s)
}

// launch takes a dispatched job in and answers with the evaluation to follow.
func (g *Gateway) launch(w http.ResponseWriter, r *http.Request, s *submission) *problem {
	s.register.EnforceIndex = true // it is new
	out, p := g.take(r, s)
	switch {
	case p != nil:
		return p
	case out.refused != nil:
		relay(w, out.refused)
		return nil
	}
	resp := out.response
	g.awaitDecision(r, s, out, &resp)
	return g.answerDispatched(w, r, s, resp, nil)
}

// answerDispatched answers as Nomad answers a dispatch; there is the job that
// an earlier request with the same token has made.
func (g *Gateway) answerDispatched(w http.ResponseWriter, r *http.Request, s *submission, resp api.JobRegisterResponse, there *api.Job) *problem {
	index := resp.JobModifyIndex
	if there != nil {
		index = deref(there.CreateIndex)
	}
	err := answer(w, r, cmp.Or(resp.EvalCreateIndex, index), map[string]any{
		"DispatchedJobID": s.id, "EvalID": resp.EvalID, "EvalCreateIndex": resp.EvalCreateIndex,
		"JobCreateIndex": index, "Index": cmp.Or(resp.EvalCreateIndex, index),
	})
	if err != nil {
		g.log.Debug("answer dispatch", "namespace", s.namespace, "job", s.id, "error", err)
	}
	return nil
}

// rehearseDispatch lets Nomad say whether the user may dispatch the job: with a
// meta key that no job allows, it checks everything else that can be wrong up
// to the meta and then refuses. What it checks after that is checked here. A
// reply is Nomad's refusal.
func (g *Gateway) rehearseDispatch(r *http.Request, req api.JobDispatchRequest, write api.WriteRequest, parent *api.Job) (*reply, *problem) {
	given := req.Meta
	req.Meta = maps.Clone(given)
	if req.Meta == nil {
		req.Meta = map[string]string{}
	}
	req.Meta[noMetaKey] = ""
	for key := range given {
		if !allows(parent.ParameterizedJob, key) {
			return nil, problemf(http.StatusInternalServerError, "Dispatch request included unpermitted metadata keys: [%s]", key)
		}
	}
	a, p := g.send(r.Context(), r, r.Method, "", struct {
		api.JobDispatchRequest
		api.WriteRequest
	}{req, write})
	switch {
	case p != nil:
		return nil, p
	case a.ok():
		return nil, problemf(http.StatusBadGateway, "Nomad at %s dispatched job %q although its input is not allowed. See what is between Caravan and Nomad.", g.cfg.Nomad.Redacted(), *parent.ID)
	case !bytes.Contains(a.body, []byte("unpermitted metadata keys")):
		return a, nil
	}
	var missing []string
	for _, key := range parent.ParameterizedJob.MetaRequired {
		if _, ok := given[key]; !ok {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		return nil, problemf(http.StatusInternalServerError, "Dispatch did not provide required meta keys: %v", missing)
	}
	return nil, nil
}

func allows(config *api.ParameterizedJobConfig, key string) bool {
	for _, list := range [][]string{config.MetaRequired, config.MetaOptional} {
		for _, k := range list {
			if k == key {
				return true
			}
		}
	}
	return false
}

// dispatchedID is a child's ID as Nomad makes it. With an idempotency token it
// depends on the token alone, so that the same request finds the same job.
func dispatchedID(parent, prefix, token string, unix int64) string {
	if token != "" {
		hash := sha256.Sum256([]byte(parent + "\x00" + token))
		return fmt.Sprintf("%s%stoken-%s", parent, dispatchInfix, hex.EncodeToString(hash[:8]))
	}
	if prefix != "" {
		prefix += "-"
	}
	return fmt.Sprintf("%s%s%s%d-%s", parent, dispatchInfix, prefix, unix, uuid.NewString()[:8])
}

// carryInput gives a task the file that Nomad would have written for a
// dispatched job. The template holds the payload encoded, so any bytes come out
// as they went in.
func carryInput(task *api.Task, parent string, payload []byte) {
	if task.Env == nil {
		task.Env = map[string]string{}
	}
	if _, taken := task.Env[envParent]; !taken {
		task.Env[envParent] = parent
	}
	input := task.DispatchPayload
	task.DispatchPayload = nil
	if input == nil || input.File == "" || len(payload) == 0 {
		return
	}
	file := &api.Template{
		EmbeddedTmpl: new(fmt.Sprintf("{{ base64Decode %q }}", base64.StdEncoding.EncodeToString(payload))),
		DestPath:     new(path.Join("local", input.File)),
		ChangeMode:   new("noop"),
		Perms:        new("0777"),
	}
	task.Templates = append([]*api.Template{file}, task.Templates...)
}
