package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

// Validate finds what Nomad refuses of a job by itself.
func TestValidateKnowsNomadsRules(t *testing.T) {
	tests := map[string]struct {
		change [2]string
		args   []string
		want   string
	}{
		"priority":             {[2]string{`type = "batch"`, "type = \"batch\"\n  priority = 1000"}, nil, "job: priority = 1000: allowed is 1 to 100"},
		"priority, raised":     {[2]string{`type = "batch"`, "type = \"batch\"\n  priority = 1000"}, []string{"--max-priority=2000"}, ""},
		"priority 0":           {[2]string{`type = "batch"`, "type = \"batch\"\n  priority = 0"}, nil, "job: priority = 0: allowed is 1 to 100"},
		"type":                 {[2]string{`type = "batch"`, `type = "cron"`}, nil, `job: type = "cron": allowed is service, batch, system, sysbatch`},
		"ID":                   {[2]string{`job "train-gang"`, `job "a b/c"`}, nil, `job: id = "a b/c": it must not hold blanks`},
		"count":                {[2]string{`count = var.members`, `count = 50001`}, nil, "job: count = 50001 in all groups together: allowed is at most 50000"},
		"count, raised":        {[2]string{`count = var.members`, `count = 50001`}, []string{"--max-count=0"}, ""},
		"count of no cluster":  {[2]string{`count = var.members`, `count = 9223372036854775807`}, []string{"--max-count=0"}, `group "g": count = "9223372036854775807": allowed is at most 1048576`},
		"no device":            {[2]string{`count = var.gpus[0]`, `count = 0`}, nil, `count of device "nvidia/gpu" = "0": allowed is 1 or more`},
		"regular expression":   {[2]string{`type = "batch"`, "type = \"batch\"\n  constraint {\n    attribute = \"${node.unique.name}\"\n    operator = \"regexp\"\n    value = \"gpu-(\"\n  }"}, nil, `job: constraint on ${node.unique.name}: value = "gpu-(": allowed is a regular expression`},
		"version of a device":  {[2]string{`count = var.gpus[0]`, "count = 1\n  affinity {\n    attribute = \"${device.attr.driver_version}\"\n    operator = \"version\"\n    value = \"new\"\n  }"}, nil, `device "nvidia/gpu" of task "t" of group "g": affinity on ${device.attr.driver_version}: value = "new": allowed is a version constraint`},
		"everything is well":   {[2]string{}, nil, ""},
		"config of a task":     {[2]string{`driver = "raw_exec"`, "driver = \"caravan\"\n      config {\n        command = \"x\"\n        processes = -1\n      }"}, nil, `task "t" of group "g": config.processes = "-1": allowed is 0 to 4096`},
		"task without driver":  {[2]string{`driver = "raw_exec"`, ``}, nil, `task "t" of group "g": driver: one must be named`},
		"task named like path": {[2]string{`task "t"`, `task "a/b"`}, nil, `task "a/b" of group "g": the name must not hold slashes`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFakePlanner(t)
			text := strings.Replace(jobFileText, tc.change[0], tc.change[1], 1)
			got := f.call(nil, text, append([]string{"validate", "-"}, tc.args...)...)
			switch {
			case tc.want == "" && got.code != CodeOK:
				t.Errorf("code %d\n%s", got.code, got.out)
			case tc.want != "" && (got.code != CodeFailure || !strings.Contains(got.out, tc.want)):
				t.Errorf("code %d, output lacks %q:\n%s", got.code, tc.want, got.out)
			}
		})
	}
}

// A file that cannot be read does not hide the faults of the others.
func TestValidateGoesOn(t *testing.T) {
	bad := writeFile(t, "bad.hcl", strings.Replace(jobFileText, "train-gang", "a b", 1))
	good := writeFile(t, "good.hcl", jobFileText)
	f := newFakePlanner(t)
	got := f.call(nil, "", "validate", bad, "/no/such/file.hcl", good)
	if got.code != CodeFailure || got.errOut != "" {
		t.Errorf("code %d, %s", got.code, got.errOut)
	}
	for _, want := range []string{`job: id = "a b"`, "open /no/such/file.hcl: no such file", `good.hcl: job "train-gang" is valid`} {
		if !strings.Contains(got.out, want) {
			t.Errorf("output lacks %q:\n%s", want, got.out)
		}
	}
	var out []checked
	if err := json.Unmarshal([]byte(f.call(nil, "", "validate", "--json", bad, "/no/such/file.hcl", good).out), &out); err != nil {
		t.Fatal(err)
	}
	if len(out) != 3 || out[0].OK || out[1].OK || !out[2].OK || out[1].File != "/no/such/file.hcl" || len(out[1].Faults) != 1 {
		t.Errorf("JSON: %+v", out)
	}
}
