package core

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// stretch makes running jobs of a drawing elastic gangs of their nodes: "JOB
// COUNT MIN MAX RAN [option]…" a line, options: resized:AGO, never, restarts,
// duration:D, declared:1:1,4:3.5 (a curve), priority:N, queue:NAME.
func stretch(t testing.TB, s *model.Snapshot, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		at := slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == fields[0] })
		var count, least, most int
		if _, err := fmt.Sscan(strings.Join(fields[1:4], " "), &count, &least, &most); at < 0 || err != nil {
			t.Fatalf("line %q: want JOB COUNT MIN MAX RAN", line)
		}
		j := &s.Jobs[at]
		gangOnNodes(s, j, least)
		j.Groups[0].Count, j.Groups[0].Max = count, most
		j.Started = s.Now.Add(-mustDuration(t, fields[4]))
		j.Submitted = j.Started
		for _, option := range fields[5:] {
			key, value, _ := strings.Cut(option, ":")
			switch key {
			case "resized":
				j.Resized = append(j.Resized, s.Now.Add(-mustDuration(t, value)))
			case "never":
				j.Preempt = model.PreemptNever
			case "restarts":
				j.ResizeRestarts = true
			case "keeps":
				j.KeepSize = "it is being updated"
			case "duration":
				j.Duration = mustDuration(t, value)
			case "priority":
				_, _ = fmt.Sscan(value, &j.Priority)
			case "queue":
				j.Queue = value
			case "declared":
				j.Speed = &model.Speed{}
				for point := range strings.SplitSeq(value, ",") {
					var p model.SpeedPoint
					if _, err := fmt.Sscanf(point, "%d:%g", &p.Members, &p.Rate); err != nil {
						t.Fatalf("line %q: %v", line, err)
					}
					j.Speed.Declared = append(j.Speed.Declared, p)
				}
			default:
				t.Fatalf("line %q: unknown option %q", line, option)
			}
		}
	}
}

func mustDuration(t testing.TB, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// resized lists a plan's resizes: "a +n3,n4" grows onto n3 and n4.
func resized(plan *model.Plan) []string {
	out := []string{}
	for _, r := range plan.Resizes {
		sign := " +"
		if r.Action == model.ActionShrink {
			sign = " -"
		}
		var nodes []string
		for _, m := range r.Members {
			nodes = append(nodes, m.Node)
		}
		slices.Sort(nodes)
		out = append(out, r.Job+sign+strings.Join(nodes, ","))
	}
	slices.Sort(out)
	return out
}

func TestGrowsIntoWhatIsIdle(t *testing.T) {
	const four = "b1 r1 n1 aa\nb1 r1 n2 ..\nb1 r2 n3 ..\nb2 r3 n4 ..\n"
	tests := map[string]struct {
		cluster, elastic, waiting string
		// slower is a node with GPUs of another model.
		slower string
		policy Policy
		queues []model.Queue
		want   []string
		reason string
	}{
		"as far as its most, near its members first": {cluster: four, elastic: "a 1 1 2 1h", want: []string{"a +n2"},
			reason: "grows from 1 to 2 members beyond its count of 1, onto nodes that lie idle: n2; it works 2 times as fast (as if each GPU added as much as the first, since its speed is not known), which in the 1h0m0s that it may still run (as long again as it has run) is worth 2 GPU-hours; the change costs 4 GPU-minutes; it gives them back as soon as somebody waits for them"},
		"onto all that there is":                          {cluster: four, elastic: "a 1 1 9 1h", want: []string{"a +n2,n3,n4"}},
		"not without caravan_max":                         {cluster: four, elastic: "a 1 1 1 1h", want: []string{}},
		"not where that is off":                           {cluster: four, elastic: "a 1 1 9 1h", policy: Policy{Elastic: queue.Elastic{Disabled: true}}, want: []string{}},
		"not when it has only just started":               {cluster: four, elastic: "a 1 1 2 1m", want: []string{}},
		"at once where it is known to run for long":       {cluster: four, elastic: "a 1 1 2 1s duration:2h", want: []string{"a +n2"}},
		"not when it is about to end":                     {cluster: four, elastic: "a 1 1 2 2h duration:2h1m", want: []string{}},
		"not soon after the last time":                    {cluster: four, elastic: "a 1 1 2 1h resized:9m", want: []string{}},
		"again after a while":                             {cluster: four, elastic: "a 1 1 2 1h resized:11m", want: []string{"a +n2"}},
		"not while it keeps its size":                     {cluster: four, elastic: "a 1 1 2 1h keeps", want: []string{}},
		"not for what more members do not gain":           {cluster: four, elastic: "a 1 1 9 1h declared:1:1,2:1.02,4:1.04", want: []string{}},
		"as far as more members gain":                     {cluster: four, elastic: "a 1 1 9 9h declared:1:1,2:1.8,3:1.801,4:1.802", want: []string{"a +n2"}},
		"where its members start anew, if that is repaid": {cluster: four, elastic: "a 1 1 2 1h restarts", want: []string{}},
		"equals get equal parts": {cluster: "- - n1 aa\n- - n2 bb\n- - n3 ..\n- - n4 ..\n- - n5 ..\n- - n6 ..\n", elastic: "a 1 1 9 2h\nb 1 1 9 1h",
			want: []string{"a +n3,n5", "b +n4,n6"}},
		"by what they ask for": {cluster: "- - n1 aa\n- - n2 bb\n- - n3 bb\n- - n4 ..\n- - n5 ..\n- - n6 ..\n", elastic: "a 1 1 9 2h\nb 2 1 9 2h",
			want: []string{"a +n4", "b +n5,n6"}},
		"the higher priority first": {cluster: "- - n1 aa\n- - n2 bb\n- - n3 ..\n- - n4 ..\n", elastic: "a 1 1 9 2h\nb 1 1 9 2h priority:1",
			want: []string{"b +n3,n4"}},
		"what one does not gain by is the other's": {cluster: "- - n1 aa\n- - n2 bb\n- - n3 ..\n- - n4 ..\n", elastic: "a 1 1 9 9h priority:9 declared:1:1,2:1\nb 1 1 9 9h",
			want: []string{"b +n3,n4"}},
		"not onto nodes kept for a gang that waits": {cluster: "b1 r1 n1 aa\nb1 r1 n2 ..\nb1 r2 n3 cc\nb2 r3 n4 ..\n", elastic: "a 1 1 9 1h", waiting: "w 2x2 require:block",
			want: []string{"a +n4"}},
		"not onto what stops for another": {cluster: "- - n1 aa\n- - n2 bb\n- - n3 b.\n", elastic: "a 1 1 9 1h priority:90", waiting: "w 1x2 priority:80", policy: preempting, want: []string{}},
		"not onto another model":          {cluster: "- - n1 aa\n- - n2 ..\n- - n3 ..\n", elastic: "a 1 1 9 1h", slower: "n2", want: []string{"a +n3"}},
		"not onto a part of a node":       {cluster: "- - n1 aa\n- - n2 .#\n- - n3 ....\n", elastic: "a 1 1 9 1h", want: []string{}},
		"not by members that share nodes": {cluster: "- - n1 aa..\n- - n2 ....\n", elastic: "a 1 1 9 1h", want: []string{}},
		"as far as its queue may": {cluster: four, elastic: "a 1 1 9 1h queue:q", want: []string{"a +n2"},
			queues: []model.Queue{{Path: "q", Guarantee: map[string]int{"gpu": 2}, Borrow: map[string]int{"gpu": 2}}}},
		"no more often in an hour than it may": {cluster: "- - n1 aa\n- - n2 bb\n- - n3 ..\n- - n4 ..\n", elastic: "a 1 1 9 2h\nb 1 1 9 1h resized:20m",
			policy: Policy{Elastic: queue.Elastic{MaxPerHour: 2}}, want: []string{"a +n3"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			stretch(t, s, tt.elastic)
			submit(t, s, tt.waiting)
			s.Queues = tt.queues
			for i := range s.Nodes {
				for g := range s.Nodes[i].GPUs {
					if s.Nodes[i].ID == tt.slower {
						s.Nodes[i].GPUs[g].Model = "A100"
					}
				}
			}
			plan := mustDecide(t, s, tt.policy)
			checkPlan(t, s, plan)
			if diff := cmp.Diff(tt.want, resized(plan)); diff != "" {
				t.Errorf("resizes (-want +got):\n%s", diff)
			}
			if tt.reason != "" {
				if diff := cmp.Diff(tt.reason, plan.Resizes[0].Reason); diff != "" {
					t.Errorf("reason (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestGivesBackAtOnce(t *testing.T) {
	const grown = "b1 r1 n1 aa\nb1 r1 n2 aa\nb1 r2 n3 aa\nb2 r3 n4 aa\n"
	tests := map[string]struct {
		cluster, elastic, waiting string
		policy                    Policy
		queues                    []model.Queue
		want                      []string
		resizes                   []string
		code                      string
	}{
		"to whom waits, the highest index first":            {cluster: grown, elastic: "a 1 1 9 1h", waiting: "w 1x2", want: []string{"a gives 1 to w"}, code: "preempting"},
		"whatever the priorities":                           {cluster: grown, elastic: "a 1 1 9 1h priority:90", waiting: "w 1x2", want: []string{"a gives 1 to w"}, code: "preempting"},
		"even if it is never to be preempted":               {cluster: grown, elastic: "a 1 1 9 1h never", waiting: "w 1x1", want: []string{"a gives 1 to w"}, code: "preempting"},
		"as many as are needed":                             {cluster: grown, elastic: "a 1 1 9 1h", waiting: "w 3x2", want: []string{"a gives 3 to w"}, code: "preempting"},
		"those that go before are given, too":               {cluster: grown, elastic: "a 1 1 9 1h", waiting: "w 2x2 require:block", want: []string{"a gives 3 to w"}, code: "preempting"},
		"not what is within its count":                      {cluster: grown, elastic: "a 4 1 9 1h", waiting: "w 1x2", want: []string{}, code: "no_capacity"},
		"not if that is too little":                         {cluster: grown, elastic: "a 3 1 9 1h", waiting: "w 2x2", want: []string{}, code: "no_capacity"},
		"not while it keeps its size":                       {cluster: grown, elastic: "a 1 1 9 1h keeps", waiting: "w 1x2", want: []string{}, code: "no_capacity"},
		"before another job is preempted":                   {cluster: "- - n1 aa\n- - n2 aa\n- - n3 b.\n- - n4 b.\n", elastic: "a 1 1 9 9h", waiting: "w 1x2 priority:50", policy: preempting, want: []string{"a gives 1 to w"}, code: "preempting"},
		"to an elastic gang that has less than it asks for": {cluster: "- - n1 aa\n- - n2 aa\n- - n3 bb\n", elastic: "a 1 1 9 1h\nb 2 1 2 1h", want: []string{"a gives 1 to b"}, code: "preempting"},
		"to another job of its queue that is at its limit": {cluster: "- - n1 aa\n- - n2 aa\n- - n3 ..\n", elastic: "a 1 1 9 1h queue:q", waiting: "w 1x2 queue:q",
			queues: []model.Queue{{Path: "q", Guarantee: map[string]int{"gpu": 2}, Borrow: map[string]int{"gpu": 2}}}, want: []string{}, resizes: []string{"a -n2"}, code: "placed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			stretch(t, s, tt.elastic)
			waiting, inQueue := strings.CutSuffix(tt.waiting, " queue:q")
			submit(t, s, waiting)
			if inQueue {
				s.Jobs[len(s.Jobs)-1].Queue = "q"
			}
			s.Queues = tt.queues
			plan := mustDecide(t, s, tt.policy)
			checkPlan(t, s, plan)
			if diff := cmp.Diff(tt.want, gaveWay(plan)); diff != "" {
				t.Errorf("gives way (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(append([]string{}, tt.resizes...), resized(plan)); diff != "" {
				t.Errorf("resizes (-want +got):\n%s", diff)
			}
			if got := plan.Decisions[0]; got.Detail.Code != tt.code {
				t.Errorf("code %q, want %q: %s", got.Detail.Code, tt.code, got.Reason)
			}
			for _, p := range plan.Preemptions {
				if !p.Returned || !strings.Contains(p.Reason, "beyond its count") {
					t.Errorf("returned %v: %s", p.Returned, p.Reason)
				}
			}
			if len(tt.want) == 0 || tt.waiting == "" {
				return
			}
			gives := "a has given it " + plural(len(plan.Preemptions[0].Members), "member")
			// Nothing more is asked for while they stop; then the job has its room.
			next := stopping(s, plan)
			for _, at := range []*model.Plan{plan, mustDecide(t, next, tt.policy)} {
				if got := decisionOn(at, "w"); !strings.Contains(got.Reason, gives) || strings.Contains(got.Reason, "stopped") {
					t.Errorf("it is not said that %s: %s", gives, got.Reason)
				}
			}
			if again := mustDecide(t, next, tt.policy); len(again.Preemptions)+len(again.Resizes) > 0 {
				t.Errorf("while they stop: %v, %v", gaveWay(again), resized(again))
			}
			end := mustDecide(t, stopped(next), tt.policy)
			if d := decisionOn(end, "w"); d.Action != model.ActionAdmit || len(end.Resizes) > 0 {
				t.Errorf("when they have stopped: %s, %v", d.Reason, resized(end))
			}
		})
	}
}

// TestElasticDocument: the document's reasons are those that are given.
func TestElasticDocument(t *testing.T) {
	b, err := os.ReadFile("../../docs/elastic.md")
	if err != nil {
		t.Fatal(err)
	}
	document := strings.Join(strings.Fields(string(b)), " ")
	grows := draw(t, "b1 r1 n1 aa\nb1 r1 n2 ..\n")
	stretch(t, grows, "a 1 1 2 1h")
	moves := draw(t, "b1 r1 n1 ..\nb1 r1 n2 !..\nb1 r1 n3 ..\nb1 r1 n4 ..\n")
	struck(t, moves, "a 3x2 n1,n2,n3 failed:1")
	moves.Jobs[0].Replace.Failed[0].Why = "is lost"
	replaced, _, _ := strings.Cut(decisionOn(mustDecide(t, moves, Policy{}), "a").Reason, "; placed")
	for _, reason := range []string{mustDecide(t, grows, Policy{}).Resizes[0].Reason, replaced} {
		if !strings.Contains(document, reason) {
			t.Errorf("not in the document: %s", reason)
		}
	}
}

// TestGrowsNotIntoWhatStops: a gang that is told to stop holds its GPUs until it has,
// whoever it is for, so nobody grows into those that are not needed then.
func TestGrowsNotIntoWhatStops(t *testing.T) {
	s := draw(t, "b r n0 aaaa\nb r n1 aaaa\nb r n2 eeee\n")
	describe(t, s, "a 10 1h")
	stretch(t, s, "e 1 1 3 1h priority:90")
	submit(t, s, "M 1x3 priority:90")
	plan := mustDecide(t, s, Policy{Preempt: preempt.Policy{Enabled: true}})
	if diff := cmp.Diff([]string{"a to M"}, gaveWay(plan)); diff != "" {
		t.Fatalf("who gives way (-want +got):\n%s", diff)
	}
	if got := resized(plan); len(got) > 0 {
		t.Errorf("grows: %v", got)
	}
}
