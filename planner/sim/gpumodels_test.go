package sim

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// mixed has two nodes of eight H100 and two of four T4, which comes last. more is said of
// the T4.
func mixed(t interface{ Fatal(...any) }, more string) Cluster {
	c, err := ParseCluster([]byte("nodes \"h\" {\n  count = 2\n  gpus  = 8\n  model = \"H100\"\n}\nnodes \"t\" {\n  count = 2\n  gpus  = 4\n  model = \"T4\"\n"+more+"}\n"), "mixed.hcl")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Worked by hand: a and c may run on T4 alone, where four GPUs are a node, so that a has
// both; b may run anywhere; d, on either, has no T4 left and eight H100. c waits for a,
// though H100 are free.
func TestJobsNameTheirModels(t *testing.T) {
	c := mixed(t, "")
	jobs, _ := c.FitModels([]trace.Job{
		{ID: "a", Duration: 100, GPUs: 8, GPUModels: "T4"}, {ID: "b", Submit: 10, Duration: 50, GPUs: 1},
		{ID: "c", Submit: 20, Duration: 30, GPUs: 1, GPUModels: "T4|A10"}, {ID: "d", Submit: 30, Duration: 10, GPUs: 8, GPUModels: "H100|T4"},
	})
	want := `0 submit a 
0 start a t-00000:0 t-00000:1 t-00000:2 t-00000:3 t-00001:0 t-00001:1 t-00001:2 t-00001:3
10 submit b 
10 start b h-00000:0
20 submit c 
30 submit d 
30 start d h-00001:0 h-00001:1 h-00001:2 h-00001:3 h-00001:4 h-00001:5 h-00001:6 h-00001:7
40 finish d h-00001:0 h-00001:1 h-00001:2 h-00001:3 h-00001:4 h-00001:5 h-00001:6 h-00001:7
60 finish b h-00000:0
100 finish a t-00000:0 t-00000:1 t-00000:2 t-00000:3 t-00001:0 t-00001:1 t-00001:2 t-00001:3
100 start c t-00000:0
130 finish c t-00000:0
`
	for name, scheduler := range map[string]Scheduler{
		"besteffort": planned(t, c, core.Policy{Order: "besteffort"}), PolicyKube: NewKube(c, nil, nil), "caravan": planned(t, c, core.Policy{Order: "caravan"}),
	} {
		got, out := story(t, Setup{Cluster: c, Jobs: jobs, Scheduler: scheduler})
		// Pods come one by one, and their start tells all of them.
		var lines []string
		for line := range strings.SplitSeq(got, "\n") {
			if !strings.Contains(line, "resize") {
				lines = append(lines, line)
			}
		}
		if diff := cmp.Diff(want, strings.Join(lines, "\n")); diff != "" {
			t.Errorf("%s: story (-want +got):\n%s", name, diff)
		}
		// From 20 s to T, 30 s, 15 H100 are free while c waits, and too few of those that it
		// may run on.
		if m := out.Metrics(); m.FreeFillable != 0 || m.FreeFragmented != 0 || m.FreeIndivisible != 15*10/(24*30.0) {
			t.Errorf("%s: free while somebody waits: %g, %g, %g", name, m.FreeFillable, m.FreeFragmented, m.FreeIndivisible)
		}
	}
}

// Worked by hand: two GPUs are free on each of two nodes of four T4, and all of two nodes
// of eight H100. Who names models is given place first, and moved on nodes of its model alone.
func TestFreeByModel(t *testing.T) {
	const t4, both = "Tesla T4", "NVIDIA H100 80GB HBM3|Tesla T4"
	tests := map[string]struct {
		waiting []trace.Job
		want    [3]int // fillable, fragmented, indivisible
	}{
		"nobody waits":                   {nil, [3]int{}},
		"no node has four":               {[]trace.Job{{GPUs: 4, GPUModels: t4}}, [3]int{0, 4, 16}},
		"more than there are":            {[]trace.Job{{GPUs: 5, GPUModels: t4}}, [3]int{0, 0, 20}},
		"on either":                      {[]trace.Job{{GPUs: 4, GPUModels: t4}, {GPUs: 8, GPUModels: both}}, [3]int{8, 4, 8}},
		"beside one that takes any":      {[]trace.Job{{GPUs: 4, GPUModels: t4}, {GPUs: 8, GPUModels: both}, {GPUs: 8}}, [3]int{16, 4, 0}},
		"what is left is for any":        {[]trace.Job{{GPUs: 4, GPUModels: t4}, {GPUs: 8, GPUModels: both}, {GPUs: 8}, {GPUs: 2}}, [3]int{18, 2, 0}},
		"of several as many as there is": {[]trace.Job{{GPUs: 2, GPUModels: t4}, {GPUs: 2, GPUModels: t4}, {GPUs: 2, GPUModels: t4}}, [3]int{4, 0, 16}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := mixed(t, "")
			l := newLedger(&c)
			jobs := []job{newJob(&trace.Job{GPUModels: t4})}
			for i := range test.waiting {
				jobs = append(jobs, newJob(&test.waiting[i]))
			}
			l.byModel(&c, jobs)
			l.take([]Piece{{Node: 2, GPUs: []int8{0, 1}}, {Node: 3, GPUs: []int8{2, 3}}})
			r := run{ledger: l}
			for i := range jobs[1:] {
				r.queue(&jobs[i+1], 1)
			}
			var got [3]int
			if got[0], got[1], got[2] = l.split(); got != test.want {
				t.Errorf("fillable, fragmented, indivisible: %v: want %v", got, test.want)
			}
			for i := range jobs[1:] {
				r.queue(&jobs[i+1], -1)
			}
			if a, b, c := l.split(); a+b+c != 0 {
				t.Errorf("nobody waits any more: %d, %d, %d", a, b, c)
			}
		})
	}
}

// A scheduler that puts a job elsewhere is stopped.
func TestNobodyRunsOnAnotherModel(t *testing.T) {
	c := mixed(t, "")
	r := &run{Setup: Setup{Cluster: c}, ledger: newLedger(&c), jobs: []job{newJob(&trace.Job{ID: "a", GPUs: 1, GPUModels: "Tesla T4"})}}
	if err := r.place(0, []Piece{{Node: 0, GPUs: []int8{0}}}); err == nil || !strings.Contains(err.Error(), "is none of Tesla T4") {
		t.Errorf("%v: want that it is none", err)
	}
}

func TestFitModels(t *testing.T) {
	regular, err := Regular(16, 8)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		c    Cluster
		jobs string // what each names
		want string // of those that are left
		fit  Fitting
	}{
		"names of a file":         {mixed(t, ""), "T4 H100 T4|H100 -", "Tesla_T4 NVIDIA_H100_80GB_HBM3 - -", Fitting{Named: 3}},
		"names of the driver":     {mixed(t, ""), "Tesla_T4", "Tesla_T4", Fitting{Named: 1}},
		"as Slurm writes them":    {mixed(t, ""), "h100 tesla-t4 Nvidia_H100_80gb-hbm3", "NVIDIA_H100_80GB_HBM3 Tesla_T4 NVIDIA_H100_80GB_HBM3", Fitting{Named: 3}},
		"some that it lacks":      {mixed(t, ""), "A10|T4 P100 - G2|P100", "Tesla_T4 -", Fitting{Named: 3, Lacking: 3, Without: 2, First: "1", Models: []string{"A10", "G2", "P100"}}},
		"one that is meant twice": {mixed(t, ""), "T4|T4|Tesla_T4", "Tesla_T4", Fitting{Named: 1}},
		"no models known":         {regular, "T4 H100 -", "- - -", Fitting{Named: 2, Ignored: true}},
		"no models named":         {mixed(t, ""), "- -", "- -", Fitting{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var jobs []trace.Job
			for i, models := range strings.Fields(test.jobs) {
				jobs = append(jobs, trace.Job{ID: string(rune('0' + i)), GPUs: 1, GPUModels: strings.ReplaceAll(strings.Trim(models, "-"), "_", " ")})
			}
			left, fit := test.c.FitModels(jobs)
			var got []string
			for _, j := range left {
				models := strings.ReplaceAll(j.GPUModels, " ", "_")
				if models == "" {
					models = "-"
				}
				got = append(got, models)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("%s: want %s", strings.Join(got, " "), test.want)
			}
			if diff := cmp.Diff(test.fit, fit); diff != "" {
				t.Errorf("fitting (-want +got):\n%s", diff)
			}
		})
	}
}

// What a gang on some models needs is looked for on each of them alone.
func TestHoldsOnModels(t *testing.T) {
	c := mixed(t, "")
	for _, test := range []struct {
		gpus   int
		models string
		want   bool
	}{
		{16, "NVIDIA H100 80GB HBM3", true}, {17, "NVIDIA H100 80GB HBM3", false}, {8, "Tesla T4", true}, {9, "Tesla T4", false}, {5, "Tesla T4", true},
		{17, "NVIDIA H100 80GB HBM3|Tesla T4", false}, {4, "NVIDIA A10", false}, {20, "", true},
	} {
		if got := c.HoldsJob(&trace.Job{GPUs: test.gpus, GPUModels: test.models}); got != test.want {
			t.Errorf("%d GPUs on %q: %t", test.gpus, test.models, got)
		}
	}
}

// A part of a GPU is of a model that a job names, too.
func TestPartsOfModels(t *testing.T) {
	c := mixed(t, "  sharing {\n    slices = 2\n  }\n")
	jobs, _ := c.FitModels(c.InTheirParts([]trace.Job{{ID: "a", Duration: 60, GPUs: 1, Share: 0.5, GPUModels: "H100"}, {ID: "b", Submit: 1, Duration: 60, GPUs: 1, Share: 0.5, GPUModels: "T4"}, {ID: "c", Submit: 2, Duration: 60, GPUs: 4, GPUModels: "H100"}}))
	got, _ := story(t, Setup{Cluster: c, Jobs: jobs, Scheduler: planned(t, c, core.Policy{Order: "besteffort"})})
	want := "0 submit a \n0 start a h-00000:0\n1 submit b \n1 start b t-00000:0/1\n2 submit c \n2 start c h-00000:1 h-00000:2 h-00000:3 h-00000:4\n60 finish a h-00000:0\n61 finish b t-00000:0/1\n62 finish c h-00000:1 h-00000:2 h-00000:3 h-00000:4\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("story (-want +got):\n%s", diff)
	}
}
