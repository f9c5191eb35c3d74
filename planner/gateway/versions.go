package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// userVersion is one of the user's own versions of a job: a run of Nomad's
// versions that were made from one submission.
type userVersion struct {
	// newest is the newest of Nomad's versions; its number is the one shown, as
	// it is the one that allocations name.
	newest *api.Job
	raw    json.RawMessage
	// own is the job as its user wrote it.
	own *api.Job
	// first is the oldest version's number that Nomad still has.
	first uint64
	// submitted is the oldest version's time.
	submitted *int64
	tag       *api.JobVersionTag
	stable    bool
}

func (v *userVersion) number() uint64 { return deref(v.newest.Version) }

// covers says whether one of Nomad's versions is of this submission.
func (v *userVersion) covers(number uint64) bool { return v.first <= number && number <= v.number() }

// userVersions sorts Nomad's versions, newest first, into the user's, newest
// first.
func (g *Gateway) userVersions(ctx context.Context, namespace, id string, raws []json.RawMessage) ([]*userVersion, error) {
	var out []*userVersion
	var last *userVersion
	for i := len(raws) - 1; i >= 0; i-- {
		job, err := gangspec.Decode(raws[i])
		if err != nil {
			return nil, err
		}
		if last == nil || !last.continuedBy(job) {
			own, err := g.ownVersion(ctx, namespace, id, job)
			if err != nil {
				return nil, err
			}
			last = &userVersion{own: own, first: deref(job.Version), submitted: job.SubmitTime}
			out = append([]*userVersion{last}, out...)
		}
		last.newest, last.raw = job, raws[i]
		last.stable = last.stable || deref(job.Stable)
		if job.VersionTag != nil {
			last.tag = job.VersionTag
		}
	}
	return out, nil
}

// continuedBy says whether Nomad's next version is of the same submission: gate
// or pins are all that changed.
func (v *userVersion) continuedBy(next *api.Job) bool {
	if deref(v.newest.Stop) != deref(next.Stop) || !rewritten(v.newest) && !rewritten(next) {
		return false
	}
	if to := rewrite.RollingTo(next); to != "" {
		return to == gangspec.Hash(v.own)
	}
	own, err := rewrite.Strip(next, v.own)
	return err == nil && gangspec.Hash(own) == gangspec.Hash(v.own)
}

// shown is the version in Nomad's JSON, in the user's terms.
func (v *userVersion) shown() (map[string]json.RawMessage, error) {
	fields, err := inUsersTerms(v.raw, v.own)
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]any{"VersionTag": v.tag, "Stable": v.stable, "SubmitTime": v.submitted} {
		if fields[name], err = json.Marshal(value); err != nil {
			return nil, fmt.Errorf("encode version: %w", err)
		}
	}
	return fields, nil
}

// viewVersions shows a job's history as that of its user's versions.
func (g *Gateway) viewVersions(r *http.Request, namespace, id string, body []byte) (any, error) {
	var answer map[string]json.RawMessage
	var raws []json.RawMessage
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("decode versions: %w", err)
	}
	if err := json.Unmarshal(answer["Versions"], &raws); err != nil {
		return nil, fmt.Errorf("decode versions: %w", err)
	}
	versions, err := g.userVersions(r.Context(), namespace, id, raws)
	if err != nil {
		return nil, err
	}
	shown := make([]any, len(versions))
	for i, v := range versions {
		if shown[i], err = v.shown(); err != nil {
			return nil, err
		}
	}
	if answer["Versions"], err = json.Marshal(shown); err != nil {
		return nil, fmt.Errorf("encode versions: %w", err)
	}
	diffs, err := diffVersions(versions, r.URL.Query())
	if err != nil {
		return nil, err
	}
	if answer["Diffs"], err = json.Marshal(diffs); err != nil {
		return nil, fmt.Errorf("encode differences: %w", err)
	}
	return answer, nil
}

// diffVersions compares each version with the one before it, or with the one
// that the query names; nil if the query asks for no differences.
func diffVersions(versions []*userVersion, query url.Values) ([]*api.JobDiff, error) {
	if asked, err := strconv.ParseBool(query.Get("diffs")); err != nil || !asked {
		return nil, nil
	}
	var fixed *api.Job
	number, err := strconv.ParseUint(query.Get("diff_version"), 10, 64)
	for _, v := range versions {
		tag := query.Get("diff_tag")
		if tag != "" && v.tag != nil && v.tag.Name == tag || tag == "" && err == nil && v.covers(number) {
			fixed = v.own
		}
	}
	var out []*api.JobDiff
	for i, v := range versions {
		before := fixed
		if before == nil {
			if i == len(versions)-1 {
				break
			}
			before = versions[i+1].own
		}
		d, err := diffJobs(before, v.own)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}
