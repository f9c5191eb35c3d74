package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/record"
)

func TestUnseenNamespaces(t *testing.T) {
	const both = `namespace "*" { capabilities = ["list-jobs", "read-job"] }`
	noDefault := func(path, ns string) bool { return ns == "default" && path != "vars" }
	tests := map[string]struct {
		token      *api.ACLToken
		policies   map[string]string
		namespaces []string
		denied     func(path, namespace string) bool
		want       []Unseen
	}{
		"ACLs are off":       {denied: noDefault},
		"a management token": {token: &api.ACLToken{Type: "management"}, denied: noDefault},
		"everything is seen": {token: &api.ACLToken{Type: "client"}, namespaces: []string{"default", "team"}},
		"a listed namespace": {
			token: &api.ACLToken{Type: "client"}, namespaces: []string{"default", "team"},
			denied: func(_, ns string) bool { return ns == "team" },
			want:   []Unseen{{"team", []string{"list-jobs", "read-job"}}},
		},
		"ACLs off, as newer Nomads say it": {token: &api.ACLToken{AccessorID: "acls-disabled", Type: "client"}},
		"default, which is not even listed": {
			token: &api.ACLToken{Type: "client"}, denied: func(path, ns string) bool { return ns == "default" && path == "allocations" },
			want: []Unseen{{"default", []string{"read-job"}}},
		},
		"no rule for all": {
			token: &api.ACLToken{Type: "client"}, namespaces: []string{"default"},
			denied: func(path, ns string) bool { return ns != "default" && ns != "*" && path == "jobs" },
			want:   []Unseen{{"*", []string{"list-jobs"}}},
		},
		"a namespace that a rule hides": {
			token: &api.ACLToken{Type: "client", Policies: []string{"p", "unreadable"}}, namespaces: []string{"default"},
			policies: map[string]string{"p": both + "\nnamespace \"secret\" {\n policy = \"deny\"\n}"},
			denied:   func(_, ns string) bool { return ns == "secret" },
			want:     []Unseen{{"secret", []string{"list-jobs", "read-job"}}},
		},
		"a pattern that a rule hides": {
			token: &api.ACLToken{Type: "client", Policies: []string{"p"}}, namespaces: []string{"default"},
			policies: map[string]string{"p": both + "\nnamespace \"x-*\" {\n policy = \"deny\"\n}"},
			denied:   func(_, ns string) bool { return strings.HasPrefix(ns, "x-") },
			want:     []Unseen{{"x-*", []string{"list-jobs", "read-job"}}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.token, f.policies, f.namespaces, f.denied = test.token, test.policies, test.namespaces, test.denied
			v := refresh(t, f.observer(t))
			if diff := cmp.Diff(test.want, v.Unseen); diff != "" {
				t.Errorf("unseen (-want +got):\n%s", diff)
			}
			if (v.Blind() != "") != (len(test.want) > 0) || len(v.Warnings) != len(test.want) {
				t.Errorf("blind = %q, warnings = %v", v.Blind(), v.Warnings)
			}
			if off := test.token == nil || test.token.AccessorID == "acls-disabled"; v.ACLsOff != off {
				t.Errorf("ACLs are off: %v, want %v", v.ACLsOff, off)
			}
			for i, u := range test.want {
				if !strings.Contains(v.Blind(), u.String()) || !strings.Contains(v.Warnings[i].Text, u.String()) {
					t.Errorf("%q or %q does not tell of %s", v.Blind(), v.Warnings[i].Text, u)
				}
			}
		})
	}
}

// What may be hidden is not taken for gone: its records stay, and a job that
// cannot be read does not hide the rest of the cluster.
func TestUnseenJobsAreNotGone(t *testing.T) {
	f := newFake(t)
	f.token, f.namespaces = &api.ACLToken{Type: "client"}, []string{"default"}
	f.putNode(node("a", 1))
	f.putJob(gpuJob("known", 1, 1))
	f.putRecord(&record.Record{Namespace: "team", JobID: "hidden", SpecHash: "h", Phase: record.PhaseRunning, Original: gpuJob("hidden", 1, 1)})
	f.denied = func(path, ns string) bool {
		return ns == "team" || path == "job/known" && ns == "default" || ns == "default" && path == "allocations"
	}
	v := refresh(t, f.observer(t))
	if len(v.Orphans) > 0 || len(v.Nodes) != 1 || len(v.Unseen) != 2 {
		t.Errorf("orphans = %v, %d nodes, unseen = %v; want none, one, and the namespaces default and team", v.Orphans, len(v.Nodes), v.Unseen)
	}
}

// Rights are looked at again when namespaces change, after a refusal, and
// when some time has passed; not at every look.
func TestRightsAreLookedAtNowAndThen(t *testing.T) {
	f := newFake(t)
	f.token, f.namespaces = &api.ACLToken{Type: "client"}, []string{"default"}
	now := time.Unix(1000, 0)
	o := f.observer(t)
	o.now = func() time.Time { return now }
	looks := func() int { return f.count("acl/token/self") }
	unseen := func(v *View) int { return len(v.Unseen) }
	if refresh(t, o); looks() != 1 {
		t.Fatalf("%d looks at first, want 1", looks())
	}
	f.mu.Lock()
	f.denied = func(_, ns string) bool { return ns == "team" }
	f.mu.Unlock()
	if v := refresh(t, o); looks() != 1 || unseen(v) != 0 {
		t.Errorf("%d looks after nothing happened, want no more", looks())
	}
	f.change("namespaces", func(uint64) { f.namespaces = append(f.namespaces, "team") })
	if v := refresh(t, o); looks() != 2 || unseen(v) != 1 {
		t.Errorf("%d looks after a namespace came, %d unseen; want 2 and 1", looks(), unseen(v))
	}
	f.mu.Lock()
	f.denied = func(path, _ string) bool { return path == "nodes" }
	f.mu.Unlock()
	if _, err := o.Refresh(t.Context()); err == nil {
		t.Error("a refusal is no error")
	}
	f.mu.Lock()
	f.denied = nil
	f.mu.Unlock()
	if v := refresh(t, o); looks() != 3 || unseen(v) != 0 {
		t.Errorf("%d looks after a refusal, %d unseen; want 3 and none", looks(), unseen(v))
	}
	now = now.Add(rightsPeriod)
	f.mu.Lock()
	f.denied = func(_, ns string) bool { return ns == "team" }
	f.mu.Unlock()
	if v := refresh(t, o); looks() != 4 || unseen(v) != 1 {
		t.Errorf("%d looks after a while, %d unseen; want 4 and 1", looks(), unseen(v))
	}
	now = now.Add(blindPeriod)
	if refresh(t, o); looks() != 5 {
		t.Errorf("%d looks soon after something was lacking, want 5", looks())
	}
}
