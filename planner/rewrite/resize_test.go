package rewrite_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// restarts is what Nomad restarts the members of a group for: all that it says
// but count, constraints and scaling block.
func restarts(j *api.Job, name string) string {
	g := *j.LookupTaskGroup(name)
	g.Count, g.Constraints, g.Scaling = nil, nil, nil
	data, err := json.Marshal([]any{g, j.Meta})
	if err != nil {
		panic(err)
	}
	return string(data)
}

func counted(j *api.Job, n int) *api.Job {
	out, err := gangspec.Copy(j)
	if err != nil {
		panic(err)
	}
	out.TaskGroups[0].Count = &n
	return out
}

func elastic(count, low, high int) *api.TaskGroup {
	g := group("w", count, 8)
	g.Meta = map[string]string{"caravan_min": fmt.Sprint(low), "caravan_max": fmt.Sprint(high)}
	return g
}

// TestResize: what runs says the same before and after; the user's count can be
// told.
func TestResize(t *testing.T) {
	c := cluster(8)
	whole := func(n int) (out []model.Member) {
		for i := range n {
			out = append(out, member("w", i, i, gpus(i, 0, 8)))
		}
		return out
	}
	none, gang := job("service", "none", group("w", 1, 8)), job("batch", "job", elastic(3, 1, 6))
	limited := job("service", "job", elastic(3, 1, 6))
	limited.TaskGroups[0].Scaling = &api.ScalingPolicy{Min: ptr(int64(2)), Max: ptr(int64(4)), Enabled: ptr(true)}
	tests := map[string]struct {
		job      *api.Job
		from, to int
		// has are the members after it.
		has  []model.Member
		want []string
		// scaling is the count of scaling blocks left.
		scaling int
	}{
		"replicas: more, not placed yet":         {job: none, from: 2, to: 3, has: whole(2), want: []string{"w-0 × 1", "w-1 × 1", "w × 1 gated"}},
		"replicas: more":                         {job: none, from: 2, to: 3, has: whole(3), want: []string{"w-0 × 1", "w-1 × 1", "w-2 × 1"}},
		"replicas: fewer":                        {job: none, from: 3, to: 1, has: whole(1), want: []string{"w-0 × 1"}},
		"one becomes several":                    {job: none, from: 1, to: 3, has: whole(2), want: []string{"w × 1", "w-1 × 1", "w-rest × 1 gated"}},
		"a gang that is to grow":                 {job: gang, from: 3, to: 5, has: whole(3), want: []string{"w × 3"}},
		"a gang that grows":                      {job: gang, from: 3, to: 5, has: whole(5), want: []string{"w × 5"}},
		"a gang that is to shrink":               {job: gang, from: 3, to: 2, has: whole(3), want: []string{"w × 3"}},
		"a gang that shrinks":                    {job: gang, from: 3, to: 2, has: whole(2), want: []string{"w × 2"}},
		"a gang that has lost one in the middle": {job: gang, from: 3, to: 3, has: slices.Delete(whole(3), 1, 2), want: []string{"w × 2"}},
		"a size that the scaling block allows":   {job: limited, from: 3, to: 4, has: whole(3), want: []string{"w × 3"}, scaling: 1},
		"one that it does not":                   {job: limited, from: 3, to: 3, has: whole(1), want: []string{"w × 1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := must(rewrite.Pin(counted(tt.job, tt.from), whole(tt.from), c))
			after, err := rewrite.Repin(before, counted(tt.job, tt.to), tt.has, c)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			scaling := 0
			for _, g := range after.TaskGroups {
				text := fmt.Sprintf("%s × %d", *g.Name, *g.Count)
				if !rewrite.MayPlace(g) {
					text += " gated"
				} else if before.LookupTaskGroup(*g.Name) != nil {
					if diff := cmp.Diff(restarts(before, *g.Name), restarts(after, *g.Name)); diff != "" {
						t.Errorf("group %s is restarted:\n%s", *g.Name, diff)
					}
				}
				if g.Scaling != nil {
					scaling++
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
			if scaling != tt.scaling {
				t.Errorf("%d scaling blocks, want %d", scaling, tt.scaling)
			}
			orig := counted(tt.job, tt.to)
			after.Canonicalize()
			if back := must(rewrite.Strip(after, orig)); gangspec.Hash(back) != gangspec.Hash(orig) {
				t.Errorf("Strip: %s", strings.Join(lines(back), "\n"))
			}
			again := must(rewrite.Repin(after, orig, tt.has, c))
			if !rewrite.SamePins(after, again) || !rewrite.PinsHold(after, again, c) {
				t.Error("pinned again it is another job")
			}
		})
	}
}

func TestResizeRefused(t *testing.T) {
	c := cluster(8)
	half := []model.Member{member("w", 0, 0, gpus(0, 0, 4)), member("w", 1, 1, gpus(1, 0, 4))}
	halves := job("batch", "job", elastic(3, 1, 6))
	halves.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = ptr(uint64(4))
	whole := []model.Member{member("w", 0, 0, gpus(0, 0, 8)), member("w", 1, 1, gpus(1, 0, 8))}
	tests := map[string]struct {
		job     *api.Job
		members []model.Member
		want    string
	}{
		"below the minimum":        {job("batch", "job", elastic(4, 3, 6)), whole, `2 of the 4 members of group "w" are placed, and a gang is placed whole`},
		"without bounds":           {job("batch", "job", group("w", 3, 8)), whole, `2 of the 3 members of group "w" are placed, and a gang is placed whole`},
		"members of a part":        {halves, half, `2 of the 3 members of group "w" are placed, and a gang is placed whole`},
		"an index beyond the most": {job("batch", "job", elastic(2, 2, 3)), append(slices.Clone(whole[:1]), member("w", 3, 1, gpus(1, 0, 8))), `group "w" has 3 members, index 3 is not one of them`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := rewrite.Pin(tt.job, tt.members, c)
			if !errors.Is(err, rewrite.ErrPlacement) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestEarlierForm: jobs pinned when the count stood in the meta alone run on
// untouched, and can be resized.
func TestEarlierForm(t *testing.T) {
	c := cluster(4)
	orig := job("service", "none", group("w", 2, 8))
	members := []model.Member{member("w", 0, 0, gpus(0, 0, 8)), member("w", 1, 1, gpus(1, 0, 8)), member("w", 2, 2, gpus(2, 0, 8))}
	cur := must(rewrite.Pin(orig, members[:2], c))
	if got := lines(cur)[3:]; slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, "count-") }) || cur.TaskGroups[0].Meta[gangspec.KeyCount] != "2" {
		t.Fatalf("the form has changed: %v", got)
	}
	if !rewrite.SamePins(cur, must(rewrite.Repin(cur, orig, members[:2], c))) {
		t.Error("it is pinned otherwise now")
	}
	more := counted(orig, 3)
	grown := must(rewrite.Repin(cur, more, members, c))
	for name, want := range map[string]string{"w-0": "2", "w-1": "2", "w-2": "3"} {
		if got := grown.LookupTaskGroup(name).Meta[gangspec.KeyCount]; got != want {
			t.Errorf("meta of %s says %s, want %s", name, got, want)
		}
	}
	if back := must(rewrite.Strip(grown, nil)); gangspec.Hash(back) != gangspec.Hash(must(rewrite.Strip(must(rewrite.Pin(more, members, c)), nil))) {
		t.Errorf("Strip: %v", lines(back))
	}
}

// TestSurvivorsSayTheSame, through any series of sizes.
func TestSurvivorsSayTheSame(t *testing.T) {
	c := cluster(16)
	rapid.Check(t, func(t *rapid.T) {
		gang := rapid.SampledFrom([]string{"none", "job", "group"}).Draw(t, "gang")
		orig := job(rapid.SampledFrom([]string{"service", "batch"}).Draw(t, "type"), gang, elastic(2, 1, 8))
		var cur *api.Job
		var members []model.Member
		for range rapid.IntRange(2, 6).Draw(t, "steps") {
			count := rapid.IntRange(1, 8).Draw(t, "count")
			orig = counted(orig, count)
			if len(members) > count {
				members = members[:count]
			}
			low := 1
			if gang == "none" {
				low = 0
			}
			for len(members) < max(low, rapid.IntRange(0, count).Draw(t, "placed")) {
				i := len(members)
				members = append(members, member("w", i, 2*i+rapid.IntRange(0, 1).Draw(t, "node"), gpus(i, 0, 8)))
			}
			next, err := rewrite.Repin(cur, orig, members, c)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range next.TaskGroups {
				if !rewrite.MayPlace(g) || cur == nil || cur.LookupTaskGroup(*g.Name) == nil || !rewrite.MayPlace(cur.LookupTaskGroup(*g.Name)) {
					continue
				}
				if restarts(cur, *g.Name) != restarts(next, *g.Name) {
					t.Fatalf("group %s is restarted:\n%s\n%s", *g.Name, restarts(cur, *g.Name), restarts(next, *g.Name))
				}
			}
			if back := must(rewrite.Strip(next, orig)); gangspec.Hash(back) != gangspec.Hash(orig) {
				t.Fatalf("Strip: %v", lines(back))
			}
			cur = next
		}
	})
}
