package model

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckQueues(t *testing.T) {
	tests := map[string]struct {
		queues []Queue
		want   []string // every fault
	}{
		"a tree": {[]Queue{
			{Path: "org", Guarantee: map[string]int{"gpu": 8}, Weight: 2, Default: true},
			{Path: "org/a", Guarantee: map[string]int{"gpu": 4, "gpu/H100": 4}, Borrow: map[string]int{"gpu": 0}, ReclaimFrom: []string{"org/b"}},
			{Path: "org/b", Guarantee: map[string]int{"gpu/A100": 2}, Reclaim: "none", Priorities: map[string]int{"high": 90}},
		}, nil},
		"values": {[]Queue{{
			Path: "org//a", Guarantee: map[string]int{"gpus": 1, "gpu": -1}, Borrow: map[string]int{"gpu/": 1}, PerUser: map[string]int{"cpu_mhz": MaxQuantity + 1},
			Weight: -1, Priorities: map[string]int{"": 1, "low": -1}, Reclaim: "all", MinRun: -1, History: map[string]float64{"gpu": -1, "x": 1},
		}}, []string{
			`0 path: "org//a": want a path such as "org/team", of letters, digits, ".", "_" and "-", at most 16 deep`,
			`0 guarantee["gpu"]: -1: want 0 to 1125899906842624`,
			`0 guarantee["gpus"]: is no resource: want "gpu", "gpu/MODEL", "cpu_mhz" or "memory_mib"`,
			`0 borrow["gpu/"]: is no resource: want "gpu", "gpu/MODEL", "cpu_mhz" or "memory_mib"`,
			`0 per_user["cpu_mhz"]: 1125899906842625: want 0 to 1125899906842624`,
			`0 guarantee: 0 GPUs by model: want at most the -1 of "gpu"`,
			`0 weight: -1: want more than 0, at most 1e+06`,
			`0 priorities[""]: 1: want a name, and 0 to 32767`, `0 priorities["low"]: -1: want a name, and 0 to 32767`,
			`0 reclaim: "all": want "siblings" or "none"`, `0 min_run_ns: -1ns: want 0s or more`,
			`0 history["gpu"]: -1: want a resource, and 0 or more`, `0 history["x"]: 1: want a resource, and 0 or more`,
		}},
		"no number": {[]Queue{{Path: "a", Weight: math.NaN()}}, []string{`0 weight: NaN: want more than 0, at most 1e+06`}},
		"models are more than all": {[]Queue{{Path: "a", Guarantee: map[string]int{"gpu": 3, "gpu/A": 2, "gpu/B": 2}}},
			[]string{`0 guarantee: 4 GPUs by model: want at most the 3 of "gpu"`}},
		"twice, two defaults": {[]Queue{{Path: "a", Default: true}, {Path: "a"}, {Path: "b", Default: true}},
			[]string{`1 path: "a": another queue before it has this path; want each queue once`, `2 default: true: queue "a" is the default already; want one`}},
		"sums, through a queue that names nothing": {[]Queue{
			{Path: "org/t/x", Guarantee: map[string]int{"gpu": 3}}, {Path: "org", Guarantee: map[string]int{"gpu": 4}},
			{Path: "org/t", Guarantee: map[string]int{"cpu_mhz": 5}}, {Path: "org/u", Guarantee: map[string]int{"gpu/A": 2}},
		}, []string{`1 guarantee["gpu"]: 4: the queues below are guaranteed 5 together; want at least that`}},
		"who reclaims": {[]Queue{
			{Path: "org", ReclaimFrom: []string{"org/a", "org", "nobody"}}, {Path: "org/a", Reclaim: "none", ReclaimFrom: []string{"b"}}, {Path: "b"},
		}, []string{
			`0 reclaim_from[0]: "org/a": want a queue that is neither this one nor above or below it: nobody reclaims from himself`,
			`0 reclaim_from[1]: "org": want a queue that is neither this one nor above or below it: nobody reclaims from himself`,
			`0 reclaim_from[2]: "nobody": is none of the queues`, `1 reclaim_from: ["b"]: want none, since reclaim is "none"`,
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range CheckQueues(tt.queues) {
				got = append(got, fmt.Sprintf("%d %s: %s", f.Queue, f.Field, f.Text))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}
