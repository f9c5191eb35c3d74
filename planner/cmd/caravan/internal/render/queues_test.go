package render

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestQueues(t *testing.T) {
	var out strings.Builder
	if err := Queues(&out, []model.QueueUse{
		{Path: "org", Guaranteed: map[string]int{"gpu": 64}, Used: map[string]int{"gpu": 48, "cpu_mhz": 7}, Waiting: 2, WaitingGPUs: 24, Share: 0.375},
		{Path: "org/team", Guaranteed: map[string]int{"gpu": 32, "gpu/H100": 16}, Limit: map[string]int{"gpu": 48, "cpu_mhz": 1000}, Used: map[string]int{"gpu": 40, "cpu_mhz": 7}, BorrowedGPUs: 8, Share: 0.156},
	}); err != nil {
		t.Fatal(err)
	}
	want := `QUEUE     GUARANTEED  USED  BORROWED  LIMIT  WAITING      SHARE  OTHERS
org       64          48    0         -      2 (24 GPUs)  0.38
org/team  32          40    8         48     -            0.16   cpu_mhz 7 of 1000, H100 0 of 16
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	out.Reset()
	if err := Queues(&out, []model.QueueUse{{Path: "org", Guaranteed: map[string]int{"gpu": 8}, Used: map[string]int{"gpu": 24}, BorrowedGPUs: 16, Share: 1.82}}); err != nil {
		t.Fatal(err)
	}
	want = `QUEUE  GUARANTEED  USED  BORROWED  LIMIT  WAITING  SHARE  OTHERS
org    8           24    16        -      -        1.82

SHARE is what a queue uses now and what it has used on average of late, added up, by
its weight: over 1 it is more than the cluster has, since the past counts too.
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("more than the cluster (-want +got):\n%s", diff)
	}
	out.Reset()
	if err := Queues(&out, nil); err != nil || out.String() != "No queue is configured.\n" {
		t.Errorf("without queues: %q, %v", out.String(), err)
	}
}
