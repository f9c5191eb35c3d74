package core

import (
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Who holds no GPU is in the way of a member only where there are GPUs enough for it,
// as what lacks is then something else.
func TestWhoHoldsANode(t *testing.T) {
	web := func(mib int) model.Alloc {
		return model.Alloc{ID: "w", Job: "web", Node: "n1", Resources: model.Resources{MemoryMiB: mib}}
	}
	tests := map[string]struct {
		cluster, jobs string
		memory        int // of a member of the last job
		beside        []model.Alloc
		want          string
	}{
		"GPUs lack":                     {"b1 r1 n1 aaab", "M 1x4", 0, []model.Alloc{web(10)}, "n1 has room (a holds 3 GPUs, b holds 1 GPU)"},
		"GPUs lack for one member":      {"b1 r1 n1 aaa.", "M 2x2", 0, []model.Alloc{web(10)}, "n1 has room (a holds 3 GPUs)"},
		"GPUs lack, and memory":         {"b1 r1 n1 aaab", "M 1x4", 7000, []model.Alloc{web(7000)}, "n1 has room (a holds 3 GPUs, b holds 1 GPU)"},
		"memory lacks":                  {"b1 r1 n1 a...", "M 1x3", 7000, []model.Alloc{web(7000)}, "n1 has room (a holds 1 GPU, web holds no GPU)"},
		"memory lacks, nobody has GPUs": {"b1 r1 n1 ....", "M 1x3", 7000, []model.Alloc{web(7000)}, "n1 has room (web holds no GPU)"},
		"of a member without GPUs":      {"b1 r1 n1 aaaa", "M 1x0", 7000, []model.Alloc{web(7000)}, "n1 has room (a holds 4 GPUs, web holds no GPU)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			submit(t, s, tt.jobs)
			s.Jobs[len(s.Jobs)-1].Groups[0].Resources.MemoryMiB = tt.memory
			s.Allocs = append(s.Allocs, tt.beside...)
			if got := decision(t, s, "M").Reason; !strings.Contains(got, "; it can start when "+tt.want+";") {
				t.Errorf("told: %s\nwant it to start when %s", got, tt.want)
			}
		})
	}
}
