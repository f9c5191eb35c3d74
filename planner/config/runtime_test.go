package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestParsePolicy(t *testing.T) {
	want := Default().Policy
	want.Order, want.Preempt.Enabled = "fairshare", false
	tests := map[string]struct {
		src     string
		want    Policy
		wantErr []string
	}{
		"a policy":         {src: "policy {\n  order = \"fairshare\"\n  preempt {\n    enabled = false\n  }\n}\n", want: want},
		"the inside alone": {src: "order = \"fairshare\"\npreempt {\n  enabled = false\n}\n", want: want},
		"a fault inside":   {src: "order = \"best\"\n", wantErr: []string{"set.hcl:1: policy.order is \"best\""}},
		"all defaults":     {src: "policy {}\n", want: Default().Policy},
		"nothing":          {src: "", wantErr: []string{"set.hcl: 0 policy blocks: want 1"}},
		"twice":            {src: "policy {}\npolicy {}\n", wantErr: []string{"set.hcl:2: policy is there twice, first in line 1: keep one"}},
		"something else": {
			src: "listen {}\nobserve_only = true\npolicy {}\n", wantErr: []string{"set.hcl:1: listen: want policy blocks and nothing else", "set.hcl:2: observe_only: want policy blocks"},
		},
		"every fault": {
			src: "policy {\n  order = \"best\"\n  max_holds = -1\n}\n", wantErr: []string{"set.hcl:2: policy.order is \"best\"", "set.hcl:3: policy.max_holds is -1"},
		},
		"no HCL": {src: "policy {", wantErr: []string{"set.hcl:1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePolicy([]byte(test.src), "set.hcl", Default().Levels)
			checkFaults(t, err, test.wantErr)
			if diff := cmp.Diff(test.want, got); test.wantErr == nil && diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseQueues(t *testing.T) {
	tests := map[string]struct {
		src     string
		want    []model.Queue
		wantErr []string
	}{
		"queues":         {src: "queue \"b\" {}\nqueue \"a\" {\n  weight = 2\n}\n", want: []model.Queue{{Path: "a", Weight: 2}, {Path: "b"}}},
		"none":           {src: ""},
		"a policy":       {src: "policy {}\n", wantErr: []string{"set.hcl:1: policy: want queue blocks and nothing else"}},
		"another file":   {src: "queues_file = \"x\"\n", wantErr: []string{"set.hcl:1: queues_file: want queue blocks"}},
		"a wrong weight": {src: "queue \"a\" {\n  weight = -2\n}\n", wantErr: []string{"set.hcl:2", "weight"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseQueues([]byte(test.src), "set.hcl")
			checkFaults(t, err, test.wantErr)
			if diff := cmp.Diff(test.want, got); test.wantErr == nil && diff != "" {
				t.Errorf("queues (-want +got):\n%s", diff)
			}
		})
	}
}

func checkFaults(t *testing.T, err error, want []string) {
	t.Helper()
	if (err != nil) != (want != nil) {
		t.Fatalf("error %v: want %q", err, want)
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error lacks %q:\n%v", text, err)
		}
	}
}
