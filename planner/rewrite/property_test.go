package rewrite_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

func matchString(t *testing.T, pattern, s string) bool {
	t.Helper()
	ok, err := regexp.MatchString(pattern, s)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// drawn is a job with a legal placement of all of its members.
type drawn struct {
	job     *api.Job
	members []model.Member
}

func draw(t *rapid.T) drawn {
	gang := rapid.SampledFrom([]string{"job", "group", "none"}).Draw(t, "gang")
	kind := rapid.SampledFrom([]string{"batch", "service"}).Draw(t, "type")
	d := drawn{job: job(kind, gang)}
	free := map[int]int{}
	for i := range rapid.IntRange(1, 3).Draw(t, "groups") {
		name := rapid.SampledFrom([]string{"w", "w-1", "x"}).Draw(t, "name") + fmt.Sprint("g", i)
		count := rapid.IntRange(1, 4).Draw(t, "count")
		n := rapid.SampledFrom([]int{0, 1, 4, 8}).Draw(t, "gpus")
		g := group(name, count)
		if n > 0 {
			g = group(name, count, n)
		}
		if rapid.Bool().Draw(t, "scaled") {
			g.Scaling = &api.ScalingPolicy{Max: ptr(int64(9)), Enabled: ptr(true)}
		}
		if rapid.Bool().Draw(t, "rolled") {
			g.Update = &api.UpdateStrategy{MaxParallel: ptr(rapid.IntRange(1, 3).Draw(t, "parallel"))}
		}
		d.job.TaskGroups = append(d.job.TaskGroups, g)
		for index := range count {
			node := rapid.IntRange(0, 31).Draw(t, "node")
			for free[node]+n > 8 {
				node++
			}
			d.members = append(d.members, member(name, index, node, gpus(node, free[node], n)))
			free[node] += n
		}
	}
	return d
}

// TestPinThenStripIsTheOriginal, through JSON as a registration goes.
func TestPinThenStripIsTheOriginal(t *testing.T) {
	c := cluster(64)
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		before, _ := json.Marshal(d.job)
		pinned, err := rewrite.Pin(d.job, d.members, c)
		if err != nil {
			t.Fatal(err)
		}
		if after, _ := json.Marshal(d.job); string(after) != string(before) {
			t.Fatal("Pin changed the original")
		}
		pinned.Canonicalize()
		for name, cur := range map[string]*api.Job{"pinned": pinned, "pinned and gated": must(rewrite.GateCurrent(pinned)), "gated": must(rewrite.Gate(d.job))} {
			back := must(rewrite.Strip(cur, d.job))
			if gangspec.Hash(back) != gangspec.Hash(d.job) {
				t.Fatalf("%s: Strip is not the original", name)
			}
			if again := must(rewrite.Strip(back, d.job)); gangspec.Hash(again) != gangspec.Hash(back) {
				t.Fatalf("%s: Strip is not idempotent", name)
			}
		}
	})
}

func must(j *api.Job, err error) *api.Job {
	if err != nil {
		panic(err)
	}
	return j
}

// TestGateIsIdempotent, whoever has gated before.
func TestGateIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		once := must(rewrite.Gate(d.job))
		twice := must(rewrite.Gate(once))
		current := must(rewrite.GateCurrent(must(rewrite.GateCurrent(d.job))))
		for _, j := range []*api.Job{once, twice, current} {
			gates := 0
			for _, c := range j.Constraints {
				if c.LTarget == rewrite.GateAttribute {
					gates++
				}
			}
			if gates != 1 || !rewrite.IsGated(j) {
				t.Fatalf("%d gates", gates)
			}
		}
		a, _ := json.Marshal(once)
		if b, _ := json.Marshal(twice); string(a) != string(b) {
			t.Fatalf("gated once %s\ngated twice %s", a, b)
		}
	})
}

// TestPinAllowsExactlyThePlacement: every member's place is in exactly one
// group of the pinned job, that group's nodes are the members' and no others,
// a user's constraint is in every group, and no member may get a GPU of
// another's or of nobody's.
func TestPinAllowsExactlyThePlacement(t *testing.T) {
	c := cluster(64)
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		pinned := must(rewrite.Pin(d.job, d.members, c))
		covered := map[string]int{}
		for _, g := range pinned.TaskGroups {
			name, index, split := rewrite.Origin(g)
			var mine []model.Member
			for _, m := range d.members {
				if m.Group == name && (!split || m.Index == index) {
					mine = append(mine, m)
					covered[fmt.Sprint(m.Group, "/", m.Index)]++
				}
			}
			if len(mine) != *g.Count {
				t.Fatalf("group %s has count %d for %d members", *g.Name, *g.Count, len(mine))
			}
			if _, _, again := rewrite.OriginByName(d.job, *g.Name); again != split {
				t.Fatalf("OriginByName(%s) disagrees with Origin", *g.Name)
			}
			checkGroup(t, c, g, mine)
		}
		for _, m := range d.members {
			if n := covered[fmt.Sprint(m.Group, "/", m.Index)]; n != 1 {
				t.Fatalf("member %s/%d is in %d groups", m.Group, m.Index, n)
			}
		}
		for _, want := range d.job.Constraints {
			if !slices.ContainsFunc(pinned.Constraints, func(c *api.Constraint) bool { return *c == *want }) {
				t.Fatalf("the job lost %+v", want)
			}
		}
	})
}

func checkGroup(t *rapid.T, c *rewrite.Cluster, g *api.TaskGroup, mine []model.Member) {
	if !slices.ContainsFunc(g.Constraints, func(c *api.Constraint) bool { return c.LTarget == "${meta.x}" }) {
		t.Fatal("the user's constraint is lost")
	}
	var allowed []string
	for _, k := range g.Constraints {
		if k.LTarget == "${node.unique.id}" {
			re := regexp.MustCompile(k.RTarget)
			for _, n := range c.Nodes {
				if re.MatchString(n.ID) {
					allowed = append(allowed, n.ID)
				}
			}
		}
	}
	var want, ids []string
	for _, m := range mine {
		want = append(want, m.Node)
		ids = append(ids, m.GPUs...)
	}
	slices.Sort(want)
	slices.Sort(allowed)
	if !slices.Equal(want, allowed) {
		t.Fatalf("group %s may go to %v, its members are on %v", *g.Name, allowed, want)
	}
	for _, task := range g.Tasks {
		if task.Resources == nil {
			continue
		}
		for _, ask := range task.Resources.Devices {
			pinned := slices.ContainsFunc(ask.Constraints, func(c *api.Constraint) bool { return c.LTarget == "${device.ids}" })
			if whole := len(ids) == 8*len(mine); pinned == whole {
				t.Fatalf("group %s with %d GPUs for %d members: GPUs listed %v", *g.Name, len(ids), len(mine), pinned)
			}
		}
	}
}

// TestWholeNodesChangeConstraintsOnly: another placement of a gang on whole
// nodes differs in constraints alone, which Nomad applies without a restart.
func TestWholeNodesChangeConstraintsOnly(t *testing.T) {
	c := cluster(64)
	bare := func(j *api.Job) string {
		out := must(gangspec.Copy(j))
		out.Constraints = nil
		for _, g := range out.TaskGroups {
			g.Constraints = nil
		}
		data, _ := json.Marshal(out)
		return string(data)
	}
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 8).Draw(t, "count")
		orig := job("batch", "job", group("w", count, 8))
		place := func(label string) *api.Job {
			nodes := rapid.Permutation(seq(64)).Draw(t, label)[:count]
			var members []model.Member
			for i, n := range nodes {
				members = append(members, member("w", i, n, gpus(n, 0, 8)))
			}
			return must(rewrite.Pin(orig, members, c))
		}
		if bare(place("first")) != bare(place("second")) {
			t.Fatal("two placements differ in more than constraints")
		}
	})
}

func seq(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
