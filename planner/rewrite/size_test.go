package rewrite_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// pod is a cluster of 16,384 nodes of 8 GPUs in blocks of 512 nodes, with a
// gang that takes n whole nodes of one block or, with part, half of each.
func pod(n int, part bool) (*api.Job, []model.Member, *rewrite.Cluster) {
	const size = 16384
	var nodes []rewrite.Node
	for i := range size {
		nodes = append(nodes, rewrite.Node{ID: nodeID(i), GPUs: 8, Meta: map[string]string{"caravan_block": fmt.Sprint("b", i/512)}})
	}
	ask := 8
	if part {
		ask = 4
	}
	var members []model.Member
	for i := range n {
		var uuids []string
		for g := range ask {
			uuids = append(uuids, fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", i, g))
		}
		members = append(members, model.Member{Group: "w", Index: i, Rank: i, Node: nodeID(512 + i), GPUs: uuids})
	}
	return job("batch", "job", group("w", n, ask)), members, rewrite.NewCluster(nodes, []string{"caravan_block"})
}

func bodyBytes(t testing.TB, j *api.Job) int {
	t.Helper()
	data, err := json.Marshal(api.JobRegisterRequest{Job: j})
	if err != nil {
		t.Fatal(err)
	}
	return len(data)
}

// TestPinSize holds what Nomad must store: every allocation carries the whole
// job, so the body of a 512-member pin is stored 512 times.
func TestPinSize(t *testing.T) {
	for _, test := range []struct {
		part  bool
		limit int
	}{{false, 8 << 10}, {true, 110 << 10}} {
		orig, members, c := pod(512, test.part)
		pinned, err := rewrite.Pin(orig, members, c)
		if err != nil {
			t.Fatal(err)
		}
		got := bodyBytes(t, pinned)
		t.Logf("512 members of 16,384 nodes, half nodes %v: body of %d bytes (unpinned %d)", test.part, got, bodyBytes(t, orig))
		if got > test.limit {
			t.Errorf("half nodes %v: body of %d bytes, want at most %d", test.part, got, test.limit)
		}
		if len(pinned.TaskGroups) != 1 {
			t.Errorf("half nodes %v: %d groups, want 1", test.part, len(pinned.TaskGroups))
		}
	}
}

func BenchmarkPin(b *testing.B) {
	for _, part := range []bool{false, true} {
		b.Run(fmt.Sprintf("members=512/nodes=16384/part=%v", part), func(b *testing.B) {
			orig, members, c := pod(512, part)
			size := 0
			for b.Loop() {
				pinned, err := rewrite.Pin(orig, members, c)
				if err != nil {
					b.Fatal(err)
				}
				size = len(pinned.TaskGroups)
			}
			pinned, err := rewrite.Pin(orig, members, c)
			if err != nil || size == 0 {
				b.Fatal(err)
			}
			b.ReportMetric(float64(bodyBytes(b, pinned)), "body-bytes")
		})
	}
}
