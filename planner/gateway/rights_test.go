package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// TestRightsAreNomads uses tokens that may do one thing each.
func TestRightsAreNomads(t *testing.T) {
	onEachBackend(t, func(t *testing.T, r *real) {
		owner := r.through(t)
		if _, _, err := owner.Jobs().Register(sleeper(), nil); err != nil {
			t.Fatalf("register: %v", err)
		}
		if _, _, err := owner.Jobs().Register(sleeper(func(j *api.Job) { j.Priority = new(60) }), nil); err != nil {
			t.Fatalf("register: %v", err)
		}
		scaler, dispatcher := r.as(t, "scale-job"), r.as(t, "dispatch-job")
		reverter, submitter := r.as(t, "revert-job"), r.as(t, "submit-job")
		scale := func(c *api.Client, n int) error {
			_, _, err := c.Jobs().Scale("train", "train", &n, "", false, nil, nil)
			return err
		}
		revert := func(c *api.Client) error {
			_, _, err := c.Jobs().Revert("train", 0, nil, nil, "", "")
			return err
		}
		r.decide(model.ActionWait, "waits", nil)
		if err := scale(dispatcher, 2); !denied(err) {
			t.Errorf("scale without the right: %v", err)
		}
		if err := scale(scaler, 2); err != nil {
			t.Errorf("scale with the right: %v", err)
		}
		if job := r.job(t); *job.TaskGroups[0].Count != 2 || !rewrite.IsGated(job) {
			t.Errorf("count %d, gated %v, want 2 and the gate", *job.TaskGroups[0].Count, rewrite.IsGated(job))
		}
		for name, c := range map[string]*api.Client{"scale-job": scaler, "revert-job": reverter} {
			if err := revert(c); !denied(err) {
				t.Errorf("revert with %s: %v, want a refusal", name, err)
			}
		}
		if err := revert(submitter); err != nil {
			t.Errorf("revert with submit-job: %v", err)
		}
		if job := r.job(t); *job.TaskGroups[0].Count != 1 || *job.Priority != 50 || !rewrite.IsGated(job) {
			t.Errorf("reverted to count %d, priority %d, gated %v", *job.TaskGroups[0].Count, *job.Priority, rewrite.IsGated(job))
		}
		if r.cluster.Backend() == devcluster.BackendDevNomad {
			return // it dispatches nothing
		}
		if _, _, err := owner.Jobs().Register(sleeper(func(j *api.Job) {
			j.ID, j.Type, j.ParameterizedJob = new("sweep"), new("batch"), &api.ParameterizedJobConfig{}
		}), nil); err != nil {
			t.Fatalf("register: %v", err)
		}
		if _, _, err := scaler.Jobs().Dispatch("sweep", nil, nil, "", nil); !denied(err) {
			t.Errorf("dispatch without the right: %v", err)
		}
		resp, _, err := dispatcher.Jobs().Dispatch("sweep", nil, nil, "", nil)
		if err != nil {
			t.Fatalf("dispatch with the right: %v", err)
		}
		child, _, err := owner.Jobs().Info(resp.DispatchedJobID, &api.QueryOptions{Params: map[string]string{rawParameter: rawValue}})
		if err != nil || !rewrite.IsGated(child) {
			t.Errorf("child = %+v, %v, want a gated one", child, err)
		}
	})
}

func denied(err error) bool { return err != nil && strings.Contains(err.Error(), "403") }

// as is a client with one capability in the default namespace.
func (r *real) as(t *testing.T, capability string) *api.Client {
	t.Helper()
	admin := r.cluster.Client()
	rules := fmt.Sprintf(`namespace "default" { capabilities = [%q] }`, capability)
	if _, err := admin.ACLPolicies().Upsert(&api.ACLPolicy{Name: capability, Rules: rules}, nil); err != nil {
		t.Fatalf("write policy: %v", err)
	}
	token, _, err := admin.ACLTokens().Create(&api.ACLToken{Name: capability, Type: "client", Policies: []string{capability}}, nil)
	if err != nil {
		t.Fatalf("create token: %v", err)
	}
	client, err := api.NewClient(&api.Config{Address: r.address, SecretID: token.SecretID})
	if err != nil {
		t.Fatal(err)
	}
	return client
}
