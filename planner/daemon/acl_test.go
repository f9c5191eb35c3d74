package daemon_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/dist/acl"
	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// caller is somebody with a token, before the planner.
type caller struct {
	nomad   *api.Client
	caravan *httpapi.Client
}

func callAs(t *testing.T, p planner, secret string) caller {
	t.Helper()
	nomad, err := api.NewClient(&api.Config{Address: p.daemon.Address(), SecretID: secret})
	if err != nil {
		t.Fatal(err)
	}
	caravan, err := httpapi.NewClient(p.daemon.Address(), secret, nil)
	if err != nil {
		t.Fatal(err)
	}
	return caller{nomad, caravan}
}

// right is a line of a shipped policy, and something that takes it.
type right struct {
	// policy is what the line is taken out of, without what it is there for.
	policy, without, with string
	do                    func(t *testing.T, c caller, alloc string) error
	// names is what the refusal says.
	names string
}

func rights() map[string]right {
	q := &api.QueryOptions{Namespace: "default"}
	w := &api.WriteOptions{Namespace: "default"}
	return map[string]right{
		"user lists jobs": {acl.User, `"list-jobs",`, "", func(_ *testing.T, c caller, _ string) error {
			_, _, err := c.nomad.Jobs().List(q)
			return err
		}, "list-jobs in namespace default"},
		"user reads a job": {acl.User, `"read-job",`, "", func(_ *testing.T, c caller, _ string) error {
			_, _, err := c.nomad.Jobs().Info("sleeper", q)
			return err
		}, "read-job in namespace default"},
		"user explains a job": {acl.User, `"read-job",`, "", func(t *testing.T, c caller, _ string) error {
			_, err := c.caravan.Explain(t.Context(), "default", "j")
			return err
		}, "read-job in namespace default"},
		"user has a job parsed": {acl.User, `"submit-job",`, "", func(_ *testing.T, c caller, _ string) error {
			_, err := c.nomad.Jobs().ParseHCL("job \"x\" {\n  group \"g\" {\n    task \"t\" {\n      driver = \"raw_exec\"\n    }\n  }\n}\n", true)
			return err
		}, "parse-job"}, // or submit-job; Nomad takes either
		"user runs a job": {acl.User, `"submit-job",`, "", func(_ *testing.T, c caller, _ string) error {
			_, _, err := c.nomad.Jobs().Register(gpuJob(), w)
			return err
		}, "submit-job in namespace default"},
		"user plans a job": {acl.User, `"submit-job",`, "", func(_ *testing.T, c caller, _ string) error {
			_, _, err := c.nomad.Jobs().Plan(gpuJob(), true, w)
			return err
		}, "submit-job in namespace default"},
		"user queues a job again": {acl.User, `"submit-job",`, "", func(t *testing.T, c caller, _ string) error {
			_, err := c.caravan.Steer(t.Context(), httpapi.VerbRequeue, httpapi.SteerRequest{Namespace: "default", Job: "j"})
			return err
		}, "submit-job in namespace default"},
		"user signals a member": {acl.User, `"alloc-lifecycle",`, "", func(_ *testing.T, c caller, alloc string) error {
			_, err := c.nomad.Allocations().Stop(&api.Allocation{ID: alloc}, q)
			return err
		}, "alloc-lifecycle in namespace default"},
		"user reads logs": {acl.User, `"read-logs",`, "", func(_ *testing.T, c caller, alloc string) error {
			body, err := c.nomad.Raw().Response("/v1/client/fs/logs/"+alloc+"?task=t&type=stdout&plain=true&origin=start", q)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, body)
			return errors.Join(err, body.Close())
		}, "read-logs in namespace default"},
		"user looks at nodes": {acl.User, "node {\n  policy = \"read\"\n}", "", func(t *testing.T, c caller, _ string) error {
			_, err := c.caravan.Topology(t.Context())
			return err
		}, "node:read"},
		"operator lists jobs": {acl.Operator, `"list-jobs",`, "", func(_ *testing.T, c caller, _ string) error {
			_, _, err := c.nomad.Jobs().List(q)
			return err
		}, "list-jobs in namespace default"},
		"operator sees the queue": {acl.Operator, `"read-job",`, "", func(t *testing.T, c caller, _ string) error {
			_, err := c.caravan.Explain(t.Context(), "default", "j")
			return err
		}, "read-job in namespace default"},
		"operator drains": {acl.Operator, "node {\n  policy = \"write\"", "node {\n  policy = \"read\"", func(_ *testing.T, c caller, _ string) error {
			nodes, _, err := c.nomad.Nodes().List(nil)
			if err != nil {
				return err
			}
			_, err = c.nomad.Nodes().ToggleEligibility(nodes[0].ID, true, nil)
			return err
		}, "node:write"},
		"operator examines": {acl.Operator, "operator {\n  policy = \"write\"\n}", "", func(t *testing.T, c caller, _ string) error {
			_, err := c.caravan.Doctor(t.Context())
			return err
		}, "operator:read"},
		"operator turns preemption off": {acl.Operator, "operator {\n  policy = \"write\"", "operator {\n  policy = \"read\"", func(_ *testing.T, c caller, _ string) error {
			_, _, err := c.nomad.Operator().SchedulerSetConfiguration(&api.SchedulerConfiguration{}, nil)
			return err
		}, "operator:write"},
		"operator releases a job": {acl.Operator, `"submit-job",`, "", func(t *testing.T, c caller, _ string) error {
			r, err := c.caravan.Release(t.Context(), httpapi.ReleaseRequest{Namespace: "default", Job: "released"})
			if err == nil && !r.Jobs[0].Done {
				err = errors.New(r.Jobs[0].Note)
			}
			return err
		}, "submit-job in namespace default"},
	}
}

// With ACLs on and every part with the token of its shipped policy everything
// works, and each right that is taken out of a policy is named by the refusal
// of what it is there for.
func TestShippedPolicies(t *testing.T) {
	onEach(t, devcluster.Spec{ACL: true, Nodes: []devcluster.Node{{Name: "a"}}}, func(t *testing.T, c devcluster.Cluster) {
		boss := c.Client()
		secret := token(t, boss, "caravan-planner", acl.Planner)
		p := run(t, c, func(cfg *config.Config) { cfg.Nomad.Token = secret })
		eventually(t, "it leads", func() bool { return leads(t, p) })
		all := callAs(t, p, token(t, boss, "all", acl.User))
		alloc := startSleeper(t, boss)
		for _, id := range []string{"j", "released"} {
			job := gpuJob()
			job.ID, job.Name = &id, &id
			if _, _, err := all.nomad.Jobs().Register(job, nil); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the jobs are decided on", func() bool {
			e, err := all.caravan.Explain(t.Context(), "default", "released")
			return err == nil && e.Action == "wait"
		})
		for name, r := range rights() {
			t.Run(name, func(t *testing.T) {
				if !strings.Contains(r.policy, r.without) {
					t.Fatalf("the shipped policy lacks %s", r.without)
				}
				id := strings.ReplaceAll(name, " ", "-")
				weak := callAs(t, p, token(t, boss, "weak-"+id, strings.Replace(r.policy, r.without, r.with, 1)))
				if err := r.do(t, weak, alloc); err == nil || !strings.Contains(err.Error(), r.names) {
					t.Errorf("without the right: %v, want it to name %s", err, r.names)
				}
				if err := r.do(t, callAs(t, p, token(t, boss, id, r.policy)), alloc); err != nil {
					t.Errorf("with the shipped policy: %v", err)
				}
			})
		}
	})
}

// startSleeper runs a job without GPUs and returns its allocation.
func startSleeper(t *testing.T, boss *api.Client) string {
	t.Helper()
	task := api.NewTask("t", "raw_exec").SetConfig("command", "/bin/sleep").SetConfig("args", []string{"600"})
	job := api.NewServiceJob("sleeper", "sleeper", "global", 50).AddDatacenter("*").AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(task))
	if _, _, err := boss.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	id := ""
	eventually(t, "the sleeper runs", func() bool {
		allocs, _, err := boss.Jobs().Allocations("sleeper", false, nil)
		if err != nil || len(allocs) == 0 || allocs[0].ClientStatus != api.AllocClientStatusRunning {
			return false
		}
		id = allocs[0].ID
		return true
	})
	return id
}
