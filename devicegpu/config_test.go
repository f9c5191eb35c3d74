package devicegpu

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// TestConfigKeys: the schema and the struct have the same keys and defaults.
func TestConfigKeys(t *testing.T) {
	var tags []string
	for field := range fields[config]() {
		tags = append(tags, field)
	}
	slices.Sort(tags)
	keys := slices.Sorted(maps.Keys(configSchema().GetObject().GetAttributes()))
	if d := cmp.Diff(tags, keys); d != "" {
		t.Errorf("struct (-) and schema (+):\n%s", d)
	}
	raw, err := hclspec.Encode(configSchema(), nil, "test")
	if err != nil {
		t.Fatal(err)
	}
	var got config
	if err := (base.Config{Raw: raw}).Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := defaultConfig()
	want.IgnoredGPUIDs, want.IgnoredXIDs, want.IgnoredFaults, want.MockMIG, want.Sharing = []string{}, []int64{}, []string{}, []string{}, []sharing{}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("defaults in Go (-) and in the schema (+):\n%s", d)
	}
}

func fields[T any]() func(func(string) bool) {
	return func(yield func(string) bool) {
		typ := reflect.TypeFor[T]()
		for i := range typ.NumField() {
			if !yield(typ.Field(i).Tag.Get("codec")) {
				return
			}
		}
	}
}

func TestSetConfigRefuses(t *testing.T) {
	p := New(hclog.NewNullLogger())
	err := configure(t, p, `
		source = "mock:dgx2"
		fingerprint_period = "soon"
		ignored_xids = [94, 0]
		ignored_faults = ["nvlink", "lost"]
		ignored_gpu_ids = ["GPU-1", " GPU-2"]
		mig = "maybe"`)
	for _, want := range []string{`source = "mock:dgx2": allowed are nvml, mock:dgxa100`, `fingerprint_period = "soon"`, `ignored_gpu_ids[1] = " GPU-2"`, "ignored_xids[1] = 0", `ignored_faults[1] = "lost": allowed are ecc, fabric`, `mig = "maybe": allowed are fixed, auto`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	err = configure(t, p, `
		source = "mock:dgxh100"
		mig = "auto"
		planner_addresses = ["10.0.0.1:4656", "https://p:4656/x"]
		planner_cert_file = "/c"`)
	for _, want := range []string{`planner_addresses[0] = "10.0.0.1:4656": want http://HOST:PORT`, `planner_addresses[1]`, `planner_cert_file = "/c", planner_key_file = "": want both or none`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	err = configure(t, p, `
		source = "mock:dgxh100"
		sharing {
		  slices     = 1
		  count      = -1
		  memory_mib = -5
		  mps_pipe   = "nvidia-mps"
		  gpus       = ["GPU-1", ""]
		  models     = [" H100"]
		}
		sharing { slices = 33 }`)
	for _, want := range []string{"sharing[0].slices = 1: want 2 to 32", "sharing[0].count = -1", "sharing[0].memory_mib = -5", `sharing[0].mps_pipe = "nvidia-mps": want the absolute path`, `sharing[0].gpus[1] = ""`, `sharing[0].models[0] = " H100"`, "sharing[1].slices = 33"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if err := configure(t, p, `source = "file:/does/not/exist"`); err == nil || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("error %v", err)
	}
}
