package config

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// examples are the document's HCL blocks by what they are.
func examples(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile("../../docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, m := range regexp.MustCompile("(?s)```hcl (\\w+)\n(.*?)```").FindAllStringSubmatch(string(b), -1) {
		out[m[1]] = append(out[m[1]], m[2])
	}
	return out
}

func TestOperatorsDocument(t *testing.T) {
	all := examples(t)
	for kind, want := range map[string]int{"agent": 1, "policy": 1, "config": 3, "topology": 1} {
		if len(all[kind]) != want {
			t.Errorf("the document has %d examples of kind %s, want %d", len(all[kind]), kind, want)
		}
	}
	for i, src := range all["config"] {
		if _, err := parse([]byte(src), "operators.md", noEnv, noRead); err != nil {
			t.Errorf("configuration %d: %v", i, err)
		}
	}
	for _, src := range all["topology"] {
		top, err := ParseTopology([]byte(src), "operators.md", testLevels)
		if err != nil || len(top.Places) != 21 {
			t.Errorf("topology file: %v, %+v; want 21 nodes", err, top)
		}
	}
	for _, kind := range []string{"agent", "policy"} {
		for _, src := range all[kind] {
			if _, diags := hclsyntax.ParseConfig([]byte(src), kind, hcl.InitialPos); diags.HasErrors() {
				t.Error(diags)
			}
		}
	}
}

// The reference shows the defaults, so it must give the default configuration.
func TestReferenceShowsDefaults(t *testing.T) {
	reference := examples(t)["config"][1]
	got, err := parse([]byte(reference), "operators.md", noEnv, noRead)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Managed.ExemptNamespaces, want.Managed.ExemptNodePools = []string{}, []string{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the reference (-want +got):\n%s", diff)
	}
}

func TestPolicyFileIsTheDocumentsOne(t *testing.T) {
	b, err := os.ReadFile("../../dist/acl/caravan-planner.policy.hcl")
	if err != nil {
		t.Fatal(err)
	}
	comment := regexp.MustCompile(`(?m)^#.*\n`)
	if diff := cmp.Diff(examples(t)["policy"][0], comment.ReplaceAllString(string(b), "")); diff != "" {
		t.Errorf("policy (-document +file):\n%s", diff)
	}
	if _, diags := hclsyntax.ParseConfig(b, "policy", hcl.InitialPos); diags.HasErrors() {
		t.Error(diags)
	}
}

// Every order has its place in the document on policies, and the parameters
// shown there are read.
func TestPoliciesDocument(t *testing.T) {
	b, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range queue.Orders() {
		if !strings.Contains(string(b), "\n## `"+order+"`\n") || !strings.Contains(string(b), "\n| `"+order+"` |") {
			t.Errorf("order %q has no section, or no line in the table", order)
		}
	}
	for _, m := range regexp.MustCompile("(?s)```hcl policy\n(.*?)```").FindAllStringSubmatch(string(b), -1) {
		if _, err := parse([]byte("policy {\n"+m[1]+"}\n"), "policies.md", noEnv, noRead); err != nil {
			t.Error(err)
		}
	}
}

// The settings shown in the document on elastic gangs are read, and those of
// elastic and replace are the defaults.
func TestElasticDocument(t *testing.T) {
	b, err := os.ReadFile("../../docs/elastic.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```hcl\n(.*?)```").FindAllStringSubmatch(string(b), -1)
	if len(examples) != 3 {
		t.Fatalf("%d examples, want 3", len(examples))
	}
	for _, m := range examples {
		got, err := parse([]byte(m[1]), "elastic.md", noEnv, noRead)
		if err != nil {
			t.Fatal(err)
		}
		if got.Policy.Elastic != defaultElastic() || got.Policy.Replace.KeepFor != queue.DefaultKeepFor || got.Policy.Preempt.MaxAtOnce != preempt.DefaultMaxAtOnce {
			t.Errorf("not the defaults: %+v, %+v", got.Policy.Elastic, got.Policy.Replace)
		}
	}
}
