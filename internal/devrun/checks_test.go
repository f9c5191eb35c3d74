package devrun

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// tape writes a timeline: every call is one moment, a second after the last.
type tape struct{ timeline }

func (p *tape) add(changes ...any) *tape {
	index := uint64(1)
	if n := len(p.timeline); n > 0 {
		index = p.timeline[n-1].index + 1
	}
	for _, c := range changes {
		s := sighting{at: time.Duration(index) * time.Second, index: index}
		switch c := c.(type) {
		case allocState:
			s.alloc = &c
		case jobState:
			c.id, c.modify = "j", c.version+100
			s.job = &c
		}
		p.timeline = append(p.timeline, s)
	}
	return p
}

// alloc is an allocation of job j: "id desired/client node gpu,gpu".
func alloc(id, status, node string, gpus ...string) allocState {
	desired, client, _ := strings.Cut(status, "/")
	return allocState{id: id, name: "j.g[" + id + "]", job: "j", group: "g", desired: desired, client: client, node: node, gpus: gpus}
}

// after makes an allocation take the place of another.
func after(a allocState, previous string) allocState {
	a.previous = previous
	return a
}

// wantCheck: "" means that the check holds.
func wantCheck(t *testing.T, got Check, want string) {
	t.Helper()
	if want == "" && !got.OK || want != "" && (got.OK || !strings.Contains(got.Detail, want)) {
		t.Errorf("check %s: ok %v, %q; want fault %q", got.Name, got.OK, got.Detail, want)
	}
}

func TestCheckGPUsHeldOnce(t *testing.T) {
	tests := map[string]struct {
		tape *tape
		want string
	}{
		"nothing happened": {new(tape), ""},
		"handed on when the first has ended": {new(tape).
			add(alloc("a", "run/running", "n", "g1")).
			add(alloc("a", "stop/running", "n", "g1")).
			add(alloc("a", "stop/complete", "n", "g1")).
			add(alloc("b", "run/pending", "n", "g1")), ""},
		"handed on within one moment": {new(tape).
			add(alloc("a", "run/running", "n", "g1")).
			add(alloc("a", "stop/failed", "n", "g1"), alloc("b", "run/pending", "n", "g1")), ""},
		"a successor waits for it": {new(tape).
			add(alloc("b", "run/running", "n", "g1")).
			add(alloc("b", "stop/running", "n", "g1"), after(alloc("a", "run/pending", "n", "g1"), "b")),
			""},
		"a successor does not wait for it": {new(tape).
			add(alloc("a", "stop/running", "n", "g1"), after(alloc("b", "run/running", "n", "g1"), "a")), "g1 is held by j.g[a] and by j.g[b]"},
		"given away while it stops": {new(tape).
			add(alloc("a", "run/running", "n", "g1", "g2")).
			add(alloc("a", "stop/running", "n", "g1", "g2")).
			add(alloc("b", "run/pending", "n", "g2")).
			add(alloc("a", "stop/complete", "n", "g1", "g2")), "3s: g2 is held by j.g[a] and by j.g[b]"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { wantCheck(t, checkGPUsHeldOnce(tt.tape.timeline), tt.want) })
	}
}

func TestCheckNeverPartial(t *testing.T) {
	whole := func(p *tape, status string) *tape {
		return p.add(alloc("0", status, "n0"), alloc("1", status, "n1"))
	}
	tests := map[string]struct {
		tape *tape
		end  int
		want string
	}{
		"never placed": {new(tape), 99, ""},
		"whole at once, then done one by one": {whole(whole(new(tape), "run/pending"), "run/running").
			add(alloc("0", "run/complete", "n0")).add().add(alloc("1", "run/complete", "n1")), 99, ""},
		"partial within the window": {new(tape).add(alloc("0", "run/pending", "n0")).add(jobState{}).add(alloc("1", "run/pending", "n1")), 99, ""},
		"partial too long":          {new(tape).add(alloc("0", "run/running", "n0")).add(jobState{}).add(jobState{}).add(jobState{}).add(jobState{}).add(alloc("1", "run/pending", "n1")), 99, "1 of 2 members from 1s to 6s"},
		"partial at the end":        {new(tape).add(alloc("0", "run/running", "n0")), 20, "1 of 2 members from 1s to 20s"},
		"rolled back in time":       {new(tape).add(alloc("0", "run/running", "n0")).add(alloc("0", "stop/running", "n0")), 99, ""},
		"a member lost":             {whole(new(tape), "run/running").add(alloc("0", "run/failed", "n0")), 99, "1 of 2 members from 2s"},
		"too many":                  {whole(new(tape), "run/running").add(alloc("2", "run/pending", "n0")), 99, "3 members, more than 2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			wantCheck(t, checkNeverPartial(tt.tape.timeline, "j", 2, 2, 3*time.Second, time.Duration(tt.end)*time.Second), tt.want)
		})
	}
}

func TestCheckAsPlanned(t *testing.T) {
	planned := []model.Member{{Node: "n0", GPUs: []string{"b", "a"}}, {Node: "n1", GPUs: []string{"c"}}}
	placed := func(gpus0, gpus1 string) *tape {
		return new(tape).add(alloc("0", "run/running", "n1", strings.Split(gpus1, ",")...), alloc("1", "run/running", "n0", strings.Split(gpus0, ",")...))
	}
	tests := map[string]struct {
		tape    *tape
		planned []model.Member
		want    string
	}{
		"whichever index is where": {placed("a,b", "c"), planned, ""},
		"other GPUs":               {placed("a,x", "c"), planned, "planned and not placed: n0 a,b; placed and not planned: n0 a,x"},
		"one is missing":           {new(tape).add(alloc("1", "run/running", "n0", "a", "b")), planned, "planned and not placed: n1 c"},
		"stopped ones are none":    {placed("a,b", "c").add(alloc("0", "stop/complete", "n1", "c")), planned, "planned and not placed: n1 c"},
		"twice on one place":       {new(tape).add(alloc("0", "run/running", "n1", "c"), alloc("1", "run/running", "n1", "c")), planned[1:], "planned [n1 c], placed [n1 c n1 c]"},
		"no plan":                  {new(tape), nil, "nothing was planned"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			wantCheck(t, checkAsPlanned(tt.tape.timeline, "j", tt.planned), tt.want)
		})
	}
}

// pairs are two nodes with two islands of two GPUs each: n0a0 n0a1 n0b0 n0b1 ….
func pairs() islandMap {
	m := islandMap{of: map[string]string{}, size: map[string]int{}}
	for _, node := range []string{"n0", "n1"} {
		for _, island := range []string{"a", "b"} {
			for i := range 2 {
				m.of[fmt.Sprint(node, island, i)] = node + "/" + island
				m.size[node+"/"+island]++
			}
		}
	}
	return m
}

func TestCheckWholeIslands(t *testing.T) {
	tests := map[string]struct {
		gpus []string
		want string
	}{
		"within one":       {[]string{"n0a0"}, ""},
		"one":              {[]string{"n0a0", "n0a1"}, ""},
		"two":              {[]string{"n0a0", "n0a1", "n0b0", "n0b1"}, ""},
		"parts of two":     {[]string{"n0a0", "n0b0"}, "1 of the 2 GPUs of island n0/a"},
		"one and a part":   {[]string{"n0a0", "n0a1", "n0b0"}, "1 of the 2 GPUs of island n0/b"},
		"an unknown GPU":   {[]string{"x"}, "x, which no node reports"},
		"two unknown GPUs": {[]string{"x", "y"}, "y, which no node reports"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			seen := new(tape).add(alloc("0", "run/running", "n0", tt.gpus...)).timeline
			wantCheck(t, checkWholeIslands(seen, "j", pairs()), tt.want)
		})
	}
	wantCheck(t, checkWholeIslands(nil, "j", pairs()), "no members")
	if diff := cmp.Diff([][]string{{"n0b1", "n0b0"}, {"n0a0"}, {"?"}}, pairs().split([]string{"n0b1", "n0a0", "?", "n0b0"})); diff != "" {
		t.Errorf("split (-want +got):\n%s", diff)
	}
}

func TestCheckGatedFirst(t *testing.T) {
	gated, pinned, open := jobState{gated: true}, jobState{version: 1, pinned: true}, jobState{version: 1}
	a := alloc("0", "run/pending", "n0")
	tests := map[string]struct {
		tape *tape
		want string
	}{
		"gated, pinned, placed":   {new(tape).add(gated).add(pinned).add(a), ""},
		"pinned and gated again":  {new(tape).add(gated).add(pinned).add(a).add(jobState{version: 2, gated: true}).add(a), ""},
		"never gated":             {new(tape).add(pinned).add(a), "first version was not gated"},
		"placed without pins":     {new(tape).add(gated).add(open).add(a), "j.g[0] was placed without pins"},
		"placed before the job":   {new(tape).add(a).add(gated), "j.g[0] was placed without pins"},
		"it is not there":         {new(tape), "never seen"},
		"a new one after pinning": {new(tape).add(gated).add(pinned).add(a).add(jobState{version: 2}).add(alloc("1", "run/pending", "n0")), "j.g[1] was placed without pins"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { wantCheck(t, checkGatedFirst(tt.tape.timeline, "j"), tt.want) })
	}
}

func TestCheckUnchangedSince(t *testing.T) {
	start := func() *tape {
		return new(tape).add(jobState{version: 1}).add(alloc("0", "run/running", "n0")) // indexes 1 and 2
	}
	tests := map[string]struct {
		tape *tape
		want string
	}{
		"nothing":                        {start(), ""},
		"only a status of the job":       {start().add(jobState{version: 1}), ""},
		"the same again":                 {start().add(alloc("0", "run/running", "n0")), ""},
		"a new version":                  {start().add(jobState{version: 2}), "registered again, as version 2 after 1"},
		"stopped":                        {start().add(alloc("0", "stop/running", "n0")), "j.g[0] went from run/running to stop/running"},
		"another":                        {start().add(alloc("1", "run/pending", "n0")), "new allocation j.g[1]"},
		"it is not there":                {new(tape), "never seen"},
		"a new version before the index": {new(tape).add(jobState{version: 0}).add(jobState{version: 1}).add(alloc("0", "run/running", "n0")), "new allocation"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { wantCheck(t, checkUnchangedSince(tt.tape.timeline, "j", 2), tt.want) })
	}
}

func TestCheckWaitedWhole(t *testing.T) {
	seen := new(tape).add(alloc("0", "run/pending", "n0")).timeline
	seen[0].alloc.job = "other"
	p := &tape{seen}
	p.add(alloc("1", "run/pending", "n0"))
	wantCheck(t, checkWaitedWhole(p.timeline, "j", 1), "")
	wantCheck(t, checkWaitedWhole(p.timeline, "j", 2), "j.g[1] was placed before")
	wantCheck(t, checkWaitedWhole(nil, "j", 2), "")
}

func TestHeldUntil(t *testing.T) {
	p := new(tape).add(alloc("0", "run/running", "n0"), alloc("1", "run/running", "n1")).
		add(alloc("0", "stop/running", "n0")).add(alloc("0", "stop/complete", "n0")).add(alloc("1", "stop/complete", "n1"))
	if got := p.heldUntil("j"); got != 2 {
		t.Errorf("heldUntil() = %d, want 2", got)
	}
	if got := p.heldUntil("other"); got != 4 {
		t.Errorf("heldUntil() of a job without allocations = %d, want the end", got)
	}
}

func TestCheckRolledBack(t *testing.T) {
	try := new(tape).add(alloc("0", "run/running", "n0"))
	tests := map[string]struct {
		tape *tape
		want string
	}{
		"never placed":   {new(tape), "never placed"},
		"still there":    {&tape{try.timeline}, "not rolled back"},
		"gone":           {new(tape).add(alloc("0", "run/running", "n0")).add(alloc("0", "stop/running", "n0")), "not placed again"},
		"and back again": {new(tape).add(alloc("0", "run/running", "n0")).add(alloc("0", "stop/running", "n0")).add(alloc("1", "run/pending", "n1")), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { wantCheck(t, checkRolledBack(tt.tape.timeline, "j"), tt.want) })
	}
}

func TestCheckOneRack(t *testing.T) {
	rackOf := func(node string) string { return map[string]string{"n0": "r0", "n1": "r0", "n2": "r1"}[node] }
	wantCheck(t, checkOneRack(new(tape).add(alloc("0", "run/running", "n0"), alloc("1", "run/running", "n1")).timeline, "j", rackOf), "")
	wantCheck(t, checkOneRack(new(tape).add(alloc("0", "run/running", "n0"), alloc("1", "run/running", "n2")).timeline, "j", rackOf), "2 racks: r0, r1")
	wantCheck(t, checkOneRack(nil, "j", rackOf), "0 racks")
}

func TestCheckUndisturbed(t *testing.T) {
	wantCheck(t, checkUndisturbed(new(tape).add(alloc("0", "run/running", "n0")).timeline, "j"), "")
	wantCheck(t, checkUndisturbed(new(tape).add(alloc("0", "stop/complete", "n0")).timeline, "j"), "j.g[0] is stop/complete")
	wantCheck(t, checkUndisturbed(nil, "j"), "never placed")
}

func TestCheckPacked(t *testing.T) {
	tests := map[string]struct {
		gpus          []string
		packed, split string
	}{
		"a pair":             {[]string{"n0a0", "n0a1"}, "", ""},
		"one":                {[]string{"n0b0"}, "", ""},
		"three":              {[]string{"n0b0", "n0a0", "n0a1"}, "", ""},
		"two halves":         {[]string{"n0b0", "n0a1"}, "", "islands n0/a (1 of 2), n0/b (1 of 2) broken"},
		"one node is enough": {[]string{"n0a0", "n0a1", "n1a0", "n1a1"}, "4 GPUs are on 2 nodes; 1 is enough", ""},
		"five need two":      {[]string{"n0a0", "n0a1", "n0b0", "n0b1", "n1a0"}, "", ""},
		"nothing":            {nil, "nothing was placed", ""},
		"three halves":       {[]string{"n0a0", "n0b0", "n1a0"}, "2 nodes", "n1/a (1 of 2)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := new(tape)
			for i, g := range tt.gpus {
				p.add(alloc(fmt.Sprint(i), "run/running", g[:2], g))
			}
			got := checkPacked(p.timeline, []string{"j"}, 4, pairs())
			wantCheck(t, got[0], tt.packed)
			wantCheck(t, got[1], tt.split)
		})
	}
}

func TestGangOf(t *testing.T) {
	seen := new(tape).add(jobState{}).add(
		alloc("0", "run/running", "n1", "n1a0", "n1a1"), alloc("1", "run/running", "n0", "n0a0", "n0b0"), alloc("2", "run/running", "n0", "n0b1")).timeline
	planned := []model.Member{
		{Rank: 0, Node: "n0", GPUs: []string{"n0b0", "n0a0"}}, {Rank: 1, Node: "n1", GPUs: []string{"n1a1", "n1a0"}},
	}
	want := Gang{Job: "j", QueuedMS: 1500, Members: []Member{
		{Rank: -1, Node: "n0", GPUs: []string{"n0b1"}, Islands: [][]string{{"n0b1"}}},
		{Rank: 0, Node: "n0", GPUs: []string{"n0b0", "n0a0"}, Islands: [][]string{{"n0b0"}, {"n0a0"}}},
		{Rank: 1, Node: "n1", GPUs: []string{"n1a1", "n1a0"}, Islands: [][]string{{"n1a1", "n1a0"}}},
	}}
	if diff := cmp.Diff(want, gangOf(seen, &submitted{name: "j", at: 500 * time.Millisecond}, planned, pairs())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
