package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

// jobFile reads the file that a version of a job was submitted with, as Nomad
// keeps it, and has Nomad parse it. It tells what a rewrite had to put aside:
// the update and scaling blocks. Both are nil where there is no file any more,
// or where it cannot be parsed without files beside it.
func (g *Gateway) jobFile(ctx context.Context, namespace, id string, version *api.Job) (*api.Job, *api.JobSubmission) {
	q := (&api.QueryOptions{Namespace: namespace}).WithContext(ctx)
	sub, _, err := g.cfg.Client.Jobs().Submission(id, int(deref(version.Version)), q)
	if err != nil || sub == nil || sub.Source == "" {
		return nil, nil
	}
	job, err := g.parse(namespace, sub)
	if err != nil || job == nil || deref(job.ID) != id {
		g.log.Debug("parse job file", "namespace", namespace, "job", id, "version", deref(version.Version), "error", err)
		return nil, sub
	}
	return job, sub
}

// findSource takes the job file over from the version that a submission without
// one repeats, as `nomad job start` does.
func (g *Gateway) findSource(ctx context.Context, s *submission, current *api.Job) {
	if s.register.Submission != nil || current == nil {
		return
	}
	own, err := g.ownVersion(ctx, s.namespace, s.id, current)
	if err != nil || gangspec.Hash(own) != s.hash {
		return
	}
	_, s.register.Submission = g.jobFile(ctx, s.namespace, s.id, current)
}

func (g *Gateway) parse(namespace string, sub *api.JobSubmission) (*api.Job, error) {
	if sub.Format == "json" {
		var root struct{ Job json.RawMessage }
		if err := json.Unmarshal([]byte(sub.Source), &root); err == nil && len(root.Job) > 0 {
			return gangspec.Decode(root.Job)
		}
		return gangspec.Decode([]byte(sub.Source))
	}
	// The client's own method has no namespace to parse in.
	var job api.Job
	_, err := g.cfg.Client.Raw().Write("/v1/jobs/parse", api.JobsParseRequest{
		JobHCL: sub.Source, Variables: variables(sub),
	}, &job, &api.WriteOptions{Namespace: namespace})
	if err != nil {
		return nil, fmt.Errorf("parse job file: %w", err)
	}
	return &job, nil
}

// variables writes -var flags as the file of variables that they stand beside.
func variables(sub *api.JobSubmission) string {
	var out strings.Builder
	out.WriteString(sub.Variables)
	out.WriteByte('\n')
	for _, name := range slices.Sorted(maps.Keys(sub.VariableFlags)) {
		value := sub.VariableFlags[name]
		if !strings.HasPrefix(value, "[") && !strings.HasPrefix(value, "{") {
			value = strings.NewReplacer("${", "$${", "%{", "%%{").Replace(strconv.Quote(value))
		}
		fmt.Fprintf(&out, "%s = %s\n", name, value)
	}
	return out.String()
}
