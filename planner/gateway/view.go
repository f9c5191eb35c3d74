package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// rawParameter, with the value rawValue, in a query asks for Nomad's own answer.
const (
	rawParameter = "caravan"
	rawValue     = "raw"
)

// mark is what every job that Caravan has rewritten has somewhere in it; and
// memberMark what one that was released may still have, the audience of its
// members' identities.
var (
	mark       = []byte("caravan_gate")
	memberMark = []byte(`"` + gangspec.IdentityName + `"`)
)

// serveView answers a read of a managed job in its user's terms: without gate
// and pins, with the groups that the user wrote. Numbers of versions and
// indexes stay Nomad's, which the gateway takes for what they are.
func (g *Gateway) serveView(w http.ResponseWriter, r *http.Request, rt route) {
	if r.URL.Query().Get(rawParameter) == rawValue {
		Pass(g.proxy, w, r)
		return
	}
	a := g.ask(w, r)
	if a == nil {
		return
	}
	body, err := g.view(r, rt, a.body)
	if err != nil {
		// Nomad's own answer is better than none.
		g.log.Warn("show job in its user's terms", "path", r.URL.Path, "error", err)
	} else if body != nil {
		a.body = body
	}
	relay(w, a)
}

// ask reads from Nomad in the user's name. Where there is nothing to be shown it
// answers itself and returns nil.
func (g *Gateway) ask(w http.ResponseWriter, r *http.Request) *reply {
	a, p := g.send(r.Context(), r, http.MethodGet, "", nil)
	switch {
	case r.Context().Err() != nil:
		refuse(w, http.StatusServiceUnavailable, "Caravan's gateway ended this request before Nomad answered. Try again.")
	case p != nil:
		refuse(w, p.status, "%s", p.text)
	case !a.ok():
		relay(w, a)
	default:
		return a
	}
	return nil
}

// view rewrites Nomad's answer; nil leaves it as it is.
func (g *Gateway) view(r *http.Request, rt route, body []byte) ([]byte, error) {
	namespace := queryNamespace(r)
	var out any
	var err error
	switch rt.kind {
	case kindJob:
		if g.ours(r.Context(), namespace, rt.jobID, body) {
			out, err = g.viewJob(r.Context(), namespace, rt.jobID, body)
		}
	case kindVersions:
		if g.ours(r.Context(), namespace, rt.jobID, body) {
			out, err = g.viewVersions(r, namespace, rt.jobID, body)
		}
	case kindEvaluations:
		out, err = g.viewEvaluations(r.Context(), namespace, rt.jobID, body)
	case kindScaleStatus:
		out, err = g.viewGroups(r.Context(), namespace, rt.jobID, body, "TaskGroups")
	default:
		out, err = g.viewGroups(r.Context(), namespace, rt.jobID, body, "Summary")
	}
	if err != nil || out == nil {
		return nil, err
	}
	return encodeFor(r, out)
}

// ours says whether Nomad's answer about a job shows something that Caravan has
// put into it. A job that was released keeps its members' identities, since they
// would be restarted without.
func (g *Gateway) ours(ctx context.Context, namespace, id string, body []byte) bool {
	if bytes.Contains(body, mark) || !bytes.Contains(body, memberMark) {
		return bytes.Contains(body, mark)
	}
	rec, err := g.cfg.Records.Get(ctx, namespace, id)
	return err == nil && rec.Phase == record.PhaseReleased
}

// queryNamespace is the namespace of a request that names it in its query alone.
func queryNamespace(r *http.Request) string {
	if ns := r.URL.Query().Get("namespace"); ns != "" {
		return ns
	}
	return api.DefaultNamespace
}

func (g *Gateway) viewJob(ctx context.Context, namespace, id string, body []byte) (any, error) {
	job, err := gangspec.Decode(body)
	if err != nil {
		return nil, err
	}
	own, err := g.ownVersion(ctx, namespace, id, job)
	if err != nil {
		return nil, err
	}
	return inUsersTerms(body, own)
}

// ownVersion is the job as its user wrote it, with Nomad's defaults. What a
// rewrite has put aside comes from the record, else from the job file.
func (g *Gateway) ownVersion(ctx context.Context, namespace, id string, job *api.Job) (*api.Job, error) {
	own, err := rewrite.Strip(job, nil)
	if err != nil || !rewritten(job) {
		return own, err
	}
	rec, err := g.cfg.Records.Get(ctx, namespace, id)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return nil, fmt.Errorf("read record: %w", err)
	}
	if to := rewrite.RollingTo(job); to != "" && rec != nil && rec.Original != nil && rec.SpecHash == to {
		// Some groups are of the version before; what the user asked for is not.
		own, err := rewrite.Strip(rec.Original, nil)
		if err == nil {
			own.Canonicalize()
		}
		return own, err
	}
	for hash, original := range known(rec) {
		restored, err := rewrite.Strip(job, original)
		if err != nil {
			return nil, err
		}
		if gangspec.Hash(restored) == hash {
			return restored, nil
		}
	}
	if file, _ := g.jobFile(ctx, namespace, id, job); file != nil {
		return rewrite.Strip(job, file)
	}
	return own, nil
}

// known are the versions that a record holds, by their hashes: the present one
// and, in the middle of an update, the one before.
func known(rec *record.Record) map[string]*api.Job {
	out := map[string]*api.Job{}
	if rec != nil && rec.Original != nil {
		out[rec.SpecHash] = rec.Original
	}
	if rec != nil && rec.Prior != nil && rec.Prior.Original != nil {
		out[rec.Prior.SpecHash] = rec.Prior.Original
	}
	if rec != nil && rec.Rollout != nil && rec.Rollout.Original != nil {
		out[rec.Rollout.SpecHash] = rec.Rollout.Original
	}
	return out
}

// inUsersTerms puts what of a job is its user's into Nomad's JSON of it; what
// the servers set stays as it is.
func inUsersTerms(body []byte, own *api.Job) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, fmt.Errorf("decode job: %w", err)
	}
	completeUpdates(own)
	for name, value := range map[string]any{
		"Constraints": own.Constraints, "TaskGroups": own.TaskGroups, "UI": own.UI, "Meta": own.Meta,
		"Update": own.Update, "AllAtOnce": deref(own.AllAtOnce),
	} {
		data, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("encode job: %w", err)
		}
		fields[name] = data
	}
	return fields, nil
}

// completeUpdates fills in Nomad's defaults for what a rewrite had put aside; the rest
// has them from Nomad.
func completeUpdates(own *api.Job) {
	if gangspec.Type(own) != api.JobTypeService {
		return
	}
	if own.Update != nil {
		own.Update.Canonicalize()
	}
	for _, group := range own.TaskGroups {
		update := api.DefaultUpdateStrategy()
		update.Merge(own.Update)
		update.Merge(group.Update)
		group.Update = update
	}
}

// viewGroups sums up what Nomad counts per task group, where a group was split
// member by member. field is where in the answer the groups are.
func (g *Gateway) viewGroups(ctx context.Context, namespace, id string, body []byte, field string) (any, error) {
	rec, err := g.cfg.Records.Get(ctx, namespace, id)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read record: %w", err)
	case rec.Original == nil:
		return nil, nil
	}
	var answer map[string]json.RawMessage
	var groups map[string]map[string]json.RawMessage
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("decode answer: %w", err)
	}
	if err := json.Unmarshal(answer[field], &groups); err != nil || !split(rec.Original, groups) && !other(rec.Original, groups) {
		return nil, err
	}
	present, err := g.groupsOf(ctx, namespace, id)
	if err != nil {
		return nil, err
	}
	merged := map[string]map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		of, _, _ := rewrite.OriginByName(rec.Original, name)
		if merged[of] == nil {
			merged[of] = map[string]any{}
		}
		for key, value := range groups[name] {
			if !present[name] && (key == "Queued" || key == "Starting") {
				continue // Nomad keeps what it counted before the group went
			}
			if merged[of][key], err = sum(merged[of][key], value); err != nil {
				return nil, fmt.Errorf("decode %s of group %q: %w", key, name, err)
			}
		}
	}
	for _, group := range rec.Original.TaskGroups {
		if m := merged[deref(group.Name)]; m[desired] != nil {
			m[desired] = count(group)
		}
	}
	if answer[field], err = json.Marshal(merged); err != nil {
		return nil, fmt.Errorf("encode groups: %w", err)
	}
	return answer, nil
}

// groupsOf are the names of the groups that a job has in Nomad now.
func (g *Gateway) groupsOf(ctx context.Context, namespace, id string) (map[string]bool, error) {
	job, err := g.current(ctx, namespace, id)
	if err != nil || job == nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, group := range job.TaskGroups {
		out[deref(group.Name)] = true
	}
	return out, nil
}

func split(original *api.Job, groups map[string]map[string]json.RawMessage) bool {
	for name := range groups {
		if of, _, ok := rewrite.OriginByName(original, name); ok || of != name {
			return true
		}
	}
	return false
}

// desired is what a scale status calls the count of a group.
const desired = "Desired"

// other says whether a group has another count in Nomad than its user gave it,
// as a gang has that is to grow.
func other(original *api.Job, groups map[string]map[string]json.RawMessage) bool {
	for _, group := range original.TaskGroups {
		if n := groups[deref(group.Name)][desired]; n != nil && string(n) != strconv.Itoa(count(group)) {
			return true
		}
	}
	return false
}

// sum adds a number to a number or a list to a list.
func sum(to any, value json.RawMessage) (any, error) {
	if value = bytes.TrimSpace(value); len(value) > 0 && (value[0] == '[' || value[0] == 'n') {
		var list []json.RawMessage
		if err := json.Unmarshal(value, &list); err != nil {
			return nil, err
		}
		before, _ := to.([]json.RawMessage)
		return append(before, list...), nil
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return nil, err
	}
	before, _ := to.(int64)
	return before + n, nil
}
