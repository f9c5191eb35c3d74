package cli

import (
	"strings"
	"testing"
)

// Flags that would change nothing are refused, all at once.
func TestFlagsThatOthersMakeVoid(t *testing.T) {
	path := writeFile(t, "trace.csv", smallTrace())
	whole := writeFile(t, "whole.hcl", "nodes \"dgx\" {\n  count = 2\n  gpus  = 8\n  model = \"H100\"\n}\n")
	auto := writeFile(t, "auto.hcl", "nodes \"dgx\" {\n  count = 2\n  gpus  = 8\n  model = \"H100\"\n  mig = \"auto\"\n}\n")
	shared := writeFile(t, "shared.hcl", "nodes \"dgx\" {\n  count = 2\n  gpus  = 8\n  model = \"L40S\"\n  sharing {\n    slices = 4\n  }\n}\n")
	simulate := []string{"simulate", "--trace", path, "--seeds", "1"}
	tests := map[string]struct {
		args []string
		want []string
	}{
		"a size beside a file":              {[]string{"--cluster", whole, "--gpus", "64", "--gpus-per-node", "8"}, []string{"--gpus beside --cluster " + whole, "--gpus-per-node beside --cluster"}},
		"a size that is the default":        {[]string{"--cluster", whole, "--gpus", "256"}, []string{"--gpus beside --cluster"}},
		"repairs of what never fails":       {[]string{"--repair", "60"}, []string{"--repair without --failures"}},
		"parts of equal nodes":              {[]string{"--divide", "20", "--interference", "0.5"}, []string{"--divide without --cluster", "--interference without --cluster"}},
		"parts of a file without":           {[]string{"--cluster", whole, "--divide", "20", "--interference", "0.5"}, []string{"none of whose nodes divides", "none of whose GPUs is shared"}},
		"dividing what is shared":           {[]string{"--cluster", shared, "--divide", "20"}, []string{"none of whose nodes divides"}},
		"disturbing instances":              {[]string{"--cluster", auto, "--interference", "0.5"}, []string{"none of whose GPUs is shared"}},
		"a network that is left out":        {[]string{"--even-speed", "--oversubscription", "2,4", "--elastic-speed", "model"}, []string{"--oversubscription beside --even-speed", "--elastic-speed model beside --even-speed"}},
		"half a network":                    {[]string{"--gpus", "16", "--oversubscription", "2"}, []string{"--oversubscription: 1 numbers: want two"}},
		"flags of a study":                  {[]string{"--quick", "--out", "x", "--trace-dir", "y", "--evaluation", "z", "--only", "cost"}, []string{"--quick without --compare", "--out without", "--trace-dir without", "--evaluation without", "--only without"}},
		"a study with flags of one":         {[]string{"--compare", "--load", "0.9", "--gpus", "64"}, []string{"--load beside --compare", "--gpus beside --compare", "--trace beside --compare", "--seeds beside"}},
		"pools for who buys nothing":        {[]string{"--policies", "k8s-default@oracle,k8s-quota", "--pools", path}, []string{"--pools beside --policies k8s-default@oracle,k8s-quota, none of which buys nodes"}},
		"a policy twice":                    {[]string{"--policies", "gang,fifo,gang"}, []string{"policy gang is there twice: want each once"}},
		"throughputs and shards of a list":  {[]string{"--throughputs", path, "--shards-per-gpu", "4"}, []string{"--throughputs beside --format csv", "--shards-per-gpu beside --format csv"}},
		"a unit of Slurm":                   {[]string{"--format", "sacct", "--time-unit", "ms"}, []string{"--time-unit ms beside --format sacct"}},
		"one kind of several is none":       {[]string{"--compare", "--only", "cost,luck"}, []string{`--only "luck": want some of headline, traces`}},
		"an events' size beside a file":     {[]string{"--cluster", whole, "--gpus", "64"}, []string{"--gpus beside --cluster"}},
		"an events' trace that is not said": {[]string{"--no-bootstrap", "--strict", "--max-jobs", "5", "--format", "itp", "--seed", "2"}, []string{"--no-bootstrap without --trace", "--strict without", "--max-jobs without", "--format without", "--seed without --results"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			args := append(append([]string{}, simulate...), test.args...)
			switch {
			case strings.HasPrefix(name, "an events'"):
				args = append([]string{"trace", "check-events", path}, test.args...)
			case strings.HasPrefix(name, "one kind"):
				args = append([]string{"simulate"}, test.args...)
			}
			got := newFakePlanner(t).call(nil, "", args...)
			if got.code != CodeUsage || got.out != "" {
				t.Errorf("exit code %d, want %d:\n%s%s", got.code, CodeUsage, got.out, got.errOut)
			}
			for _, want := range test.want {
				if !strings.Contains(got.errOut, want) {
					t.Errorf("it lacks %q:\n%s", want, got.errOut)
				}
			}
		})
	}
}
