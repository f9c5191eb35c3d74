package core

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/internal/budget/drawn"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// A gang that can never start takes nothing from the other gangs of its job:
// they keep nodes, and block a strict queue, as they would by themselves.
func TestImpossibleGangBesideOthers(t *testing.T) {
	for _, mode := range []string{"group", "none"} {
		for _, groups := range []string{"1x16+1x8", "1x8+1x16"} {
			t.Run(mode+" "+groups, func(t *testing.T) {
				s := draw(t, "b1 r1 n0 #.......")
				submit(t, s, "multi "+groups+" gang:"+mode+"\ns0 1x1\ns1 1x1")
				d := decision(t, s, "multi")
				if diff := cmp.Diff([]string{"n0"}, d.Detail.Held); diff != "" || d.Detail.Code != "no_capacity" {
					t.Errorf("code %s, held (-want +got):\n%s", d.Detail.Code, diff)
				}
				for _, text := range []string{"of g0", "of g1", "1 member of g" + map[bool]string{true: "0", false: "1"}[groups == "1x8+1x16"] + " with 8 GPUs; node b1/r1/n0 comes nearest"} {
					if !strings.Contains(d.Reason, text) {
						t.Errorf("reason lacks %q: %s", text, d.Reason)
					}
				}
				for _, small := range []string{"s0", "s1"} {
					if got := decision(t, s, small); got.Detail.Code != "behind" {
						t.Errorf("%s: %s: %s", small, got.Detail.Code, got.Reason)
					}
				}
				strict := mustDecide(t, s, Policy{Strict: true})
				if got := strict.Decisions[1]; !strings.Contains(got.Reason, "the queue is strict") {
					t.Errorf("strict: %s", got.Reason)
				}
			})
		}
	}
}

// The rest of a group goes where its members in force are, or waits.
func TestRestOfGroup(t *testing.T) {
	type m = model.Member
	tests := map[string]struct {
		cluster, job string
		members      []m
		want         []string // GPUs of the members placed
		code, text   string
	}{
		"not into another island": {
			cluster: "b1 r1 n0 ...|.....", job: "r 2x2 gang:group require:island",
			members: []m{{Group: "g0", Node: "n0", GPUs: []string{"n0.0", "n0.1"}}},
			code:    "no_domain", text: "island b1/r1/n0 comes nearest with 1 GPU free",
		},
		"into its island": {
			cluster: "b1 r1 n0 ...|.....", job: "r 2x2 gang:group require:island",
			members: []m{{Group: "g0", Node: "n0", GPUs: []string{"n0.3", "n0.4"}}},
			want:    []string{"n0.5", "n0.6"}, code: "placed",
		},
		"islands of two members differ": {
			cluster: "b1 r1 n0 ...|.....", job: "r 3x1 gang:group require:island",
			members: []m{{Group: "g0", Node: "n0", GPUs: []string{"n0.0"}}, {Group: "g0", Index: 1, Node: "n0", GPUs: []string{"n0.3"}}},
			code:    "no_domain", text: "those are not in one island",
		},
		"a node without a rack": {
			cluster: "b1 - n0 ....\nb1 r1 n1 ....", job: "r 2x2 gang:group require:rack",
			members: []m{{Group: "g0", Node: "n0", GPUs: []string{"n0.0", "n0.1"}}},
			code:    "no_domain", text: "those are not in one rack",
		},
		"racks of two members differ": {
			cluster: "b1 r1 n0 ....\nb1 r2 n1 ....", job: "r 3x1 gang:group require:rack",
			members: []m{{Group: "g0", Node: "n0", GPUs: []string{"n0.0"}}, {Group: "g0", Index: 1, Node: "n1", GPUs: []string{"n1.0"}}},
			code:    "no_domain", text: "those are not in one rack",
		},
		"members that have ended are nowhere": {
			cluster: "b1 r0 n0 .\nb1 r1 n1 ....", job: "r 3x2 gang:group require:rack",
			members: []m{{Group: "g0", Node: "n0", GPUs: []string{"n0.0"}, Ended: true}},
			want:    []string{"n1.0", "n1.1", "n1.2", "n1.3"}, code: "placed",
		},
		"nor do they keep hosts": {
			cluster: "b1 r0 n0 ....", job: "r 2x2 gang:none distinct",
			members: []m{{Group: "g0", Node: "n0", GPUs: []string{"n0.0"}, Ended: true}},
			want:    []string{"n0.0", "n0.1"}, code: "placed",
		},
		"its rack is too small": {
			cluster: "b1 r0 n0 .\nb1 r1 n1 ....\nb1 r2 n2 !..", job: "r 2x2 gang:group require:rack",
			members: []m{{Group: "g0", Node: "n0", GPUs: []string{"n0.0"}}},
			code:    "no_domain", text: "needs 1 member with 2 GPUs in one rack, where its other members are; rack b1/r0 comes nearest with 0 GPUs free, the rest that is free is elsewhere; it waits until its other members end: beside them it does not fit even when all else is free",
		},
		"its rack is full of itself": {
			cluster: "b1 r0 n0 ..\nb1 r1 n1 ....", job: "r 2x2 gang:group require:rack",
			members: []m{{Group: "g0", Node: "n0", GPUs: []string{"n0.0", "n0.1"}}},
			code:    "no_domain", text: "it can start when n0 has room (the job itself holds 2 GPUs)",
		},
		"not onto another node": {
			cluster: "b1 r1 n0 ....\nb1 r1 n1 ....", job: "r 2x3 gang:group require:node",
			members: []m{{Group: "g0", Node: "n0", GPUs: []string{"n0.0", "n0.1", "n0.2"}}},
			code:    "no_domain", text: "in one node, where its other members are",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			line, distinct := strings.CutSuffix(tt.job, " distinct")
			submit(t, s, line)
			s.Jobs[0].State, s.Jobs[0].Members = model.StateRunning, tt.members
			if distinct {
				s.Jobs[0].Constraints = []model.Constraint{{Operand: "distinct_hosts"}}
			}
			d := decision(t, s, "r")
			var got []string
			for _, m := range d.Members {
				got = append(got, m.GPUs...)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got); diff != "" || d.Detail.Code != tt.code || !strings.Contains(d.Reason, tt.text) {
				t.Errorf("%s: %s\nGPUs (-want +got):\n%s", d.Detail.Code, d.Reason, diff)
			}
		})
	}
}

// What is said of groups of different shape is true of all of them together.
func TestReasonsOfUnequalGroups(t *testing.T) {
	s := draw(t, "b1 r1 n0 ........\nb1 r1 n1 #.......")
	submit(t, s, "M 1x8+8x1")
	d := decision(t, s, "M")
	want := "needs 1 member of g0 with 8 GPUs and 8 members of g1 with 1 GPU each (16 GPUs); the cluster has room for 8 of 9 now, 9 if each group is counted by itself; it can start when n1 has room (alloc n1.0! holds 1 GPU); kept for it: n0, n1"
	if diff := cmp.Diff(want, d.Reason); diff != "" {
		t.Errorf("reason (-want +got):\n%s", diff)
	}
	if d.Detail.Code != "no_capacity" || d.Detail.MembersFit != 8 || d.Detail.FreeGPUs != 15 {
		t.Errorf("detail: %+v", d.Detail)
	}
	s.Jobs[0].Topology = model.Topology{Mode: "require", Level: "rack"}
	if d := decision(t, s, "M"); strings.Contains(d.Reason, "elsewhere") || d.Detail.Code != "no_capacity" {
		t.Errorf("%s: %s", d.Detail.Code, d.Reason)
	}
}

// The job's own members are not called jobs ahead.
func TestOwnMembersAreNotOthers(t *testing.T) {
	s := draw(t, "b1 r1 n0 ......")
	submit(t, s, "M 2x4 gang:none")
	d := decision(t, s, "M")
	want := "placed 1 of 2 members with 4 GPUs in island b1/r1/n0/0; 1 more wait: needs 1 member with 4 GPUs; node b1/r1/n0 comes nearest with 2 GPUs free; it can start when n0 has room (the job itself holds 4 GPUs); kept for it: n0"
	if diff := cmp.Diff(want, d.Reason); diff != "" {
		t.Errorf("reason (-want +got):\n%s", diff)
	}
	s = draw(t, "b1 r1 n0 ......")
	submit(t, s, "K 1x4\nM 1x4")
	if d := decision(t, s, "M"); !strings.Contains(d.Reason, "(K holds 4 GPUs)") {
		t.Errorf("reason: %s", d.Reason)
	}
}

// The nodes counted as refused are those refused to the group that does not
// fit.
func TestFilteredIsAboutTheGroupThatWaits(t *testing.T) {
	tests := map[string]struct {
		cluster, job string
		set          func(j *model.Job)
		want         map[string]int
	}{
		"the larger":           {"b1 r1 n0 ........\nb1 r1 n1 ........", "M 1x1+1x16", nil, map[string]int{"too few free GPUs": 2}},
		"not one with no need": {"b1 r1 n0 .......#\nb1 r1 n1 #.......", "M 0x8+1x8", func(j *model.Job) { j.Groups[0].Devices[0].Name = "nvidia/gpu/A100" }, map[string]int{"too few free GPUs": 2}},
		"the one without room": {"b1 r1 n0 ........\nb1 r1 n1 ........", "M 1x8+1x1", func(j *model.Job) { j.Groups[1].Resources.MemoryMiB = 9000 }, map[string]int{"memory": 2}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			submit(t, s, tt.job)
			if tt.set != nil {
				tt.set(&s.Jobs[0])
			}
			d := decision(t, s, "M")
			if diff := cmp.Diff(tt.want, d.Detail.Filtered); diff != "" {
				t.Errorf("%s\nfiltered (-want +got):\n%s", d.Reason, diff)
			}
		})
	}
}

// The domain named holds all that was placed.
func TestDomainOfSeveralGangs(t *testing.T) {
	for cluster, want := range map[string][2]string{
		"b1 r1 n0 .\nb1 r1 n1 .\nb1 r1 n2 .": {"rack", "b1/r1"},
		"b1 r1 n0 .\nb1 r1 n1 .\nb1 r2 n2 .": {"block", "b1"},
		"b1 r1 n0 .\nb1 r1 n1 .\nb2 r2 n2 .": {"", ""},
		"b1 r1 n0 ...":                       {"node", "b1/r1/n0"},
	} {
		s := draw(t, cluster)
		submit(t, s, "M 3x1 gang:none")
		d := decision(t, s, "M")
		if got := [2]string{d.Detail.Level, d.Detail.Domain}; got != want {
			t.Errorf("%s: %v, want %v", cluster, got, want)
		}
	}
}

// That many jobs alike cannot be placed for their distinct_property is found
// out once.
func TestAnswersAboutPropertiesAreKept(t *testing.T) {
	s := drawn.Cluster(64)
	for i := range 40 {
		s.Jobs = append(s.Jobs, apartByKernel(drawn.Job(i, 1+i%4, 1, model.Topology{})))
	}
	p, err := Prepare(s, Policy{})
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range p.Decide(s.Now).Decisions {
		want := "too_large"
		if i%4 == 0 {
			want = "placed"
		}
		if d.Detail.Code != want || want == "too_large" && d.Detail.MembersFit != 1 {
			t.Errorf("%s: %s: %s", d.Job, d.Detail.Code, d.Reason)
		}
	}
	if len(p.possible) != 3 {
		t.Errorf("%d answers are kept, want 3", len(p.possible))
	}
}

// Constraints that cannot be read are told as such, all of them, and hurt no
// other job.
func TestUnreadableConstraints(t *testing.T) {
	s := draw(t, "b1 r1 n0 ....")
	submit(t, s, "M 1x1\nK 1x1")
	j := &s.Jobs[0]
	j.Constraints = []model.Constraint{{Left: "${attr.a}", Operand: "regexp", Right: "(["}, {Left: "${attr.a}", Operand: "regexp", Right: "${attr.b}"}}
	j.Groups[0].Constraints = []model.Constraint{{Left: "${attr.a}", Operand: "version", Right: ">>"}, {Left: "${attr.a}", Operand: "foo"}}
	for _, right := range []string{"x", "-3", "0"} {
		j.Groups[0].Devices[0].Constraints = append(j.Groups[0].Devices[0].Constraints, model.Constraint{Left: "${attr.a}", Operand: "distinct_property", Right: right})
	}
	d := decision(t, s, "M")
	if d.Detail.Code != "invalid" {
		t.Errorf("code %s", d.Detail.Code)
	}
	want := `constraint ${attr.a} regexp ([: "([" is no regular expression; constraint ${attr.a} version >>: ">>" is no range of versions: want one like ">= 1.2, < 2"; ` +
		`constraint ${attr.a} foo: "foo" is no operand: want one of = == is != not > >= < <= version semver regexp set_contains set_contains_all set_contains_any distinct_hosts distinct_property is_set is_not_set; ` +
		`constraint ${attr.a} distinct_property x: "x" is no count: want 1 or more, or nothing for 1; constraint ${attr.a} distinct_property -3: "-3" is no count: want 1 or more, or nothing for 1; ` +
		`constraint ${attr.a} distinct_property 0: "0" is no count: want 1 or more, or nothing for 1; correct it and submit the job again`
	if diff := cmp.Diff(want, d.Reason); diff != "" {
		t.Errorf("reason (-want +got):\n%s", diff)
	}
	if d := decision(t, s, "K"); d.Detail.Code != "placed" {
		t.Errorf("the other job: %s", d.Reason)
	}
}

// A time to try again that is far away is told as a date.
func TestRetryFarAway(t *testing.T) {
	s := draw(t, "b1 r1 n0 ....")
	submit(t, s, "M 1x1")
	s.Now, s.Jobs[0].RetryAfter = s.Now.AddDate(-2025, 0, 0), s.Now
	if d, want := decision(t, s, "M"), "its last placement did not hold; is tried again at 2026-01-02T03:04:05Z"; d.Reason != want {
		t.Errorf("got %q, want %q", d.Reason, want)
	}
}
