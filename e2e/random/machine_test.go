package random

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"
)

// stepsEnv raises how many steps are played; the default keeps the test short.
const (
	stepsEnv     = "CARAVAN_RANDOM_STEPS"
	defaultSteps = 400
	stepsPerDraw = 40
)

func (w *world) ctx() context.Context { return context.Background() }

// defaultSeed is rapid's seed where neither seed nor steps are asked for.
const defaultSeed = "18773"

// TestRandom plays sequences of steps until as many steps are done as asked
// for.
func TestRandom(t *testing.T) {
	steps := defaultSteps
	if text := os.Getenv(stepsEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("read %s: %q is not a number of steps, at least 1", stepsEnv, text)
		}
		steps = n
	}
	if f := flag.Lookup("rapid.seed"); steps == defaultSteps && f.Value.String() == "0" {
		// The suite plays the same steps each time; who looks for new faults
		// asks for more of them, or for a seed.
		if err := f.Value.Set(defaultSeed); err != nil {
			t.Fatal(err)
		}
	}
	played, reduced := 0, false
	draw := func(rt *rapid.T) {
		if played >= steps && !t.Failed() {
			return
		}
		n := rapid.IntRange(1, stepsPerDraw).Draw(rt, "steps")
		script := make([]step, n)
		for i := range script {
			script[i] = drawStep(rt)
		}
		played += n
		seed := rapid.Uint64Range(1, 1<<32).Draw(rt, "seed")
		w, err := play(seed, script)
		if err != nil && !reduced {
			reduced = true
			t.Logf("shortest:\n%s", reduce(seed, script))
		}
		if err != nil {
			rt.Fatalf("BROKEN %v\n%s\nEND", err, strings.Join(w.trace, "\n"))
		}
	}
	for played < steps && !t.Failed() {
		rapid.Check(t, draw)
	}
	t.Logf("%d steps played", played)
}

// step is one thing that happens. Its fields mean what its kind makes of them.
type step struct {
	kind string
	job  string
	node int
	spec shape
	n    int
	flag bool
	// looks is how often the planner looks afterwards.
	looks int
}

// shape is what a job asks for.
type shape struct {
	typ, gang, level string
	counts           []int
	gpus             int
	env              int
	update           bool
}

var kinds = []string{
	"submit", "submit", "submit", "resubmit", "change", "scale", "stop", "purge", "direct", "unmanaged",
	"finish", "fail member", "stop member", "drain", "drain off", "eligibility", "stop node", "stop node", "start node", "start node", "purge node", "new ID", "purge old ID", "away",
	"restart planner", "fault", "fault", "interleave", "sick", "well", "pass", "pass", "pass long", "collect", "rest",
}

func drawStep(rt *rapid.T) step {
	s := step{
		kind: rapid.SampledFrom(kinds).Draw(rt, "kind"),
		job:  "default/" + rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "job"),
	}
	switch s.kind {
	case "submit", "direct", "interleave", "unmanaged":
		s.spec = drawShape(rt)
		// Nomad takes no other type for a job that it has.
		s.spec.typ = api.JobTypeService
		if strings.HasSuffix(s.job, "c") || strings.HasSuffix(s.job, "d") {
			s.spec.typ = api.JobTypeBatch
		}
	}
	s.node = rapid.IntRange(0, 3).Draw(rt, "node")
	s.n = rapid.IntRange(0, 6).Draw(rt, "n")
	s.flag = rapid.Bool().Draw(rt, "flag")
	s.looks = rapid.SampledFrom([]int{2, 1, 0}).Draw(rt, "looks")
	return s
}

func drawShape(rt *rapid.T) shape {
	return shape{
		gang:   rapid.SampledFrom([]string{"job", "job", "group", "none"}).Draw(rt, "gang"),
		level:  rapid.SampledFrom([]string{"", "require:rack", "prefer:node"}).Draw(rt, "level"),
		counts: rapid.SliceOfN(rapid.IntRange(1, 4), 1, 2).Draw(rt, "counts"),
		gpus:   rapid.SampledFrom([]int{1, 2, 4}).Draw(rt, "gpus"),
		update: rapid.Bool().Draw(rt, "update"),
	}
}

// job makes the job that a user writes.
func (s shape) job(key string) *api.Job {
	ns, id, _ := strings.Cut(key, "/")
	j := api.NewServiceJob(id, id, "global", 50)
	j.Type, j.Namespace, j.Datacenters = &s.typ, &ns, []string{"dc1"}
	if s.gang != "" {
		j.Meta = map[string]string{"caravan_gang": s.gang}
		if s.level != "" {
			j.Meta["caravan_topology"] = s.level
		}
	}
	for i, count := range s.counts {
		g := api.NewTaskGroup(fmt.Sprintf("g%d", i), count)
		g.RestartPolicy = &api.RestartPolicy{Attempts: ptr(0), Mode: ptr("fail")}
		if s.update && s.typ == api.JobTypeService {
			g.Update = &api.UpdateStrategy{MaxParallel: ptr(1)}
		}
		task := api.NewTask("main", "mock_driver").Require(&api.Resources{
			CPU: ptr(100), MemoryMB: ptr(64), Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: ptr(uint64(s.gpus))}},
		})
		task.Env = map[string]string{"VERSION": strconv.Itoa(s.env)}
		j.AddTaskGroup(g.AddTask(task))
	}
	return j
}

func ptr[T any](v T) *T { return &v }

// play plays a script and returns the first thing that was wrong.
func play(seed uint64, script []step) (*world, error) {
	w, err := newWorld(seed, 4)
	if err != nil {
		return w, err
	}
	defer w.close()
	for _, s := range script {
		w.take(s)
		if w.broken != nil {
			return w, w.broken
		}
	}
	w.tell("rest")
	w.rest()
	return w, w.broken
}

// take takes a step and what follows from it.
func (w *world) take(s step) {
	w.tell("%s", s)
	w.do(s)
	w.settle()
	for range s.looks {
		_, err := w.look()
		if err != nil {
			w.tell("  look: %v", err)
		}
		w.settle()
	}
	w.check()
}

func (s step) String() string {
	return fmt.Sprintf("{kind: %q, job: %q, node: %d, n: %d, flag: %t, looks: %d, spec: %s}", s.kind, s.job, s.node, s.n, s.flag, s.looks, strings.ReplaceAll(fmt.Sprintf("%#v", s.spec), "random.", ""))
}

// reduce leaves out steps as long as something is wrong without them, and
// writes what is left as a row of a table.
func reduce(seed uint64, script []step) string {
	for size := (len(script) + 1) / 2; size > 0; {
		shorter := false
		for at := 0; at+size <= len(script); {
			rest := slices.Concat(script[:at], script[at+size:])
			if _, err := play(seed, rest); err != nil {
				script, shorter = rest, true
				continue
			}
			at += size
		}
		if !shorter || size > 1 {
			size /= 2
		}
	}
	w, err := play(seed, script)
	var b strings.Builder
	fmt.Fprintf(&b, "%v\nseed: %d, script: []step{\n", err, seed)
	for _, s := range script {
		fmt.Fprintf(&b, "\t%s,\n", s)
	}
	fmt.Fprintf(&b, "}\n%s", strings.Join(w.trace, "\n"))
	return b.String()
}
