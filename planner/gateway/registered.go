package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/record"
)

// pollEvery is the pause between two queries where Nomad does not block.
const pollEvery = 100 * time.Millisecond

// answerRegistered answers a submission that was taken in: Nomad's own answer,
// with the decision among the warnings and an evaluation that says something
// about it.
func (g *Gateway) answerRegistered(w http.ResponseWriter, r *http.Request, s *submission, out outcome) error {
	resp, header := out.response, http.Header{}
	if out.unchanged {
		if p := g.unchanged(r, s, out.current, &resp); p != nil {
			refuse(w, p.status, "%s", p.text)
			return nil
		}
	} else {
		header = withoutConnection(out.accepted.header)
	}
	notes := append([]string{g.awaitDecision(r, s, out, &resp)}, s.notes...)
	resp.Warnings = joinWarnings(s.nomadsWarnings(resp.Warnings), notes)
	for name, values := range header {
		if name != "Content-Type" {
			w.Header()[name] = values
		}
	}
	return answer(w, r, resp.LastIndex, merge(out.fields, resp, out.unchanged))
}

// merge sets what the gateway changes in Nomad's answer and leaves the rest of
// it as it came.
func merge(fields map[string]json.RawMessage, resp api.JobRegisterResponse, whole bool) map[string]any {
	out := map[string]any{}
	for name, value := range fields {
		out[name] = value
	}
	out["EvalID"], out["EvalCreateIndex"], out["Warnings"] = resp.EvalID, resp.EvalCreateIndex, resp.Warnings
	if whole {
		out["JobModifyIndex"], out["Index"] = resp.JobModifyIndex, resp.JobModifyIndex
		out["KnownLeader"], out["LastContact"], out["NextToken"] = true, 0, ""
	}
	return out
}

// joinWarnings adds the gateway's lines to Nomad's warnings.
func joinWarnings(nomads string, notes []string) string {
	var lines []string
	if nomads = strings.TrimRight(nomads, "\n"); nomads != "" {
		lines = append(lines, nomads)
	}
	for _, n := range notes {
		if n != "" {
			lines = append(lines, n)
		}
	}
	return strings.Join(lines, "\n")
}

// unchanged fills in the answer to a submission that changes nothing. Nomad
// itself makes a new evaluation of such a one; here the one that there is says
// how the job stands.
func (g *Gateway) unchanged(r *http.Request, s *submission, current *api.Job, resp *api.JobRegisterResponse) *problem {
	resp.JobModifyIndex, resp.LastIndex = deref(current.JobModifyIndex), deref(current.JobModifyIndex)
	q := (&api.QueryOptions{Namespace: s.namespace}).WithContext(r.Context())
	evals, _, err := g.cfg.Client.Jobs().Evaluations(s.id, q)
	if err != nil {
		return problemf(http.StatusBadGateway, "Job %q is unchanged, but Nomad does not list its evaluations: %v.", s.id, err)
	}
	if e := newest(evals, func(*api.Evaluation) bool { return true }); e != nil {
		resp.EvalID, resp.EvalCreateIndex = e.ID, e.CreateIndex
		return nil
	}
	// All were collected: a new one makes no version and, with gate or pins,
	// changes nothing.
	path := "/v1/job/" + url.PathEscape(s.id) + "/evaluate"
	a, p := g.send(r.Context(), r, http.MethodPut, path, map[string]any{
		"JobID": s.id, "Namespace": s.namespace, "Region": s.register.Region,
	})
	if p != nil {
		return p
	}
	if !a.ok() {
		return &problem{status: a.status, text: string(a.body)}
	}
	var forced api.JobRegisterResponse
	if err := json.Unmarshal(a.body, &forced); err != nil {
		return problemf(http.StatusBadGateway, "Job %q is unchanged, but Nomad's answer to an evaluation of it cannot be read: %v.", s.id, err)
	}
	resp.EvalID, resp.EvalCreateIndex = forced.EvalID, forced.EvalCreateIndex
	return nil
}

// newest returns the newest evaluation that a person can follow to its end: a
// blocked one has none until it is resolved.
func newest(evals []*api.Evaluation, want func(*api.Evaluation) bool) *api.Evaluation {
	var best *api.Evaluation
	for _, e := range evals {
		if e == nil || e.Status == api.EvalStatusBlocked || e.Status == api.EvalStatusCancelled || !want(e) {
			continue
		}
		if best == nil || e.CreateIndex > best.CreateIndex || (e.CreateIndex == best.CreateIndex && e.ID > best.ID) {
			best = e
		}
	}
	return best
}

// awaitDecision is decision within the time that an answer may wait.
func (g *Gateway) awaitDecision(r *http.Request, s *submission, out outcome, resp *api.JobRegisterResponse) string {
	ctx, cancel := context.WithTimeout(r.Context(), max(g.cfg.Wait, 0))
	defer cancel()
	return g.decision(ctx, s, out, resp)
}

// ref is the job's name as Caravan's commands take it.
func (s *submission) ref() string {
	if s.namespace == api.DefaultNamespace {
		return s.id
	}
	return s.namespace + "/" + s.id
}

// decision says in a line what was decided, and moves the answer on to the
// evaluation of the admission when there is one already.
func (g *Gateway) decision(ctx context.Context, s *submission, out outcome, resp *api.JobRegisterResponse) string {
	if out.kept {
		return "Caravan: registered; the gang stays on its nodes, since what it asks for is the same."
	}
	if out.resized != "" {
		return out.resized + " See `caravan explain " + s.ref() + "`."
	}
	prefix := "Caravan: "
	if out.unchanged {
		prefix = "Caravan: unchanged, nothing was registered; "
		if out.record.Phase == record.PhaseAdmitted || out.record.Phase == record.PhaseRunning {
			return prefix + string(out.record.Phase) + reason(out.record.Reason)
		}
	}
	explain, err := g.cfg.Waiter.WaitDecision(ctx, s.namespace, s.id, s.hash)
	ended := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	switch {
	case ended && out.replaced:
		return prefix + "queued; the version that runs is stopped first. See `caravan explain " + s.ref() + "`."
	case ended:
		return prefix + "queued; the decision is not there yet. See `caravan explain " + s.ref() + "`."
	case err != nil:
		return prefix + "queued; the planner does not decide at the moment: " + err.Error() + ". The job starts when it does."
	case !admitted(explain):
		return prefix + "queued: " + queuedText(explain)
	}
	sent := explain.Home != "" && explain.Home == g.cfg.Region && explain.Region != explain.Home
	switch {
	case sent:
		g.followTo(ctx, s, explain.Region, resp)
	case !out.unchanged:
		g.follow(ctx, s, resp)
	}
	if explain.Reason == "" {
		// The decision is older than what the planner has seen of it; the record
		// has its reason.
		if rec, err := g.cfg.Records.Get(ctx, s.namespace, s.id); err == nil {
			explain.Reason = rec.Reason
		}
	}
	text := "admitted"
	if sent {
		text = fmt.Sprintf("admitted in region %s (nomad job status -region %s %s)", explain.Region, explain.Region, s.id)
	}
	return prefix + text + reason(explain.Reason)
}

func reason(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

func admitted(e httpapi.Explain) bool {
	return e.State == model.StateAdmitted || e.State == model.StateRunning || e.Action == model.ActionAdmit
}

// queuedText is why a job waits and how many are before it.
func queuedText(e httpapi.Explain) string {
	text := e.Reason
	if len(e.Faults) > 0 {
		text = strings.Join(e.Faults, "; ")
	}
	if text == "" {
		text = "no decision yet"
	}
	ahead := e.Detail.Ahead
	if ahead == 0 && e.Position > 1 {
		ahead = e.Position - 1
	}
	switch {
	case ahead == 1:
		text += "; 1 job ahead"
	case ahead > 1:
		text += fmt.Sprintf("; %d jobs ahead", ahead)
	}
	return text
}

// followTo answers with the evaluation of a job that was sent to another region:
// the newest of its registrations there is the one with pins.
func (g *Gateway) followTo(ctx context.Context, s *submission, region string, resp *api.JobRegisterResponse) {
	if g.moved == nil {
		return
	}
	q := (&api.QueryOptions{Namespace: s.namespace, Region: region}).WithContext(ctx)
	evals, _, err := g.cfg.Client.Jobs().Evaluations(s.id, q)
	if err != nil {
		return // the evaluation at home is a good answer, too
	}
	if e := newest(evals, func(e *api.Evaluation) bool { return e.TriggeredBy == "job-register" }); e != nil {
		g.moved(e.ID, region)
		resp.EvalID, resp.EvalCreateIndex = e.ID, e.CreateIndex
	}
}

// follow waits for the evaluation of the registration with pins, and answers
// with it instead of that of the gated one, which says no more than the gate.
func (g *Gateway) follow(ctx context.Context, s *submission, resp *api.JobRegisterResponse) {
	q := (&api.QueryOptions{Namespace: s.namespace}).WithContext(ctx)
	for {
		evals, meta, err := g.cfg.Client.Jobs().Evaluations(s.id, q)
		if err != nil {
			// Out of time, or Nomad is: the first evaluation is a good answer too.
			return
		}
		pinned := newest(evals, func(e *api.Evaluation) bool {
			return e.TriggeredBy == "job-register" && e.JobModifyIndex > resp.JobModifyIndex
		})
		if pinned != nil {
			resp.EvalID, resp.EvalCreateIndex = pinned.ID, pinned.CreateIndex
			return
		}
		if meta.LastIndex <= q.WaitIndex {
			// The query did not block, as it does when Nomad's index was reset.
			select {
			case <-ctx.Done():
				return
			case <-time.After(pollEvery):
			}
		}
		q.WaitIndex = meta.LastIndex
	}
}
