package queue

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func gpus(n int) map[string]int { return map[string]int{"gpu": n} }

// orgTree: org is guaranteed 10, its teams a and b 4 each, other has nothing.
func orgTree() *Tree {
	return NewTree([]model.Queue{
		{Path: "org", Guarantee: gpus(10), Priorities: map[string]int{"high": 90, "low": 10}},
		{Path: "org/a", Guarantee: gpus(4), Borrow: gpus(3), PerUser: gpus(5), Priorities: map[string]int{"high": 95}},
		{Path: "org/b", Guarantee: gpus(4)},
		{Path: "other", Default: true},
	}, []string{"H100"})
}

func TestHomeOf(t *testing.T) {
	type home struct {
		Queue string
		Known bool
	}
	tree := orgTree()
	for path, want := range map[string]home{
		"org/a": {"org/a", true}, "org/a/alice": {"org/a", true}, "org": {"org", true}, "org/c": {"org", false},
		"nobody": {"other", false}, "": {"other", true}, "organ/a": {"other", false}, "org/:": {"org", false},
	} {
		h := tree.HomeOf(&model.Job{Queue: path})
		if diff := cmp.Diff(want, home{tree.Name(h), h.Known}); diff != "" {
			t.Errorf("%q (-want +got):\n%s", path, diff)
		}
	}
	if h := NewTree([]model.Queue{{Path: "x"}}, nil); h.Name(h.HomeOf(&model.Job{Queue: "y"})) != FallbackQueue {
		t.Error("without a default queue jobs of unknown ones are not in the fallback's")
	}
}

func TestPriority(t *testing.T) {
	tree := orgTree()
	tests := []struct {
		queue, class string
		want         int
	}{{"org/a", "high", 95}, {"org/a/alice", "low", 10}, {"org/b", "high", 90}, {"org/b", "none", 50}, {"other", "high", 50}, {"org/a", "", 50}}
	for _, tt := range tests {
		if got := tree.Priority(&model.Job{Queue: tt.queue, PriorityClass: tt.class, Priority: 50}); got != tt.want {
			t.Errorf("%s %q: %d, want %d", tt.queue, tt.class, got, tt.want)
		}
	}
}

func TestLedger(t *testing.T) {
	type use struct {
		queue string
		gpus  int
		never bool
	}
	tests := map[string]struct {
		used    []use
		ask     use
		class   int
		refused string
		borrows int
	}{
		"within its guarantee":         {nil, use{"org/a", 4, true}, 0, "", 0},
		"from its parent":              {nil, use{"org/a", 5, false}, 1, "", 1},
		"from its parent, never":       {nil, use{"org/a/x", 5, true}, 1, "asks never to be preempted, which queue org/a grants within its guarantee only, and of that 0 of 4 GPUs are held so; it needs 5; set another caravan_preempt, or have the guarantee raised", 1},
		"beyond all":                   {[]use{{"org/b", 8, false}}, use{"org/a", 5, false}, 3, "", 1},
		"within, though others borrow": {[]use{{"org/b", 12, false}}, use{"org/a", 4, false}, 0, "", 0},
		"a user's cap":                 {[]use{{"org/a/x", 1, false}}, use{"org/a/x", 5, false}, 1, "user x of queue org/a: in use are 1 of at most 5 GPUs; the job needs 5; it can start when 1 are given back", 2},
		"another user":                 {[]use{{"org/a/x", 1, false}}, use{"org/a/y", 5, false}, 1, "", 2},
		"the borrowing limit":          {[]use{{"org/a/x", 5, false}}, use{"org/a/y", 3, false}, 1, "queue org/a uses 4 of 4 GPUs guaranteed, borrows 1 of 3; the job needs 3; it can start when 1 are given back", 3},
		"never so many":                {nil, use{"org/a/y", 8, false}, 1, "user y of queue org/a: in use are 0 of at most 5 GPUs; the job needs 8; it never may have so many: ask for fewer, or have the limit raised", 4},
		"in the parent itself":         {nil, use{"org", 2, true}, 0, "", 0},
		"what its teams leave":         {nil, use{"org", 3, false}, 1, "", 1},
		"without a guarantee":          {nil, use{"other", 1, false}, 3, "", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tree := orgTree()
			l := NewLedger(tree)
			for _, u := range tt.used {
				l.Charge(tree.HomeOf(&model.Job{Queue: u.queue}), tree.Amount(u.gpus, 0, 0), u.never)
			}
			h, ask := tree.HomeOf(&model.Job{Queue: tt.ask.queue}), tree.Amount(tt.ask.gpus, 0, 0)
			if got := l.Class(h, ask); got != tt.class {
				t.Errorf("class %d, want %d", got, tt.class)
			}
			refused := ""
			if r := l.Check(h, ask, tt.ask.never); r != nil {
				refused = r.String()
			}
			if diff := cmp.Diff(tt.refused, refused); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
			l.Charge(h, ask, tt.ask.never)
			if got := l.Borrowed(h, ask); got != tt.borrows {
				t.Errorf("borrows %d, want %d", got, tt.borrows)
			}
		})
	}
}

// A job that is never to be preempted is told so, and not of a limit, where it could
// not start even if its queue gave everything back; nothing is kept for it then.
func TestNeverBeyondTheGuarantee(t *testing.T) {
	tests := map[string]struct {
		queue      model.Queue
		used, asks int
		want       string
	}{
		"nothing is guaranteed": {model.Queue{Path: "q", Borrow: gpus(2)}, 2, 1,
			"asks never to be preempted, which queue q grants within its guarantee only, and of that 0 of 0 GPUs are held so; it needs 1; set another caravan_preempt, or have the guarantee raised"},
		"the guarantee is too small": {model.Queue{Path: "q", Guarantee: gpus(2), Borrow: gpus(4)}, 4, 3,
			"asks never to be preempted, which queue q grants within its guarantee only, and of that 0 of 2 GPUs are held so; it needs 3; set another caravan_preempt, or have the guarantee raised"},
		"the guarantee is enough": {model.Queue{Path: "q", Guarantee: gpus(2), Borrow: gpus(2)}, 4, 2,
			"queue q uses 2 of 2 GPUs guaranteed, borrows 2 of 2; the job needs 2; it can start when 2 are given back"},
		"the limit is too small": {model.Queue{Path: "q", Guarantee: gpus(2), Borrow: gpus(2)}, 4, 5,
			"queue q uses 2 of 2 GPUs guaranteed, borrows 2 of 2; the job needs 5; it never may have so many: ask for fewer, or have the limit raised"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tree := NewTree([]model.Queue{tt.queue}, nil)
			l, h := NewLedger(tree), tree.HomeOf(&model.Job{Queue: "q"})
			l.Charge(h, tree.Amount(tt.used, 0, 0), false)
			ask := tree.Amount(tt.asks, 0, 0)
			r := l.Check(h, ask, true)
			if diff := cmp.Diff(tt.want, fmt.Sprint(r)); diff != "" {
				t.Fatalf("refusal (-want +got):\n%s", diff)
			}
			if l.Keep(h, r, ask); r.never && l.at(&l.kept, h.queue)[dimGPU] != 0 {
				t.Error("GPUs are kept for a job that never can have them")
			}
		})
	}
}

// What is kept for a job that its queue's limit holds up is not taken by those
// behind it, and not kept of its parent.
func TestKeep(t *testing.T) {
	tree := orgTree()
	l := NewLedger(tree)
	a, b := tree.HomeOf(&model.Job{Queue: "org/a/x"}), tree.HomeOf(&model.Job{Queue: "org/a/y"})
	l.Charge(a, tree.Amount(5, 0, 0), false)
	big := tree.Amount(3, 0, 0)
	l.Keep(b, l.Check(b, big, false), big)
	if r := l.Check(b, tree.Amount(1, 0, 0), false); r == nil || r.String() != "queue org/a uses 4 of 4 GPUs guaranteed, borrows 1 of 3, and 3 are kept for jobs ahead; the job needs 1; it can start when 2 are given back" {
		t.Errorf("after that: %v", r)
	}
	if r := l.Check(tree.HomeOf(&model.Job{Queue: "org/b"}), tree.Amount(9, 0, 0), false); r != nil {
		t.Errorf("its sibling: %v", r)
	}
}

// A queue that names models says by that what it is not guaranteed.
func TestModels(t *testing.T) {
	tree := NewTree([]model.Queue{
		{Path: "a", Guarantee: map[string]int{"gpu/H100": 2}}, {Path: "b", Guarantee: map[string]int{"gpu": 4, "gpu/H100": 1}}, {Path: "c", Guarantee: gpus(4)},
	}, []string{"A100", "H100"})
	of := func(model string, n int) Vector {
		v := tree.Amount(n, 0, 0)
		tree.AddModel(v, model, n)
		return v
	}
	for _, tt := range []struct {
		queue string
		ask   Vector
		class int
	}{
		{"a", of("H100", 2), 0}, {"a", of("A100", 1), 2}, {"a", of("H100", 3), 2},
		{"b", of("A100", 4), 0}, {"b", of("H100", 2), 2}, {"c", of("A100", 4), 0},
	} {
		if got := NewLedger(tree).Class(tree.HomeOf(&model.Job{Queue: tt.queue}), tt.ask); got != tt.class {
			t.Errorf("%s asks for %v: class %d, want %d", tt.queue, tt.ask, got, tt.class)
		}
	}
}
