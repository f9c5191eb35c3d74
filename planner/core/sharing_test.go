package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/together"
)

// inSlices makes what is drawn as islands of two and more GPUs that are shared, with
// 80,000 MiB each; islands of one are whole GPUs.
func inSlices(s *model.Snapshot) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		size := map[int]int{}
		for k := range n.GPUs {
			size[n.GPUs[k].Island]++
		}
		for k := range n.GPUs {
			g := &n.GPUs[k]
			if slices := size[g.Island]; slices > 1 {
				g.Parent, g.Slices, g.SharedMiB = fmt.Sprintf("%s-%d", n.ID, g.Island), slices, 80000
				g.Model, g.Island = fmt.Sprintf("H100 SHARED 1of%d", slices), 100+k
			}
		}
	}
}

// Series of minutes: by day, by night, and at no time in particular.
var (
	byDay   = []int{60, 60, 60, 60, 60, 5, 5, 5, 5, 5}
	byNight = []int{5, 5, 5, 5, 5, 60, 60, 60, 60, 60}
	little  = []int{20, 10, 20, 10, 20, 10, 20, 10, 20, 10}
)

// uses gives jobs a usage: "a 30000 day", one in a line.
func uses(t *testing.T, s *model.Snapshot, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		var id, when string
		var memory int
		if strings.TrimSpace(line) == "" {
			continue
		}
		if _, err := fmt.Sscan(line, &id, &memory, &when); err != nil {
			t.Fatalf("usage %q: %v", line, err)
		}
		minutes := map[string][]int{"day": byDay, "night": byNight, "little": little}[when]
		for i := range s.Jobs {
			if s.Jobs[i].ID == id {
				s.Jobs[i].Usage = &model.Usage{MemoryMiB: memory, Busy: together.Calm(minutes), Minutes: minutes, Samples: 10}
			}
		}
	}
}

func takeSlices(s *model.Snapshot, how string) {
	for i := range s.Jobs {
		for k := range s.Jobs[i].Groups {
			for d := range s.Jobs[i].Groups[k].Devices {
				s.Jobs[i].Groups[k].Devices[d].Shared = how
			}
		}
	}
}

func TestSharing(t *testing.T) {
	tests := map[string]struct {
		cluster, jobs, uses string
		shared              string
		want                string
		reason              map[string]string
	}{
		"only who says so": {
			cluster: "b1 r1 n1 ...|...", jobs: "P 1x1",
			want:   "b1 r1 n1 ...|...",
			reason: map[string]string{"P": "not even an empty one; refused are 1 node (no such device)"},
		},
		"never several for one request": {
			cluster: "b1 r1 n1 ...|...", jobs: "P 1x2", shared: model.SharedOnly,
			want:   "b1 r1 n1 ...|...",
			reason: map[string]string{"P": "no such device"},
		},
		"slices before whole GPUs": {
			cluster: "b1 r1 n1 .|...|.", jobs: "P 1x1\nQ 1x1", shared: model.SharedAllow,
			want:   "b1 r1 n1 .|PQ.|.",
			reason: map[string]string{"P": "on 1 slice of 3 of GPU n1-1, alone for now", "Q": "beside P: expected are 53332 of 80000 MiB, and 66 % of the time busy"},
		},
		"slices before whole GPUs, on another node too": {
			cluster: "b1 r1 n1 .|a\nb1 r1 n2 ...|...", jobs: "P 1x1", shared: model.SharedAllow,
			want: "b1 r1 n1 .|a\nb1 r1 n2 P..|...",
		},
		"whole GPUs when no slice is left": {
			cluster: "b1 r1 n1 .|aaa|.", jobs: "P 1x1\nQ 1x1", shared: model.SharedAllow,
			want: "b1 r1 n1 P|aaa|Q",
		},
		"never a whole GPU": {
			cluster: "b1 r1 n1 .|aaa|.", jobs: "P 1x1", shared: model.SharedOnly,
			want: "b1 r1 n1 .|aaa|.",
		},
		"unknown ones fit up to the last slice": {
			cluster: "b1 r1 n1 aaa|#b.", jobs: "P 1x1\nQ 1x1", shared: model.SharedOnly,
			want: "b1 r1 n1 aaa|#bP",
		},
		"beside who is busy at other times": {
			cluster: "b1 r1 n1 a..|b..|...", jobs: "P 1x1", shared: model.SharedOnly,
			uses:   "a 10000 day\nb 10000 night\nP 10000 day",
			want:   "b1 r1 n1 a..|bP.|...",
			reason: map[string]string{"P": "beside b: expected are 20000 of 80000 MiB, and 65 % of the time busy; they are not busy at the same times (correlation -1.00 at most)"},
		},
		"an idle GPU rather than one that is busy at the same times": {
			cluster: "b1 r1 n1 a..|b..|...", jobs: "P 1x1", shared: model.SharedOnly,
			uses: "a 10000 day\nb 10000 day\nP 10000 day",
			want: "b1 r1 n1 a..|b..|P..",
		},
		"of another node": {
			cluster: "b1 r1 n1 a..|b..\nb1 r1 n2 c..", jobs: "P 1x1", shared: model.SharedOnly,
			uses: "a 10000 day\nb 10000 day\nc 10000 little\nP 10000 day",
			want: "b1 r1 n1 a..|b..\nb1 r1 n2 cP.",
		},
		"not where the memory is not enough": {
			cluster: "b1 r1 n1 a..|b..", jobs: "P 1x1", shared: model.SharedOnly,
			uses: "a 50000 night\nb 20000 little\nP 50000 day",
			want: "b1 r1 n1 a..|bP.",
		},
		"waits where nothing is enough": {
			cluster: "b1 r1 n1 a..|b..", jobs: "P 1x1", shared: model.SharedOnly,
			uses:   "a 50000 night\nb 60000 little\nP 50000 day",
			want:   "b1 r1 n1 a..|b..",
			reason: map[string]string{"P": "n1 has 2 slices of GPU n1-0 free, but with it expected are 100000 of 80000 MiB, and 65 % of the time busy; it is expected to take 50000 MiB and to be busy 60 % of the time, by 10 measurements"},
		},
		"waits where two would be busy at the same times": {
			cluster: "b1 r1 n1 a..", jobs: "P 1x1", shared: model.SharedOnly,
			uses:   "a 10000 day\nP 10000 day",
			want:   "b1 r1 n1 a..",
			reason: map[string]string{"P": "n1 has 2 slices of GPU n1-0 free, but with it expected are 20000 of 80000 MiB, and 120 % of the time busy"},
		},
		"members count beside each other": {
			cluster: "b1 r1 n1 ....|....", jobs: "P 4x1", shared: model.SharedOnly,
			uses: "P 30000 little",
			want: "b1 r1 n1 PP..|PP..",
		},
		"a gang for which there is not enough waits whole": {
			cluster: "b1 r1 n1 ....|....", jobs: "P 5x1", shared: model.SharedOnly,
			uses: "P 30000 little",
			want: "b1 r1 n1 ....|....",
		},
		"a sick GPU has no slices": {
			cluster: "b1 r1 n1 xxx|...", jobs: "P 1x1", shared: model.SharedOnly,
			want: "b1 r1 n1 xxx|P..",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			inSlices(s)
			submit(t, s, tt.jobs)
			takeSlices(s, tt.shared)
			uses(t, s, tt.uses)
			plan := mustDecide(t, s, Policy{})
			checkPlan(t, s, plan)
			for _, fault := range sharedFaults(s, plan) {
				t.Error(fault)
			}
			if diff := cmp.Diff(trimLines(tt.want), redrawShared(s, plan)); diff != "" {
				t.Errorf("placements (-want +got):\n%s", diff)
			}
			for job, want := range tt.reason {
				at := slices.IndexFunc(plan.Decisions, func(d model.Decision) bool { return d.Job == job })
				if !strings.Contains(plan.Decisions[at].Reason, want) {
					t.Errorf("%s: reason %q lacks %q", job, plan.Decisions[at].Reason, want)
				}
			}
		})
	}
}

// redrawShared draws what became of shared GPUs.
func redrawShared(s *model.Snapshot, plan *model.Plan) string {
	drawn := *s
	drawn.Nodes = nil
	for _, n := range s.Nodes {
		gpus, island := append([]model.GPU(nil), n.GPUs...), -1
		for k := range gpus {
			if k == 0 || gpus[k].Parent == "" || n.GPUs[k].Parent != n.GPUs[k-1].Parent {
				island++
			}
			gpus[k].Island = island
		}
		n.GPUs = gpus
		drawn.Nodes = append(drawn.Nodes, n)
	}
	return redraw(&drawn, plan)
}

// sharedFaults verifies that nobody is on a shared GPU against his will, and that no
// GPU on which something was placed is expected to be overloaded.
func sharedFaults(s *model.Snapshot, plan *model.Plan) (faults []string) {
	users, placed := map[string][]*model.Usage{}, map[string]bool{}
	gpus := map[string]*model.GPU{}
	for i := range s.Nodes {
		for k := range s.Nodes[i].GPUs {
			gpus[s.Nodes[i].GPUs[k].UUID] = &s.Nodes[i].GPUs[k]
		}
	}
	usage := map[string]*model.Job{}
	for i := range s.Jobs {
		usage[s.Jobs[i].ID] = &s.Jobs[i]
	}
	for _, a := range s.Allocs {
		for _, id := range a.GPUs {
			if g := gpus[id]; g.Slices > 0 {
				var u *model.Usage
				if j := usage[a.Job]; j != nil {
					u = j.Usage
				}
				users[g.Parent] = append(users[g.Parent], u)
			}
		}
	}
	for _, d := range plan.Decisions {
		for _, m := range d.Members {
			for _, id := range m.GPUs {
				g, j := gpus[id], usage[d.Job]
				how := j.Groups[0].Devices[0].Shared
				if g.Slices > 0 && (how == "" || len(m.GPUs) > 1) || g.Slices == 0 && how == model.SharedOnly {
					faults = append(faults, fmt.Sprintf("%s (%q) was given %s", d.Job, how, id))
				}
				if g.Slices > 0 {
					users[g.Parent] = append(users[g.Parent], j.Usage)
					placed[g.Parent] = true
				}
			}
		}
	}
	for _, g := range gpus {
		if gpu := (together.GPU{Slices: g.Slices, MemoryMiB: g.SharedMiB}); placed[g.Parent] && !gpu.Fits(gpu.Load(users[g.Parent])) {
			faults = append(faults, fmt.Sprintf("GPU %s is overloaded: %+v", g.Parent, gpu.Load(users[g.Parent])))
		}
	}
	return faults
}

// Whatever is drawn: nobody is on a slice against his will, no GPU is overloaded,
// and the order of the snapshot's lists does not matter.
// Who waits for a slice of a node keeps none of its whole GPUs from others, and who
// waits for these none of its slices; nor is either told of those who hold the others.
func TestWaitingKeepsItsKindOfGPU(t *testing.T) {
	for name, tt := range map[string]struct{ cluster, jobs, slice, want, reason string }{
		"for a slice": {"b1 r1 n1 b|.|.|aaa", "P 1x1\nQ 1x2", "P", "b1 r1 n1 bQQaaa",
			"needs 1 member with 1 GPU; node b1/r1/n1 comes nearest with 0 GPUs free; it can start when n1 has room (a holds 3 GPUs); kept for it: n1"},
		"for whole ones": {"b1 r1 n1 b|.|...", "P 1x2\nR 1x1\nQ 1x1", "Q", "b1 r1 n1 b.Q..",
			"needs 1 member with 2 GPUs; node b1/r1/n1 comes nearest with 1 GPU free; it can start when n1 has room (b holds 1 GPU); kept for it: n1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			inSlices(s)
			submit(t, s, tt.jobs)
			for i := range s.Jobs {
				if s.Jobs[i].ID == tt.slice {
					s.Jobs[i].Groups[0].Devices[0].Shared = model.SharedOnly
				}
			}
			plan := mustDecide(t, s, Policy{})
			if got := strings.ReplaceAll(redraw(s, plan), "|", ""); strings.TrimSpace(got) != tt.want {
				t.Errorf("placed\n%s, want\n%s", got, tt.want)
			}
			if got := decisionOn(plan, "P").Reason; got != tt.reason {
				t.Errorf("P %s\nwant %s", got, tt.reason)
			}
		})
	}
}

func TestSharingProperty(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var text strings.Builder
		for n := range rapid.IntRange(1, 4).Draw(r, "nodes") {
			fmt.Fprintf(&text, "b1 r%d n%d ", n%2, n)
			for i := range rapid.IntRange(1, 4).Draw(r, "GPUs") {
				if i > 0 {
					text.WriteByte('|')
				}
				for range rapid.IntRange(1, 4).Draw(r, "slices") {
					text.WriteString(rapid.SampledFrom([]string{".", ".", ".", "a", "b", "#", "x"}).Draw(r, "slice"))
				}
			}
			text.WriteByte('\n')
		}
		s := draw(t, text.String())
		inSlices(s)
		var jobs strings.Builder
		for k := range rapid.IntRange(1, 6).Draw(r, "jobs") {
			fmt.Fprintf(&jobs, "J%d %dx%d gang:%s\n", k, rapid.IntRange(1, 3).Draw(r, "members"), rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(r, "gpus"), rapid.SampledFrom([]string{"job", "none"}).Draw(r, "gang"))
		}
		submit(t, s, jobs.String())
		for i := range s.Jobs {
			j := &s.Jobs[i]
			for k := range j.Groups {
				j.Groups[k].Devices[0].Shared = rapid.SampledFrom([]string{"", model.SharedAllow, model.SharedOnly}).Draw(r, "shared")
			}
			if rapid.Bool().Draw(r, "known") {
				j.Usage = &model.Usage{MemoryMiB: rapid.IntRange(0, 90000).Draw(r, "memory"), Busy: rapid.IntRange(0, 100).Draw(r, "busy"), Samples: 1}
				if rapid.Bool().Draw(r, "measured") {
					j.Usage.Minutes = rapid.SliceOfN(rapid.IntRange(0, 100), 8, 8).Draw(r, "minutes")
				}
			}
		}
		policy := rapid.SampledFrom([]Policy{{}, {Order: "besteffort"}, {Order: "caravan", Backfill: queue.Backfill{Mode: "conservative", DefaultDuration: time.Hour}}}).Draw(r, "policy")
		plan := mustDecide(t, s, policy)
		for _, fault := range planFaults(s, plan) {
			r.Fatal(fault)
		}
		for _, fault := range sharedFaults(s, plan) {
			r.Fatal(fault)
		}
		mixed := *s
		mixed.Jobs, mixed.Allocs, mixed.Nodes = slices.Clone(s.Jobs), slices.Clone(s.Allocs), slices.Clone(s.Nodes)
		rng := rand.New(rand.NewPCG(1, 2))
		rng.Shuffle(len(mixed.Jobs), func(a, b int) { mixed.Jobs[a], mixed.Jobs[b] = mixed.Jobs[b], mixed.Jobs[a] })
		rng.Shuffle(len(mixed.Allocs), func(a, b int) { mixed.Allocs[a], mixed.Allocs[b] = mixed.Allocs[b], mixed.Allocs[a] })
		rng.Shuffle(len(mixed.Nodes), func(a, b int) { mixed.Nodes[a], mixed.Nodes[b] = mixed.Nodes[b], mixed.Nodes[a] })
		if diff := cmp.Diff(plan, mustDecide(t, &mixed, policy)); diff != "" {
			r.Fatalf("another order gives another plan:\n%s", diff)
		}
		// What is learned meanwhile counts as if it had been known.
		before := *s
		before.Jobs = slices.Clone(s.Jobs)
		for i := range before.Jobs {
			before.Jobs[i].Usage = nil
		}
		prepared, err := Prepare(&before, policy)
		if err != nil {
			r.Fatal(err)
		}
		prepared.Decide(s.Now)
		if err := prepared.Apply(Change{PutJobs: s.Jobs}); err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(plan, prepared.Decide(s.Now)); diff != "" {
			r.Fatalf("what is learned later gives another plan:\n%s", diff)
		}
	})
}
