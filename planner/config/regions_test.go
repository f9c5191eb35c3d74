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
	got, err := Parse([]byte(blocks[0][1]), "regions.md", noEnv, noRead)
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

func TestRegionFaults(t *testing.T) {
	src := `
region "eu" { carbon = -1 }
region "eu" {}
region "us" {
  price = { "H100" = -2 }
  data  = [""]
}`
	_, err := Parse([]byte(src), "f", noEnv, noRead)
	if err == nil {
		t.Fatal("no fault found")
	}
	for _, want := range []string{`region[eu].carbon`, "grams of CO2", "the block is there twice", "region[us].price", "region[us].data"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}
