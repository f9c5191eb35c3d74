package study

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/sim"
)

// tiny are two comparisons that take no time.
func tiny() []Cell {
	return []Cell{
		{ID: "headline-small", Kind: KindHeadline, Trace: synthetic, GPUs: 64, Jobs: 60, Load: 0.9, Sigma: 1, Restart: 1, Policies: compared, Seeds: 2, Curves: true},
		{ID: "load-1", Kind: KindLoad, Trace: synthetic, GPUs: 64, Jobs: 40, Load: 1, Sigma: 1, Restart: 1, Policies: compared, Seeds: 2},
	}
}

// A study that was stopped goes on; what another program has played does not
// count.
func TestGoesOnWhereItStopped(t *testing.T) {
	o := Options{Out: filepath.Join(t.TempDir(), "new"), Cells: tiny()[:1], Version: "a", Workers: 2}
	first, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.Cells = tiny()
	played, most := 0, 0
	o.Progress = func(done, total int) { played, most = max(played, done), total }
	second, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first[0], second[0]); diff != "" {
		t.Errorf("the first comparison is another one (-was +is):\n%s", diff)
	}
	jobs := 0
	for _, n := range second[1].Jobs {
		jobs += n * len(compared)
	}
	if most != jobs || played > jobs || len(second[1].Results) != 2*len(compared) {
		t.Errorf("%d jobs of %d played, %d results: want only the second comparison's %d", played, most, len(second[1].Results), jobs)
	}
	most = 0
	o.Version = "b"
	third, err := Run(t.Context(), o)
	if err != nil || most <= jobs {
		t.Errorf("another program's results count: %d jobs played, %v", most, err)
	}
	for i := range third {
		for k := range third[i].Results {
			third[i].Results[k].Metrics.DecideMean, second[i].Results[k].Metrics.DecideMean = 0, 0
			third[i].Results[k].Metrics.DecideEvent, second[i].Results[k].Metrics.DecideEvent = 0, 0
		}
		third[i].Version = "a"
	}
	if diff := cmp.Diff(second, third); diff != "" {
		t.Errorf("the same study comes to something else (-was +is):\n%s", diff)
	}
	if err := os.WriteFile(o.file(&o.Cells[0]), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if found, err := o.load(&o.Cells[0]); found != nil || err != nil {
		t.Errorf("half a file is taken for a result: %v", err)
	}
}

// A document has everything, and its plots beside it.
func TestDocument(t *testing.T) {
	played, err := Run(t.Context(), Options{Out: t.TempDir(), Cells: tiny(), Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "evaluation.md")
	if err := Write(name, played, true); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if strings.Contains(text, "## What each mechanism is worth") {
		t.Error("the document has a part of which nothing was played")
	}
	for _, want := range []string{"# Evaluation", "A quick run", "## Set-up", "64 GPUs, synthetic gangs", "caravan against k8s-default", "caravan against backfill", "caravan+no-preempt against k8s-default", "caravan+no-preempt against backfill", "`caravan+no-preempt`:", "| target | caravan | verdict |", "| target | caravan+no-preempt | verdict |", "By `caravan` no size class", "## The published claim", "**Utilisation 87 %**", "**P99 JCT 62 % lower**", "**Stranded GPUs 4 %**", "## The targets", "### Interactive jobs where nobody is stopped", "At a load of 1 (64 GPUs, synthetic gangs)", "## Where Caravan loses", "### Load", "evaluation/load-jct_mean.svg"} {
		if !strings.Contains(text, want) {
			t.Errorf("the document lacks %q", want)
		}
	}
	for _, bad := range []string{"NaN", "%!", "+Inf"} {
		if at := strings.Index(text, bad); at >= 0 {
			t.Errorf("the document has %s: %s", bad, text[max(0, at-200):min(len(text), at+50)])
		}
	}
	plots, err := filepath.Glob(filepath.Join(filepath.Dir(name), "evaluation", "*.svg"))
	if err != nil || len(plots) != 5 {
		t.Errorf("plots: %v, %v", plots, err)
	}
	for _, plot := range plots {
		svg, err := os.ReadFile(plot)
		if err != nil || !strings.HasPrefix(string(svg), "<svg") || !strings.Contains(string(svg[:300]), `xmlns="http://www.w3.org/2000/svg"`) || !strings.Contains(text, filepath.Base(plot)) {
			t.Errorf("%s: no plot that a browser shows, or not in the document: %v", plot, err)
		}
	}
	if err := Write("/dev/null/x.md", played, true); err == nil {
		t.Error("a document is written where none can be")
	}
}

// by makes a comparison by hand: mean and 99th percentile of k8s-default,
// backfill, caravan+no-preempt and caravan in two seeds.
func by(gpus int, p99 map[string][2]float64, bound float64) Played {
	p := Played{Cell: Cell{Kind: KindHeadline, Trace: synthetic, GPUs: gpus, Policies: []string{sim.PolicyKube, backfill, staying, caravan}, Seeds: 2}}
	for seed := range 2 {
		for _, policy := range p.Cell.Policies {
			p.Results = append(p.Results, sim.Result{Policy: policy, Seed: seed + 1, Metrics: sim.Metrics{
				Cohort: 100,
				JCTP99: p99[policy][seed], JCTP99Bound: bound, UtilisationProductive: 0.8, UtilisationBound: 0.86, FreeFillable: 0.01, FreeFragmented: 0.02,
				Sizes: []sim.Part{{Name: "1", Jobs: 60, JCTMean: p99[policy][seed] / 10}, {Name: "2-8", Jobs: 40, JCTMean: 1e6 * p99[policy][seed]}},
			}})
		}
	}
	return p
}

// Worked by hand.
func TestSentences(t *testing.T) {
	c := by(64, map[string][2]float64{sim.PolicyKube: {1000, 1200}, backfill: {500, 700}, staying: {300, 500}, caravan: {200, 400}}, 200)
	// The best other is backfill's 600, and caravan's 400 closes half of the way to 200.
	if part, ok := closed(&c, staying); !ok || part != 0.5 {
		t.Errorf("closed %g, %t: want half", part, ok)
	}
	// With preemption 300 closes three quarters, though by default it closes less: that is no baseline.
	if part, ok := closed(&c, caravan); !ok || part != 0.75 {
		t.Errorf("with preemption closed %g, %t: want three quarters", part, ok)
	}
	if none := by(64, map[string][2]float64{sim.PolicyKube: {201, 201}, backfill: {201, 201}, staying: {200, 200}, caravan: {200, 200}}, 200); func() bool { _, ok := closed(&none, staying); return ok }() {
		t.Error("a gap of half a percent counts")
	}
	d, ok := c.against(staying, backfill, "jct_p99_s")
	if !ok || math.Abs(d.Mean+1/3.0) > 1e-9 || d.Low != d.Mean || d.High != d.Mean {
		t.Errorf("against backfill: %+v: want a third less in both seeds", d)
	}
	if list := append(c.losses(staying), c.losses(caravan)...); len(list) != 0 {
		t.Errorf("losses %+v: want none", list)
	}
	worse := by(256, map[string][2]float64{sim.PolicyKube: {500, 700}, backfill: {450, 650}, staying: {600, 800}, caravan: {400, 600}}, 200)
	list := append(worse.losses(staying), worse.losses(caravan)...)
	if len(list) != 1 || list[0].policy != staying || list[0].other != backfill || list[0].is != 700 || math.Abs(list[0].by.Mean-150/550.0) > 1e-9 {
		t.Errorf("losses %+v: want the 99th percentile, by 150 of backfill's 550", list)
	}
	// The other class has 80 jobs.
	parts := worstParts([]Played{c, worse}, staying)
	// 600 by 450 and 800 by 650: 1.282 on average, and 12.7 times 0.0513 to each side.
	if len(parts) != 1 || parts[0].text() != "256 GPUs, synthetic gangs, 1 GPUs (× 1.27; 0.63 to 1.93 by 2 seeds)" {
		t.Errorf("worse off: %+v", parts)
	}
	sure := worstPart{"x", 1.2, sim.Interval{Mean: 1.2, Low: 1.1, High: 1.3}, 5}
	for want, list := range map[string][]worstPart{
		"0 above, reached": nil,
		"1 above, × 1.27 at most (0.63 to 1.93; 2 seeds), " + undecided: parts,
		"2 above, × 1.27 at most (0.63 to 1.93; 2 seeds), not reached":  {parts[0], sure},
	} {
		if row := worstRow(list); row[1]+", "+row[2] != want {
			t.Errorf("worse off: %q, want %q", row, want)
		}
	}
	is := func(c *Played) (float64, float64, bool) {
		return 1 - c.mean(staying, "jct_p99_s")/c.mean(sim.PolicyKube, "jct_p99_s"), 1 - 200/c.mean(sim.PolicyKube, "jct_p99_s"), true
	}
	for want, limit := range map[string]float64{
		"reached in all of 2 comparisons.": -1,
		"reached on 64 GPUs, synthetic gangs. Not reached on 256 GPUs, synthetic gangs (-16.7 %).":                                                                                  0.6,
		"Not reached on 64 GPUs, synthetic gangs (63.6 %). Not reachable by rigid jobs on 256 GPUs, synthetic gangs, where the bound is 66.7 % and caravan+no-preempt has -16.7 %.": 0.7,
	} {
		if diff := cmp.Diff(want, verdict([]Played{c, worse}, staying, is, limit, percent)); diff != "" {
			t.Errorf("at %g (-want +got):\n%s", limit, diff)
		}
	}
}

// Worked by hand: 32 of 64 GPUs would have to be kept in both seeds, which leaves half of the bound.
func TestInteractiveSentences(t *testing.T) {
	c := by(64, map[string][2]float64{}, 200)
	c.Cell.Kind, c.Cell.Load = KindLoad, 1
	for seed := range 2 {
		s := Soon{Started: map[string]float64{backfill: 0.1, staying: 0.2 + 0.2*float64(seed), caravan: 0.9}}
		s.Jobs, s.Used, s.AtOnce, s.Kept, s.Planned, s.PlannedP95 = 10, 1.5, 32, 0.43, 0.86, 5
		c.Soon = append(c.Soon, s)
	}
	says := func() string {
		var p page
		p.interactive([]Played{c})
		return p.String()
	}
	for _, want := range []string{
		"| 64 GPUs, synthetic gangs | 1 | 10 | 1.5 | 32 | 50.0 % | 43.0 % | 0.50 | 5 s | 1.00 | 10.0 % | 90.0 % | 30.0 % |",
		"32 GPUs (32 to 32; 2 seeds)", "0.50 (0.50 to 0.50) of the bound is productive, where 0.97 is wanted: so both are not to be had together by keeping GPUs.",
		"Planned, P95 is 5 s at 1.00 of the bound", "`caravan+no-preempt` starts 30.0 % of them in time, and `caravan`, which stops others, 90.0 %.",
	} {
		if !strings.Contains(says(), want) {
			t.Errorf("the document lacks %q:\n%s", want, says())
		}
	}
	c.Soon[0].Kept, c.Soon[1].Kept = 0.85, 0.85
	if want := "so both may be had together by keeping GPUs."; !strings.Contains(says(), want) {
		t.Errorf("the document lacks %q:\n%s", want, says())
	}
	c.Soon[0].Kept = 0.2
	if want := "so whether both are to be had together by keeping GPUs depends on the days."; !strings.Contains(says(), want) {
		t.Errorf("the document lacks %q:\n%s", want, says())
	}
}

// Every comparison that is planned can be: names are known and no two are alike.
func TestCells(t *testing.T) {
	for _, quick := range []bool{false, true} {
		seen := map[string]bool{}
		for _, c := range Cells(quick) {
			if seen[c.ID] {
				t.Errorf("%s is there twice", c.ID)
			}
			seen[c.ID] = true
			for _, row := range c.Policies {
				name, _, _ := strings.Cut(row, "@")
				if name == sim.PolicyKube {
					continue
				}
				if _, err := sim.PolicyOf(name); err != nil {
					t.Errorf("%s: %v", c.ID, err)
				}
			}
		}
	}
}
