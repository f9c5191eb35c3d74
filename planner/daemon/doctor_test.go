package daemon_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadproc"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/daemon"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// onEach starts a cluster on the stand-in, and on a real Nomad where there is
// one.
func onEach(t *testing.T, spec devcluster.Spec, test func(t *testing.T, c devcluster.Cluster)) {
	start := map[string]func(t *testing.T) (devcluster.Cluster, error){
		devcluster.BackendDevNomad: func(t *testing.T) (devcluster.Cluster, error) { return devnomad.Start(t.Context(), spec) },
		devcluster.BackendNomad: func(t *testing.T) (devcluster.Cluster, error) {
			bin, ok := nomadproc.Find()
			if !ok {
				t.Skip("needs Nomad: set NOMAD_BIN or put nomad on the PATH")
			}
			return nomadproc.Start(t.Context(), bin, spec)
		},
	}
	for name, start := range start {
		t.Run(name, func(t *testing.T) {
			c, err := start(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := c.Stop(); err != nil {
					t.Error(err)
				}
			})
			if err := c.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			test(t, c)
		})
	}
}

func plannerPolicy(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../dist/acl/caravan-planner.policy.hcl")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// token makes one with that policy.
func token(t *testing.T, boss *api.Client, name, rules string) string {
	t.Helper()
	if _, err := boss.ACLPolicies().Upsert(&api.ACLPolicy{Name: name, Rules: rules}, nil); err != nil {
		t.Fatal(err)
	}
	got, _, err := boss.ACLTokens().Create(&api.ACLToken{Name: name, Type: "client", Policies: []string{name}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got.SecretID
}

// failed are the names and details of the checks that did not go well.
func failed(checks []httpapi.Check, status httpapi.CheckStatus) []string {
	var out []string
	for _, c := range checks {
		if c.Status == status {
			out = append(out, c.Name+": "+c.Detail)
		}
	}
	return out
}

// Every line of the shipped policy is needed, and the doctor names the one that
// is missing.
func TestDoctorNamesEachMissingRight(t *testing.T) {
	shipped := plannerPolicy(t)
	without := func(what string) string {
		if !strings.Contains(shipped, what) {
			t.Fatalf("the shipped policy lacks %s", what)
		}
		return strings.ReplaceAll(shipped, what, "")
	}
	tests := map[string]struct {
		policy string
		want   []string
	}{
		"shipped":             {shipped, nil},
		"no node:read":        {without("node {\n  policy = \"read\"\n}"), []string{"node:read"}},
		"no operator:read":    {without("operator {\n  policy = \"read\"\n}"), []string{"operator:read"}},
		"no list-jobs":        {without(`"list-jobs", `), []string{"list-jobs in namespace default, team", "read-job in all namespaces"}},
		"no read-job":         {without(`"read-job", `), []string{"read-job in namespace default, team", "read-job in all namespaces"}},
		"no submit-job":       {without(`"submit-job", `), []string{"submit-job in namespace default, team"}},
		"no alloc-lifecycle":  {without(`, "alloc-lifecycle"`), []string{"alloc-lifecycle in namespace default, team"}},
		"no variables read":   {strings.Replace(shipped, `["read", `, `["list", `, 1), []string{"variables read in namespace default"}},
		"no variables write":  {without(`, "write"`), []string{"variables write in namespace default"}},
		"no variables delete": {without(`, "destroy"`), []string{"variables destroy in namespace default"}},
		"no variables":        {without("  variables {\n    path \"caravan/*\" {\n      capabilities = [\"read\", \"write\", \"destroy\"]\n    }\n  }\n"), []string{"variables destroy", "variables read", "variables write"}},
		// What an administrator may well write: Nomad goes by the rule that fits
		// a namespace best, and by nothing of the others.
		"rule for one only":   {strings.Replace(shipped, `namespace "*"`, `namespace "team"`, 1), []string{"read-job in all namespaces"}},
		"rule that overrides": {shipped + "\nnamespace \"team\" {\n  capabilities = [\"read-job\"]\n}\n", []string{"alloc-lifecycle in namespace team", "list-jobs in namespace team", "submit-job in namespace team"}},
	}
	onEach(t, devcluster.Spec{ACL: true}, func(t *testing.T, c devcluster.Cluster) {
		boss := c.Client()
		if _, err := boss.Namespaces().Register(&api.Namespace{Name: "team"}, nil); err != nil {
			t.Fatal(err)
		}
		before := jobsAndVariables(t, boss)
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				cfg := config.Default()
				cfg.Nomad.Address = c.Address()
				cfg.Nomad.Token = token(t, boss, strings.NewReplacer(" ", "-", ":", "-").Replace(name), test.policy)
				d, err := daemon.Doctor(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, c := range d.Checks {
					if c.Name == "acl" && c.Status != httpapi.CheckOK {
						got = append(got, strings.TrimPrefix(c.Detail, "the planner's token lacks "))
						if c.Status != httpapi.CheckFail || !strings.Contains(c.Do, "policy: ") {
							t.Errorf("check %+v does not say what to write", c)
						}
					}
				}
				ok := len(got) == len(test.want)
				for i := range test.want {
					ok = ok && strings.HasPrefix(got[i], test.want[i])
				}
				if !ok {
					t.Errorf("lacking (-want +got):\n%s", cmp.Diff(test.want, got))
				}
			})
		}
		if diff := cmp.Diff(before, jobsAndVariables(t, boss)); diff != "" {
			t.Errorf("the examination left something (-before +after):\n%s", diff)
		}
	})
}

func jobsAndVariables(t *testing.T, boss *api.Client) []string {
	t.Helper()
	q := &api.QueryOptions{Namespace: "*"}
	jobs, _, err := boss.Jobs().List(q)
	if err != nil {
		t.Fatal(err)
	}
	variables, _, err := boss.Variables().List(q)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, j := range jobs {
		out = append(out, "job "+j.ID)
	}
	for _, v := range variables {
		out = append(out, "variable "+v.Path)
	}
	return out
}

// A planner whose token lacks a right says which, in its status too, where
// Nomad itself would only leave things out of its lists.
func TestStatusNamesMissingRights(t *testing.T) {
	onEach(t, devcluster.Spec{ACL: true}, func(t *testing.T, c devcluster.Cluster) {
		secret := token(t, c.Client(), "narrow", strings.ReplaceAll(plannerPolicy(t), `"list-jobs", `, ""))
		p := run(t, c, func(cfg *config.Config) { cfg.Nomad.Token = secret })
		eventually(t, "the status names list-jobs", func() bool {
			st, err := p.client.Status(t.Context())
			return err == nil && slices.ContainsFunc(st.Warnings, func(w httpapi.Warning) bool {
				return w.Subject == "ACL" && strings.Contains(w.Text, "lacks list-jobs")
			})
		})
	})
}

// The doctor finds what is wrong in a cluster, and what it says is gone once
// that was mended.
func TestDoctorFindsFaults(t *testing.T) {
	spec := devcluster.Spec{Nodes: []devcluster.Node{
		{Name: "open", Meta: map[string]string{"caravan_gate": "open"}},
		{Name: "bare", Meta: map[string]string{"caravan_rack": "r1"}},
	}}
	onEach(t, spec, func(t *testing.T, c devcluster.Cluster) {
		boss := c.Client()
		conf := &api.SchedulerConfiguration{PreemptionConfig: api.PreemptionConfig{BatchSchedulerEnabled: true, SysBatchSchedulerEnabled: true}}
		if _, _, err := boss.Operator().SchedulerSetConfiguration(conf, nil); err != nil {
			t.Fatal(err)
		}
		stray := gpuJob()
		stray.ID, stray.TaskGroups[0].Tasks[0].Resources.Devices = new("stray"), nil
		stray.Constrain(api.NewConstraint("${meta.caravan_gate}", "=", "open"))
		stray.Constrain(api.NewConstraint("${node.unique.name}", "=", "bare"))
		if _, _, err := boss.Jobs().Register(stray, nil); err != nil {
			t.Fatal(err)
		}
		p := run(t, c)
		eventually(t, "it leads", func() bool { return leads(t, p) })
		got, err := p.client.Doctor(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(failed(got.Checks, httpapi.CheckFail), failed(got.Checks, httpapi.CheckWarn))
		for _, want := range []string{
			"gate: 1 node with meta caravan_gate", "preemption-batch: ", "preemption-sysbatch: ",
			"device-plugin: none of 2 nodes", "unmanaged-jobs: 1 job", "default/stray (gated",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in %s", want, text)
			}
		}
		if got.OK {
			t.Error("it is ok")
		}
		for _, name := range []string{"nomad", "clock", "acl", "leader", "preemption-service", "records-without-jobs", "device-plugin-once"} {
			if i := slices.IndexFunc(got.Checks, func(c httpapi.Check) bool { return c.Name == name }); i < 0 || got.Checks[i].Status != httpapi.CheckOK {
				t.Errorf("check %s is not ok: %+v", name, got.Checks)
			}
		}

		// Once the planner is away nobody leads, and it is told without it.
		p.stop()
		cfg := config.Default()
		cfg.Nomad.Address = c.Address()
		alone, err := daemon.Doctor(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(failed(alone.Checks, httpapi.CheckFail)); !strings.Contains(text, "leader: no planner leads") {
			t.Errorf("that nobody leads is not in %s", text)
		}
	})
}

func TestDoctorWithoutNomad(t *testing.T) {
	cfg := config.Default()
	cfg.Nomad.Address = "http://127.0.0.1:1"
	d, err := daemon.Doctor(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if d.OK || len(d.Checks) != 1 || d.Checks[0].Name != "nomad" || !strings.Contains(d.Checks[0].Detail, "refused") {
		t.Errorf("checks = %+v", d)
	}
}
