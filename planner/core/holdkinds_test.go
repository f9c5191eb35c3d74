package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// a waits for the small instance, and b gets the large one. c waits for the small one, too, which
// shows what of the node nobody needs: what b has got in this plan is none of that, so d waits.
func TestWhatIsKeptOfANodeGivesNothingTwice(t *testing.T) {
	s := drawMIG(t, "-n1 3g.40gb+2g.20gb+1g.10gb#")
	askMIG(t, s, "a 1x1g.10gb gang\nb 1x3g.40gb gang\nc 1x1g.10gb gang\nd 1x3g.40gb gang")
	for i := range s.Jobs {
		s.Jobs[i].Duration = time.Minute
	}
	runOn(t, s, "r 1h n1.0/2")
	got := map[string]string{}
	for _, d := range mustDecide(t, s, Policy{}).Decisions {
		for _, m := range d.Members {
			got[d.Job] = m.GPUs[0]
		}
	}
	if diff := cmp.Diff(map[string]string{"b": "n1.0/0"}, got); diff != "" {
		t.Errorf("other instances (-want +got):\n%s", diff)
	}
}

// Whatever is kept for whom, no instance is given to two jobs, or to one while another has it.
func TestNoInstanceIsGivenTwice(tb *testing.T) {
	given, waited := 0, 0
	rapid.Check(tb, func(t *rapid.T) {
		for range 20 {
			g, w := giveInstances(tb, t)
			given, waited = given+g, waited+w
		}
	})
	if tb.Logf("%d got one, %d waited", given, waited); given == 0 || waited == 0 {
		tb.Error("want some who get an instance, and some who wait")
	}
}

func giveInstances(tb testing.TB, t *rapid.T) (given, waited int) {
	nodes := rapid.SampledFrom([]string{"-n1 3g.40gb+2g.20gb+1g.10gb", "-n1 . 3g.40gb+2g.20gb+1g.10gb\n-n2 2g.20gb+1g.10gb+1g.10gb", "n1 . 3g.40gb+3g.40gb\n-n2 3g.40gb+1g.10gb"}).Draw(t, "nodes")
	profiles := []string{"3g.40gb", "2g.20gb", "1g.10gb"}
	minutes := func() time.Duration { return time.Duration(rapid.IntRange(1, 90).Draw(t, "minutes")) * time.Minute }
	s, held := drawMIG(tb, nodes), map[string]string{}
	for i := range s.Nodes {
		for k := range s.Nodes[i].GPUs {
			gpu := s.Nodes[i].GPUs[k].UUID
			if rapid.IntRange(0, 2).Draw(t, "held") == 0 {
				continue
			}
			held[gpu] = "on " + gpu
			s.Allocs = append(s.Allocs, model.Alloc{ID: held[gpu], Node: s.Nodes[i].ID, GPUs: []string{gpu}})
			runOn(tb, s, fmt.Sprintf("on-%s %s %s", strings.ReplaceAll(gpu, "/", "-"), minutes(), gpu))
		}
	}
	for i := range rapid.IntRange(2, 7).Draw(t, "jobs") {
		askMIG(tb, s, string(rune('a'+i))+" 1x"+rapid.SampledFrom(profiles).Draw(t, "profile")+" gang any")
		s.Jobs[len(s.Jobs)-1].Duration = minutes()
	}
	policy := Policy{Order: rapid.SampledFrom(queue.Orders()).Draw(t, "order"), Strict: rapid.IntRange(0, 5).Draw(t, "strict") == 0}
	policy.Backfill.Mode = rapid.SampledFrom([]string{"", queue.BackfillEasy, queue.BackfillConservative}).Draw(t, "backfill")
	plan, err := Decide(s, policy)
	if err != nil {
		t.Fatal(err)
	}
	for i := range plan.Decisions {
		d := &plan.Decisions[i]
		if d.Action != model.ActionAdmit {
			waited++
			continue
		}
		for _, gpu := range d.Members[0].GPUs {
			if other := held[gpu]; other != "" {
				t.Fatalf("%s has %s, and %s is to have it", other, gpu, d.Job)
			}
			held[gpu] = d.Job
			given++
		}
	}
	return given, waited
}
