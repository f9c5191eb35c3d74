package daemon_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

const (
	blindPolicy = `
namespace "*" { capabilities = ["list-jobs", "read-job", "submit-job", "alloc-lifecycle"] }
namespace "default" {
  capabilities = ["submit-job"]
  variables {
    path "caravan/*" { capabilities = ["list", "read", "write", "destroy"] }
  }
}
node { policy = "read" }
operator { policy = "read" }
`
	listing = `capabilities = ["submit-job"`
)

// A token that does not see a namespace makes GPUs in use look free, so
// nothing is admitted until it does.
func TestNothingIsAdmittedBlindly(t *testing.T) {
	onEach(t, devcluster.Spec{ACL: true}, func(t *testing.T, c devcluster.Cluster) {
		admin := c.Client()
		policy := func(rules string) {
			t.Helper()
			if _, err := admin.ACLPolicies().Upsert(&api.ACLPolicy{Name: "planner", Rules: rules}, nil); err != nil {
				t.Fatal(err)
			}
		}
		namespace := func(name string) {
			t.Helper()
			if _, err := admin.Namespaces().Register(&api.Namespace{Name: name}, nil); err != nil {
				t.Fatal(err)
			}
		}
		secret := token(t, admin, "planner", blindPolicy)
		namespace("team")
		job := gpuJob()
		job.Namespace = new(string)
		*job.Namespace = "team"
		if _, _, err := admin.Jobs().Register(job, &api.WriteOptions{Namespace: "team"}); err != nil {
			t.Fatal(err)
		}
		p := run(t, c, func(cfg *config.Config) { cfg.Nomad.Token = secret })
		reason := func() string {
			e, _ := p.client.Explain(t.Context(), "team", "j")
			return e.Reason
		}
		const lack = `lacks list-jobs and read-job in namespace "default"`
		eventually(t, "the job is held", func() bool { return strings.Contains(reason(), lack) })
		warned := func() bool {
			st, err := p.client.Status(t.Context())
			return err == nil && slices.ContainsFunc(st.Warnings, func(w httpapi.Warning) bool {
				return strings.Contains(w.Text, lack) && strings.Contains(w.Text, "nothing is admitted")
			})
		}
		if !warned() {
			t.Error("the status does not warn of the rights lacking")
		}
		policy(strings.Replace(blindPolicy, listing, listing+`, "list-jobs", "read-job"`, 1))
		namespace("another") // makes the planner look
		eventually(t, "the job is decided on", func() bool { return strings.HasPrefix(reason(), "no node can take") })
		if warned() {
			t.Error("the status warns of rights that are there now")
		}
	})
}
