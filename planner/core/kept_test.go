package core

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// muddle changes a snapshot as people and faults do: lists in another order,
// something twice, somebody who holds what he cannot.
func muddle(t *rapid.T, s *model.Snapshot) {
	switch rapid.IntRange(0, 9).Draw(t, "muddle") {
	case 0:
		s.Jobs = rapid.Permutation(s.Jobs).Draw(t, "jobs")
	case 1:
		s.Nodes = rapid.Permutation(s.Nodes).Draw(t, "nodes")
	case 2:
		s.Allocs = rapid.Permutation(s.Allocs).Draw(t, "allocs")
	case 3:
		if len(s.Jobs) > 0 {
			s.Jobs = slices.Insert(slices.Clone(s.Jobs), rapid.IntRange(0, len(s.Jobs)).Draw(t, "at"), rapid.SampledFrom(s.Jobs).Draw(t, "twice"))
		}
	case 4:
		if len(s.Allocs) > 0 {
			s.Allocs = slices.Insert(slices.Clone(s.Allocs), rapid.IntRange(0, len(s.Allocs)).Draw(t, "at"), rapid.SampledFrom(s.Allocs).Draw(t, "twice"))
		}
	case 5:
		s.Jobs = append(slices.Clone(s.Jobs), model.Job{ID: "broken", State: "lost"})
	}
}

// What is kept from one snapshot to the next decides, and refuses, as what is
// made anew.
func TestKeptIsDecide(t *testing.T) {
	followed, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s, policy := anyContest(t), anyPolicy(t)
		if rapid.Bool().Draw(t, "queues") {
			anyQueues(t, s)
		}
		var kept Kept
		for round := range 5 {
			before := kept.prepared
			got, err := kept.Decide(s, policy)
			want, wantErr := Decide(s, policy)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("round %d: %v, want %v", round, err, wantErr)
			}
			if err != nil {
				refused++
				s = anyContest(t)
				continue
			}
			if diff := cmp.Diff(encoded(t, want), encoded(t, got)); diff != "" {
				t.Fatalf("round %d: plans (-fresh +kept):\n%s", round, diff)
			}
			if before != nil && before == kept.prepared {
				followed++
			}
			if rapid.IntRange(0, 3).Draw(t, "verify") == 0 {
				if _, err := kept.Verify(got); err != nil {
					t.Fatal(err)
				}
			}
			ch := anyChange(t, s, want, round)
			anyTurns(t, s, &ch)
			if rapid.IntRange(0, 3).Draw(t, "has rest") == 0 {
				ch.Rest = anyRest(t, s)
			}
			if rapid.IntRange(0, 3).Draw(t, "has policy") == 0 {
				policy = anyPolicy(t)
			}
			now := s.Now.Add(time.Minute)
			s = ch.apply(s)
			s.Now = now
			muddle(t, s)
		}
	})
	t.Logf("followed %d times, refused %d times", followed, refused)
	if followed == 0 || refused == 0 {
		t.Error("want some of both")
	}
}

func TestVerifyFindsWhatDiverged(t *testing.T) {
	s := draw(t, `b1 r1 n1 ..
	              b1 r1 n2 ..`)
	submit(t, s, "a 1x2\nb 1x2")
	var kept Kept
	plan, err := kept.Decide(s, Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Verify(plan); err != nil {
		t.Fatal(err)
	}
	wrong := *plan
	wrong.Decisions = slices.Clone(plan.Decisions)
	wrong.Decisions[1].Reason = "placed elsewhere"
	fresh, err := kept.Verify(&wrong)
	if !errors.Is(err, ErrDiverged) {
		t.Fatalf("Verify: %v, want ErrDiverged", err)
	}
	if diff := cmp.Diff(plan, fresh); diff != "" {
		t.Errorf("plan instead (-want +got):\n%s", diff)
	}
	want := "the kept state of the cluster has diverged: decision 1 is on b (admit: placed elsewhere), and on b (admit: " + plan.Decisions[1].Reason + ") when everything is looked at anew"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestCompareLists(t *testing.T) {
	type thing struct{ id, value string }
	list := func(text string) (out []thing) {
		for _, c := range text {
			out = append(out, thing{id: string(c)})
		}
		return out
	}
	tests := map[string]struct {
		from, to  []thing
		put, drop string
		twice     bool
	}{
		"the same":          {from: list("abc"), to: list("abc")},
		"one is gone":       {from: list("abc"), to: list("ac"), drop: "b"},
		"one has come":      {from: list("abc"), to: list("abxc"), put: "x"},
		"the last is gone":  {from: list("abc"), to: list("ab"), drop: "c"},
		"one after another": {from: list("abc"), to: list("axc"), put: "x", drop: "b"},
		"one has moved":     {from: list("abcd"), to: list("bcda"), put: "a", drop: "a"},
		"other way round":   {from: list("abc"), to: list("cba"), put: "ba", drop: "ab"},
		"another value":     {from: list("ab"), to: []thing{{"a", ""}, {"b", "new"}}, put: "b"},
		"a new one twice":   {from: list("a"), to: list("abb"), put: "bb"},
		"an old one twice":  {from: list("ab"), to: list("aba"), put: "a", twice: true},
		"all is new":        {to: list("ab"), put: "ab"},
		"all is gone":       {from: list("ab"), drop: "ab"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, once := compareLists(tt.from, tt.to, func(x *thing) string { return x.id }, func(id string) bool {
				return slices.ContainsFunc(tt.from, func(x thing) bool { return x.id == id })
			})
			put, drop := "", ""
			for _, x := range got.put {
				put += x.id
			}
			for _, id := range got.drop {
				drop += id
			}
			if put != tt.put || drop != tt.drop || once == tt.twice {
				t.Errorf("put %q, drop %q, each once %t; want %q, %q, %t", put, drop, once, tt.put, tt.drop, !tt.twice)
			}
		})
	}
}
