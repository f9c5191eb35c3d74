package devnomad_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
)

// TestFail: requests are answered as a test orders, and no others.
func TestFail(t *testing.T) {
	c := start(t, devnomad.Options{}, 0, "a")
	c.Fail(func(r *http.Request) (int, string) {
		if r.Method == http.MethodPut && r.URL.Path == "/v1/jobs" {
			return http.StatusTooManyRequests, "slow down"
		}
		if r.URL.Path == "/v1/nodes" {
			return http.StatusOK, "{garbage"
		}
		return 0, ""
	})
	if _, _, err := c.Client().Jobs().Register(job("j", api.JobTypeBatch, 1, "true"), nil); err == nil || !strings.Contains(err.Error(), "slow down") {
		t.Errorf("register gave %v", err)
	}
	if _, _, err := c.Client().Nodes().List(nil); err == nil {
		t.Error("garbage was taken for nodes")
	}
	if _, _, err := c.Client().Jobs().List(nil); err != nil {
		t.Error(err)
	}
	c.Fail(nil)
	register(t, c, job("j", api.JobTypeBatch, 1, "true"))
}

// TestBlockingQuery: a query with an index waits for a change, and no longer
// than it was told to.
func TestBlockingQuery(t *testing.T) {
	c := start(t, devnomad.Options{}, 0, "a")
	jobs := c.Client().Jobs()
	_, meta, err := jobs.List(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, again, err := jobs.List(&api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: 50 * time.Millisecond})
	if err != nil || len(got) != 0 || again.LastIndex != meta.LastIndex {
		t.Errorf("a wait without a change gave %v, index %d, %v", got, again.LastIndex, err)
	}
	answer := make(chan []*api.JobListStub, 1)
	go func() {
		list, _, err := jobs.List(&api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: time.Minute})
		if err != nil {
			t.Error(err)
		}
		answer <- list
	}()
	register(t, c, job("j", api.JobTypeBatch, 1, "true"))
	select {
	case list := <-answer:
		if len(list) != 1 || list[0].ID != "j" {
			t.Errorf("the query answered %+v", list)
		}
	case <-time.After(90 * time.Second):
		t.Fatal("the query does not answer")
	}
}

// TestEventStreamFromIndex: a stream begins with what is kept from its index
// on, filtered by topic and key.
func TestEventStreamFromIndex(t *testing.T) {
	c := start(t, devnomad.Options{}, 0, "a")
	register(t, c, job("one", api.JobTypeBatch, 1, "true"))
	register(t, c, job("two", api.JobTypeBatch, 1, "true"))
	reach(t, c, "two", api.AllocClientStatusComplete, 1)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Address()+"/v1/event/stream?index=1&topic=Job:two", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Events []struct{ Topic, Type, Key, Namespace string }
	}
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	want := []struct{ Topic, Type, Key, Namespace string }{{"Job", "JobRegistered", "two", "default"}}
	if diff := cmp.Diff(want, got.Events); diff != "" {
		t.Errorf("first events (-want +got):\n%s", diff)
	}
}

// TestACL: a token may do what its policies say, and nothing without one.
func TestACL(t *testing.T) {
	c := startSpec(t, devcluster.Spec{Nodes: []devcluster.Node{{Name: "a"}}, ACL: true}, devnomad.Options{})
	boss := c.Client()
	if _, err := boss.ACLPolicies().Upsert(&api.ACLPolicy{Name: "reader", Rules: `
		namespace "default" {
		  capabilities = ["list-jobs", "read-job"]
		  variables {
		    path "caravan/*" { capabilities = ["read"] }
		  }
		}
		node { policy = "read" }`}, nil); err != nil {
		t.Fatal(err)
	}
	token, _, err := boss.ACLTokens().Create(&api.ACLToken{Name: "r", Type: "client", Policies: []string{"reader"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	as := func(secret string) *api.Client {
		cl := c.Client()
		cl.SetSecretID(secret)
		return cl
	}
	submit := func(cl *api.Client) error {
		_, _, err := cl.Jobs().Register(job("j", api.JobTypeBatch, 1, "true"), nil)
		return err
	}
	list := func(cl *api.Client) error { _, _, err := cl.Jobs().List(nil); return err }
	nodes := func(cl *api.Client) error { _, _, err := cl.Nodes().List(nil); return err }
	write := func(cl *api.Client) error {
		v := api.NewVariable("caravan/x")
		v.Items["a"] = "b"
		_, _, err := cl.Variables().Update(v, nil)
		return err
	}
	tests := map[string]struct {
		secret string
		do     func(*api.Client) error
		want   string
	}{
		"management submits":       {c.Token(), submit, ""},
		"reader lists":             {token.SecretID, list, ""},
		"reader sees nodes":        {token.SecretID, nodes, ""},
		"reader does not submit":   {token.SecretID, submit, "Permission denied"},
		"reader does not write":    {token.SecretID, write, "Permission denied"},
		"anonymous does not list":  {"", list, "Permission denied"},
		"an unknown token is told": {"11111111-2222-3333-4444-555555555555", list, "ACL token not found"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.do(as(tt.secret))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestStartReportsFaults: what cannot be started says so and leaves nothing.
func TestStartReportsFaults(t *testing.T) {
	tests := map[string]devcluster.Spec{
		"two nodes of one name": {Nodes: []devcluster.Node{{Name: "a"}, {Name: "a"}}},
		"no such plugin":        {Nodes: []devcluster.Node{{Name: "a", Plugins: []devcluster.Plugin{{Name: "x", Path: "/nonexistent/plugin"}}}}},
		"no such address":       {Bind: "not an address"},
	}
	for name, spec := range tests {
		t.Run(name, func(t *testing.T) {
			if c, err := devnomad.Start(t.Context(), spec); err == nil {
				t.Errorf("it started: %v", c.Stop())
			}
		})
	}
}

// TestNamespaces: a request's namespace goes before the job's own, as in
// Nomad, and one that is not there is refused by all that take a job.
func TestNamespaces(t *testing.T) {
	c := start(t, devnomad.Options{}, 0, "a")
	if _, err := c.Client().Namespaces().Register(&api.Namespace{Name: "ml"}, nil); err != nil {
		t.Fatal(err)
	}
	jobs := c.Client().Jobs()
	in := func(id, namespace string) *api.Job {
		j := job(id, api.JobTypeBatch, 1, "true")
		j.Namespace = &namespace
		return j
	}
	if _, _, err := jobs.Register(in("own", "ml"), nil); err != nil {
		t.Error(err)
	}
	if _, _, err := jobs.Register(in("asked", "ml"), &api.WriteOptions{Namespace: "default"}); err != nil {
		t.Error(err)
	}
	got := map[string]string{}
	list, _, err := jobs.List(&api.QueryOptions{Namespace: api.AllNamespacesNamespace})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range list {
		got[j.ID] = j.Namespace
	}
	if diff := cmp.Diff(map[string]string{"own": "ml", "asked": "default"}, got); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
	const want = `job "lost" is in nonexistent namespace "nowhere"`
	if _, _, err := jobs.Register(in("lost", "nowhere"), nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("register gave %v", err)
	}
	if _, _, err := jobs.Plan(in("lost", "nowhere"), false, nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("plan gave %v", err)
	}
	resp, _, err := jobs.Validate(in("lost", "nowhere"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{want}, resp.ValidationErrors); diff != "" {
		t.Errorf("validation errors (-want +got):\n%s", diff)
	}
}

// TestJobMaxCount: a job may have so many members, also after scaling.
func TestJobMaxCount(t *testing.T) {
	c := start(t, devnomad.Options{}, 0, "a")
	const want = "total count was greater than configured job_max_count: 50001 > 50000"
	big := job("big", api.JobTypeBatch, 50_001, "true")
	if _, _, err := c.Client().Jobs().Register(big, nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("register gave %v", err)
	}
	register(t, c, job("small", api.JobTypeBatch, 1, "true"))
	if _, _, err := c.Client().Jobs().Scale("small", "g", new(50_001), "", false, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("scale gave %v", err)
	}
}
