package complaints

import (
	"context"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/devicegpu"
	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// beforeFingerprint asks a plugin for GPUs that nobody has asked to look.
func beforeFingerprint(t *testing.T) {
	p := devicegpu.New(hclog.NewNullLogger())
	raw, err := hclspec.Encode(p.ConfigSchema(), []byte("source = \"mock:dgxh100\"\nmock_seed = \"n\""), "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SetConfig(context.Background(), base.Config{Raw: raw}); err != nil {
		t.Fatal(err)
	}
	source, err := nvml.Open(nvml.Spec{Source: "mock:dgxh100", Seed: "n"})
	if err != nil {
		t.Fatal(err)
	}
	inv, err := source.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{inv.Matrix.GPUs[2].UUID, inv.Matrix.GPUs[5].UUID}
	r, err := p.Reserve(context.Background(), ids)
	if err != nil {
		t.Fatalf("reserve before the first fingerprint: %v", err)
	}
	for _, id := range ids {
		if !strings.Contains(r.Env["CUDA_VISIBLE_DEVICES"], id) {
			t.Errorf("the task's environment %v lacks GPU %s", r.Env, id)
		}
	}
	if _, err := p.Reserve(context.Background(), []string{ids[0], "GPU-none"}); err == nil || !strings.Contains(err.Error(), "GPU-none") {
		t.Errorf("reserve a GPU that is not there: %v; want an error that names it", err)
	}
}
