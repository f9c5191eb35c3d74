package recording

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

var start = time.Date(2031, 5, 17, 12, 0, 0, 0, time.UTC)

// secret is in every name that a drawn snapshot has.
const secret = "zq"

// anySnapshot draws a small cluster with queues, constraints of many kinds, and
// jobs that run and wait.
func anySnapshot(t *rapid.T) *model.Snapshot {
	s := &model.Snapshot{Now: start, Levels: []string{"region", "rack"}}
	for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
		n := model.Node{
			ID: fmt.Sprintf("%sid%d", secret, (i*7)%10), Name: fmt.Sprintf("%shost-%d", secret, i*3), Datacenter: secret + rapid.SampledFrom([]string{"east1", "east2", "west"}).Draw(t, "dc"),
			Pool: secret + "pool", Class: secret + "class", Capacity: model.Resources{CPUMHz: 8000, MemoryMiB: 8000},
			Levels:     map[string]string{"rack": secret + rapid.SampledFrom([]string{"r2", "r10"}).Draw(t, "rack")},
			Attributes: map[string]string{"meta.color": secret + rapid.SampledFrom([]string{"red", "blue"}).Draw(t, "color"), "attr.version": rapid.SampledFrom([]string{"1.2.3", "2.0.0"}).Draw(t, "version")},
		}
		if rapid.IntRange(0, 6).Draw(t, "closed") == 0 {
			n.Unschedulable = secret + " is away"
		}
		for g := range rapid.IntRange(1, 4).Draw(t, "gpus") {
			gpu := model.GPU{UUID: fmt.Sprintf("%s-%d-%d", secret, 9-i, g), Vendor: "nvidia", Type: "gpu", Model: "H100", Island: g / 2, NUMA: -1, Attributes: map[string]string{"driver": rapid.SampledFrom([]string{`"535"`, `"550"`}).Draw(t, "driver")}}
			n.GPUs = append(n.GPUs, gpu)
			if rapid.IntRange(0, 4).Draw(t, "busy") == 0 {
				s.Allocs = append(s.Allocs, model.Alloc{ID: secret + gpu.UUID, Namespace: secret + "ns", Job: secret + "other", Node: n.ID, GPUs: []string{gpu.UUID}})
			}
		}
		s.Nodes = append(s.Nodes, n)
	}
	s.Queues = []model.Queue{
		{Path: secret + "org", Guarantee: map[string]int{"gpu": rapid.IntRange(0, 8).Draw(t, "guarantee")}, Priorities: map[string]int{secret + "urgent": 70}},
		{Path: secret + "org/" + secret + "team", Borrow: map[string]int{"gpu": rapid.IntRange(0, 8).Draw(t, "borrow")}, History: map[string]float64{"gpu": 2}},
		{Path: secret + "guests", Default: true, ReclaimFrom: []string{secret + "org"}},
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "jobs") {
		s.Jobs = append(s.Jobs, anyJob(t, s, i))
	}
	return s
}

var constraints = []model.Constraint{
	{Left: "${meta.color}", Operand: "=", Right: secret + "red"},
	{Left: "${meta.color}", Operand: "regexp", Right: "^" + secret + "r"},
	{Left: "${attr.version}", Operand: "version", Right: ">= 2"},
	{Left: "${node.unique.name}", Operand: "!=", Right: secret + "host-3"},
	{Left: "${meta.absent}", Operand: "is_set"},
	{Operand: "distinct_hosts", Right: "true"},
	{Left: "${meta.color}", Operand: "distinct_property", Right: "1"},
	{Left: "${meta.color}", Operand: "regexp", Right: "(" + secret},
}

func anyJob(t *rapid.T, s *model.Snapshot, i int) model.Job {
	j := model.Job{
		Namespace: secret + "ns", ID: fmt.Sprintf("%sjob%d", secret, (i*5)%7), Type: "batch", State: model.StateQueued, Gang: rapid.SampledFrom([]model.Gang{model.GangJob, model.GangGroup, model.GangNone}).Draw(t, "gang"),
		Submitted: start.Add(-time.Duration(rapid.IntRange(0, 2).Draw(t, "age")) * time.Minute), Priority: 50,
		Queue: secret + rapid.SampledFrom([]string{"org/" + secret + "team", "org/" + secret + "team/" + secret + "ada", "nobody"}).Draw(t, "queue"),
	}
	if rapid.IntRange(0, 2).Draw(t, "classed") == 0 {
		j.PriorityClass = secret + "urgent"
	}
	switch rapid.IntRange(0, 5).Draw(t, "where") {
	case 0:
		j.Datacenters = []string{secret + "east*"}
	case 1:
		j.Pool = "all"
	case 2:
		j.Hold = secret + " says no"
	case 3:
		j.Topology = model.Topology{Mode: "require", Level: "rack"}
	}
	if rapid.Bool().Draw(t, "limited") {
		j.Constraints = []model.Constraint{rapid.SampledFrom(constraints).Draw(t, "constraint")}
	}
	ask := model.DeviceAsk{Task: secret + "train", Name: "nvidia/gpu", Count: rapid.IntRange(1, 3).Draw(t, "gpus")}
	switch rapid.IntRange(0, 3).Draw(t, "device") {
	case 0:
		ask.Constraints = []model.Constraint{{Left: "${device.attr.driver}", Operand: "=", Right: "550"}}
	case 1:
		ask.Constraints = []model.Constraint{{Left: "${device.ids}", Operand: "set_contains_any", Right: s.Nodes[0].GPUs[0].UUID + "," + secret + "gone"}}
	}
	j.Groups = []model.TaskGroup{{Name: secret + "workers", Count: rapid.IntRange(1, 3).Draw(t, "count"), Devices: []model.DeviceAsk{ask}}}
	return j
}

// What a scrubbed recording decides is what the original does, by other names;
// and none of the old ones are left.
func TestScrubbedDecidesTheSame(t *testing.T) {
	orders := []string{"fifo", "fairshare", "sjf"}
	rapid.Check(t, func(t *rapid.T) {
		r := &Recording{Recording: Version, Policy: core.Policy{Order: rapid.SampledFrom(orders).Draw(t, "order")}, Snapshot: anySnapshot(t)}
		if rapid.Bool().Draw(t, "interactive") {
			r.Policy.Preempt.Enabled = true
			r.Policy.Interactive = queue.Interactive{Classes: []string{secret + "urgent", secret + "class"}, Queues: []string{secret + "org/" + secret + "team"}}
		}
		want, err := core.Decide(r.Snapshot, r.Policy)
		if err != nil {
			t.Fatalf("decide: %v", err)
		}
		r.Plan = want
		scrubbed, table, err := scrub(r)
		if err != nil {
			t.Fatalf("scrub: %v", err)
		}
		if scrubbed.Reproduced == nil || !*scrubbed.Reproduced {
			t.Error("the original is said not to be reproduced")
		}
		text, err := json.Marshal(scrubbed)
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		if at := strings.Index(string(text), secret); at >= 0 {
			t.Errorf("a name is left: %s", text[max(0, at-60):min(len(text), at+40)])
		}
		again, bare, err := Decode(text)
		if err != nil || bare {
			t.Fatalf("decode what was scrubbed: bare %v, %v", bare, err)
		}
		got, _, err := Replay(again, again.Policy)
		if err != nil {
			t.Fatalf("replay: %v", err)
		}
		if diff := cmp.Diff(brief(want, table.rename), brief(got, nil)); diff != "" {
			t.Errorf("decisions differ (-original +scrubbed):\n%s", diff)
		}
	})
}

type short struct {
	Namespace, Job, Code string
	Action               model.Action
	Members              []model.Member
	Free, Fit, Ahead     int
	Held                 []string
}

// brief is what of a plan does not depend on words, under new names.
func brief(p *model.Plan, rename func(kind, string) string) []short {
	var out []short
	for _, d := range p.Decisions {
		d.Members, d.Detail.Held = slices.Clone(d.Members), slices.Clone(d.Detail.Held)
		for i := range d.Members {
			if rename != nil {
				walk(reflect.ValueOf(&d.Members[i]), "", rename)
			}
		}
		if rename != nil {
			d.Namespace, d.Job = rename(namespace, d.Namespace), rename(job, d.Job)
			for i, id := range d.Detail.Held {
				d.Detail.Held[i] = rename(nodeID, id)
			}
		}
		out = append(out, short{d.Namespace, d.Job, d.Detail.Code, d.Action, d.Members, d.Detail.FreeGPUs, d.Detail.MembersFit, d.Detail.Ahead, d.Detail.Held})
	}
	return out
}

// Whoever adds a field says what its text is: otherwise it is hidden, and what
// depends on it is decided otherwise.
func TestEveryTextHasARule(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type, string)
	visit = func(typ reflect.Type, at string) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice:
			visit(typ.Elem(), at)
		case reflect.Map:
			visit(typ.Key(), at+" KEY")
			visit(typ.Elem(), at)
		case reflect.String:
			if _, known := rules[at]; !known {
				t.Errorf("%s: has no rule in names.go; say what it names", at)
			}
		case reflect.Struct:
			if seen[typ] || typ == reflect.TypeFor[time.Time]() {
				return
			}
			seen[typ] = true
			for i := range typ.NumField() {
				visit(typ.Field(i).Type, typ.Name()+"."+typ.Field(i).Name)
			}
		}
	}
	visit(reflect.TypeFor[model.Snapshot](), "")
	visit(reflect.TypeFor[core.Policy](), "")
}

func TestDecode(t *testing.T) {
	snapshot := `{"now":"2031-05-17T12:00:00Z","nodes":[],"jobs":[]}`
	tests := map[string]struct {
		text     string
		wantBare bool
		wantErr  string
	}{
		"a bare snapshot":     {text: snapshot, wantBare: true},
		"a recording":         {text: `{"recording":1,"policy":{"order":"sjf"},"snapshot":` + snapshot + `}`},
		"nothing":             {text: ``, wantErr: "empty"},
		"of another version":  {text: `{"recording":7,"policy":{},"snapshot":` + snapshot + `}`, wantErr: "recording 7: want 1"},
		"an unknown field":    {text: `{"recording":1,"polic":{},"snapshot":` + snapshot + `}`, wantErr: "polic"},
		"a policy that's not": {text: `{"recording":1,"policy":{"order":"best"},"snapshot":` + snapshot + `}`, wantErr: `order "best"`},
		"without a snapshot":  {text: `{"recording":1,"policy":{}}`, wantErr: "empty"},
		"a broken snapshot":   {text: `{"recording":1,"policy":{},"snapshot":{"nodes":[],"jobs":[]}}`, wantErr: "now"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r, bare, err := Decode([]byte(test.text))
			switch {
			case test.wantErr == "" && err != nil:
				t.Fatalf("decode: %v", err)
			case test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)):
				t.Fatalf("error %v: want %q in it", err, test.wantErr)
			case test.wantErr != "":
				return
			}
			if bare != test.wantBare || r.Snapshot == nil {
				t.Errorf("bare %v: want %v", bare, test.wantBare)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"recording":1,"policy":{"order":"sjf"},"snapshot":{"now":"2031-05-17T12:00:00Z","nodes":[],"jobs":[]}}`))
	f.Add([]byte(`{"now":"2031-05-17T12:00:00Z","nodes":[{"id":"a"}],"jobs":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, _, err := Decode(data)
		if err != nil {
			return
		}
		if _, err := Scrub(r); err != nil {
			t.Errorf("scrub what was decoded: %v", err)
		}
	})
}

func TestCompare(t *testing.T) {
	wait := model.Decision{Job: "a", Action: model.ActionWait, Reason: "no room"}
	admit := model.Decision{Job: "a", Action: model.ActionAdmit, Reason: "room"}
	other := model.Decision{Job: "b", Action: model.ActionWait, Reason: "no room"}
	yields := model.Preemption{Job: "c", Action: model.ActionPreempt, Reason: "gives way"}
	tests := map[string]struct {
		then, now model.Plan
		want      []Difference
	}{
		"the same": {then: model.Plan{Decisions: []model.Decision{wait, other}}, now: model.Plan{Decisions: []model.Decision{wait, other}}},
		"another action": {
			then: model.Plan{Decisions: []model.Decision{wait}}, now: model.Plan{Decisions: []model.Decision{admit}},
			want: []Difference{{Job: "a", What: "action", Then: "wait", Now: "admit"}},
		},
		"another order": {
			then: model.Plan{Decisions: []model.Decision{wait, other}}, now: model.Plan{Decisions: []model.Decision{other, wait}},
			want: []Difference{{Job: "a", What: "order"}, {Job: "b", What: "order"}},
		},
		"a decision more, and one less": {
			then: model.Plan{Decisions: []model.Decision{wait}}, now: model.Plan{Decisions: []model.Decision{other}},
			want: []Difference{{Job: "a", What: "action", Then: "wait"}, {Job: "b", What: "action", Now: "wait"}},
		},
		"none any more": {
			then: model.Plan{Decisions: []model.Decision{wait}},
			want: []Difference{{Job: "a", What: "action", Then: "wait"}},
		},
		"a preemption": {
			now:  model.Plan{Preemptions: []model.Preemption{yields}},
			want: []Difference{{Job: "c", What: "preemption", Now: "gives way"}},
		},
		"a preemption before another": {
			then: model.Plan{Preemptions: []model.Preemption{yields}},
			now:  model.Plan{Preemptions: []model.Preemption{{Job: "b", Reason: "too"}, yields}},
			want: []Difference{{Job: "b", What: "preemption", Now: "too"}},
		},
		"two gangs of a job, one in another way": {
			then: model.Plan{Preemptions: []model.Preemption{yields, yields}},
			now:  model.Plan{Preemptions: []model.Preemption{yields, {Job: "c", Action: model.ActionMove, Reason: "is moved"}}},
			want: []Difference{{Job: "c", What: "preemption", Then: "gives way", Now: "is moved"}},
		},
		"another order of two jobs of one name": {
			then: model.Plan{Decisions: []model.Decision{wait, {Namespace: "n", Job: "a", Action: model.ActionWait}}},
			now:  model.Plan{Decisions: []model.Decision{{Namespace: "n", Job: "a", Action: model.ActionWait}, wait}},
			want: []Difference{{Job: "a", What: "order"}, {Namespace: "n", Job: "a", What: "order"}},
		},
		"sizes": {
			then: model.Plan{Resizes: []model.Resize{{Job: "c", Group: "g", To: 2, Reason: "grows to 2"}}},
			now:  model.Plan{Resizes: []model.Resize{{Job: "c", Group: "g", To: 3, Reason: "grows to 3"}}},
			want: []Difference{{Job: "c", What: "resize", Then: "grows to 2", Now: "grows to 3"}},
		},
		"a GPU divided": {
			then: model.Plan{Repartitions: []model.Repartition{{GPU: "u", For: model.JobName{ID: "c"}, Reason: "divided"}}},
			want: []Difference{{Job: "c", What: "repartition", Then: "divided"}},
		},
		"how a reservation stands": {
			then: model.Plan{Reservations: []model.ReservationUse{{Name: "r", State: "waiting", Reason: "2 of 4"}}},
			now:  model.Plan{Reservations: []model.ReservationUse{{Name: "r", State: "held", Reason: "4 of 4"}}},
			want: []Difference{{Job: "r", What: "reservation", Then: "waiting: 2 of 4", Now: "held: 4 of 4"}},
		},
		"what is bought": {
			then: model.Plan{Demand: &model.Demand{Buy: []model.Purchase{{ID: "1", For: model.JobName{ID: "c"}, Pool: "p", Nodes: 2, Why: "late"}}}},
			now:  model.Plan{Demand: &model.Demand{GiveBack: []model.GiveBack{{Pool: "p", Name: "p-1", Why: "idle"}}}},
			want: []Difference{{Job: "c", What: "demand", Then: "buys 2 of p: late"}, {Job: "p-1", What: "demand", Now: "gives it back: idle"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Compare(&test.then, &test.now)); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}

// What patterns and domains stand for is kept, though all names are made anew.
func TestScrubbedReservations(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	node := func(id, rack string) model.Node {
		return model.Node{ID: id, Name: "gpu-" + id, Levels: map[string]string{"rack": rack}, GPUs: []model.GPU{{UUID: "GPU-" + id, Vendor: "nvidia", Type: "gpu", Model: "A", NUMA: -1}}}
	}
	s := &model.Snapshot{Now: now, Levels: []string{"rack"}, Nodes: []model.Node{node("1", "r1"), node("2", "r2"), node("3", "r3")}, Reservations: []model.Reservation{
		{Name: "m", Kind: model.ReserveMaintenance, Nodes: []string{"gpu-1*"}, From: now, Until: now.Add(time.Hour)},
		{Name: "n", Kind: model.ReserveMaintenance, Level: "rack", Domain: "r2", From: now, Until: now.Add(time.Hour)},
		{Name: "none", Kind: model.ReserveMaintenance, Nodes: []string{"x"}, From: now, Until: now.Add(time.Hour)},
		{Name: "s", Kind: model.ReserveStart, For: model.JobName{ID: "big"}},
	}}
	s.Jobs = []model.Job{{ID: "big", State: model.StateQueued, Groups: []model.TaskGroup{{Name: "g", Count: 1, Devices: []model.DeviceAsk{{Name: "gpu", Count: 1}}}}}}
	out, err := Scrub(&Recording{Snapshot: s})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := core.Decide(out.Snapshot, core.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for i := range plan.Reservations {
		got = append(got, plan.Reservations[i].Nodes)
		if r := &out.Snapshot.Reservations[i]; r.Name == s.Reservations[i].Name || r.For.ID == "big" {
			t.Errorf("a name is left in %+v", r)
		}
	}
	if !slices.Equal(got, []int{1, 1, 0, 3}) {
		t.Errorf("they are about %v nodes, want 1, 1, 0 and 3", got)
	}
	if d := plan.Decisions[0]; d.Action != model.ActionAdmit || d.Members[0].Node != out.Snapshot.Nodes[2].ID {
		t.Errorf("it is %s on %v: %s", d.Action, d.Members, d.Reason)
	}
}
