package config

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestRegions(t *testing.T) {
	doc, err := os.ReadFile("../../docs/regions.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```hcl config\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	if len(blocks) != 1 {
		t.Fatalf("docs/regions.md has %d configurations, want 1", len(blocks))
	}
	got, err := parse([]byte(blocks[0][1]), "regions.md", noEnv, noRead)
	if err != nil {
		t.Fatal(err)
	}
	want := []model.Region{
		{Name: "eu", Price: map[string]float64{"NVIDIA H100 80GB HBM3": 2.6}, Carbon: 250, Data: []string{"imagenet", "laion"}},
		{Name: "us", Price: map[string]float64{"NVIDIA H100 80GB HBM3": 2.1}, Carbon: 380, Data: []string{"laion"}},
	}
	if diff := cmp.Diff(want, got.Regions); diff != "" {
		t.Errorf("regions (-want +got):\n%s", diff)
	}
}

func TestFederationExample(t *testing.T) {
	doc, err := os.ReadFile("../../docs/regions.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```hcl federation\n(.*?)```").FindStringSubmatch(string(doc))
	if block == nil {
		t.Fatal("docs/regions.md has no example of a federation")
	}
	got, err := parse([]byte(block[1]), "regions.md", noEnv, noRead)
	if err != nil || !cmp.Equal(got.Federation, []string{"eu", "us"}) || got.Nomad.Region != "eu" {
		t.Errorf("federation %q from region %q, %v; want eu and us from eu", got.Federation, got.Nomad.Region, err)
	}
}

func TestRegionFaults(t *testing.T) {
	src := `
region "eu" { carbon = -1 }
region "eu" {}
region "us" {
  price = { "H100" = -2 }
  data  = [""]
}`
	_, err := parse([]byte(src), "f", noEnv, noRead)
	if err == nil {
		t.Fatal("no fault found")
	}
	for _, want := range []string{`region[eu].carbon`, "grams of CO2", "region[eu] is there twice: keep one", "region[us].price", "region[us].data"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

func TestFederation(t *testing.T) {
	got, err := parse([]byte(`
nomad { region = "us" }
federation { regions = ["eu", "us"] }`), "f", noEnv, noRead)
	if err != nil || !cmp.Equal(got.Federation, []string{"eu", "us"}) {
		t.Errorf("federation %q, %v; want eu and us", got.Federation, err)
	}
	tests := map[string]struct{ src, want string }{
		"one region":        {`federation { regions = ["eu"] }`, "want two or more"},
		"none":              {`federation {}`, "want two or more"},
		"twice":             {`federation { regions = ["eu", "eu"] }`, "the region is there twice"},
		"no name":           {`federation { regions = ["eu", "a b"] }`, "want the name of a Nomad region"},
		"own region":        {`federation { regions = ["eu", "us"] }`, "which of its regions nomad.address is in: eu, us"},
		"region not listed": {"nomad { region = \"x\" }\nfederation { regions = [\"eu\", \"us\"] }", "nomad.region"},
		"level":             {"levels = [\"rack\"]\nfederation { regions = [\"eu\", \"us\"] }", `the outermost level is "region"`},
	}
	for name, test := range tests {
		if _, err := parse([]byte(test.src), "f", noEnv, noRead); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q in it", name, err, test.want)
		}
	}
}
