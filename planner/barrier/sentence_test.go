package barrier_test

import (
	"testing"

	"github.com/caravan-sched/caravan/planner/barrier"
)

func TestSummaries(t *testing.T) {
	member := func(step, age int64, rate float64) barrier.MemberStatus {
		m := barrier.MemberStatus{}
		if step > 0 {
			m.Step = &step
		}
		if age > 0 {
			m.CheckpointAgeMS = &age
		}
		if rate > 0 {
			m.Throughput = &rate
		}
		return m
	}
	running := func(members ...barrier.MemberStatus) barrier.Status {
		return barrier.Status{Phase: "running", Members: members}
	}
	tests := map[string]struct {
		gangs []barrier.Status
		want  string
	}{
		"none":                      {nil, ""},
		"it waits":                  {[]barrier.Status{{Phase: "waiting", Reason: "waiting for gang: 1 of 2 joined, gpu-4 missing"}}, "waiting for gang: 1 of 2 joined, gpu-4 missing"},
		"it tells nothing":          {[]barrier.Status{running(member(0, 0, 0))}, ""},
		"the slowest and oldest":    {[]barrier.Status{running(member(12, 1000, 30), member(11, 65_000, 99))}, "step 11, 30/s, checkpoint 1m5s ago"},
		"no checkpoint":             {[]barrier.Status{running(member(12, 0, 0))}, "step 12, no checkpoint yet"},
		"a checkpoint is all":       {[]barrier.Status{running(member(0, 2000, 0))}, "checkpoint 2s ago"},
		"it is suspended":           {[]barrier.Status{{Phase: "suspended", Reason: "by an operator"}}, "suspended: by an operator"},
		"it has failed":             {[]barrier.Status{{Phase: "failed"}}, "failed"},
		"one gang of several tells": {[]barrier.Status{{Gang: "a", Phase: "failed"}, {Gang: "b", Phase: "running"}}, "a: failed"},
		"a gang that is one group":  {[]barrier.Status{{Gang: "a", Phase: "failed"}}, "failed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := barrier.Summaries(tt.gangs); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
