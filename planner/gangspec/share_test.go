package gangspec_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
)

func TestShare(t *testing.T) {
	constraint := func(left, operand, right string) []*api.Constraint {
		return []*api.Constraint{{LTarget: left, Operand: operand, RTarget: right}}
	}
	const slice = "nvidia/gpu/NVIDIA A100 SHARED 1of4"
	tests := map[string]struct {
		share, device string
		count         int
		constraints   []*api.Constraint
		want          string
		fault         string
	}{
		"unless it says so":          {"", "nvidia/gpu", 1, nil, "", ""},
		"never":                      {"never", "nvidia/gpu", 1, nil, "", ""},
		"allowed":                    {"allow", "nvidia/gpu", 1, nil, model.SharedAllow, ""},
		"only":                       {"only", "nvidia/gpu", 1, nil, model.SharedOnly, ""},
		"by the device's name":       {"", slice, 1, nil, model.SharedOnly, ""},
		"by a constraint":            {"", "gpu", 1, constraint("${device.attr.shared_slices}", "<=", "4"), model.SharedOnly, ""},
		"by memory":                  {"allow", "gpu", 1, constraint("40 GiB", "<=", "${device.attr.shared_memory}"), model.SharedOnly, ""},
		"by a constraint against it": {"", "gpu", 1, constraint("${device.attr.shared_slices}", "is_not_set", ""), "", ""},
		"several, by name":           {"", slice, 2, nil, "", `task "t" of group "a": count of device "nvidia/gpu/NVIDIA A100 SHARED 1of4" = "2": allowed is 1 for a slice of a shared GPU; several slices are not several GPUs`},
		"only several":               {"only", "nvidia/gpu", 2, nil, model.SharedOnly, `task "t" of group "a": count of device "nvidia/gpu" = "2": allowed is 1 for a slice of a shared GPU; several slices are not several GPUs`},
		"several allowed":            {"allow", "nvidia/gpu", 2, nil, "", `job: caravan_share = "allow": every device block asks for several GPUs, and slices are given to those that ask for one; leave it out, or ask for one`},
		"nothing":                    {"allow", "", 0, nil, "", `job: caravan_share = "allow": no task asks for a device; add a device block, or leave it out`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			task := gpuTask("docker", tt.device, uint64(max(tt.count, 1)))
			task.Name = "t"
			task.Resources.Devices[0].Constraints = tt.constraints
			if tt.device == "" {
				task.Resources.Devices = nil
			}
			job := gpuJob("batch", group("a", 1, task))
			if tt.share != "" {
				job.Meta = map[string]string{"caravan_share": tt.share}
			}
			spec, err := gangspec.Parse(job)
			got := ""
			if err != nil {
				got = strings.TrimPrefix(err.Error(), "read the job's caravan settings: ")
			}
			if d := cmp.Diff(tt.fault, got); d != "" {
				t.Errorf("fault (-want +got):\n%s", d)
			}
			for _, d := range gangspec.ToModel(job, spec).Groups[0].Devices {
				if d.Shared != tt.want {
					t.Errorf("shared %q, want %q", d.Shared, tt.want)
				}
			}
		})
	}
}
