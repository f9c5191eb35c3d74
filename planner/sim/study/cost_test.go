package study

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

func costCell() Cell {
	return Cell{ID: "cost-64", Kind: KindCost, Trace: synthetic, GPUs: 64, Jobs: 100, Load: 1, Sigma: 1, Restart: 1, Policies: []string{caravan}, Seeds: 2}
}

// fleetsOf are a cell's fleets in its first seed.
func fleetsOf(t *testing.T, c *Cell, price float64) *fleets {
	t.Helper()
	jobs, err := (&Options{}).jobs(c)
	if err != nil {
		t.Fatal(err)
	}
	comparison, err := c.comparison(jobs, 1)
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := comparison.Prepare(1)
	if err != nil {
		t.Fatal(err)
	}
	fit, _ := trace.Fit(withDeadlines(prepared.Jobs, 1), func(gpus int) bool { return gpus <= smallerNodes(c.GPUs)*perNode })
	return &fleets{cell: c, seed: 1, jobs: fit, restart: comparison.Restart, price: price, estimates: sim.Estimates(fit, c.Sigma, 1)}
}

// The rows are what they say: the smallest fleet meets as many deadlines as the one
// that buys, and one node less does not.
func TestCosts(t *testing.T) {
	cell := costCell()
	o := Options{Out: filepath.Join(t.TempDir(), "runs"), Cells: []Cell{cell}, Version: "a", Workers: 2}
	played, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(played, again); diff != "" {
		t.Errorf("what is kept is something else (-was +is):\n%s", diff)
	}
	p := &played[0]
	if want := 2 * (len(costRows) + 2*len(otherSizes)); len(p.Costs) != want || len(p.Results) != 2 {
		t.Fatalf("%d costs, %d results", len(p.Costs), len(p.Results))
	}
	rows := map[string]Cost{}
	for _, c := range p.Costs {
		if c.Busy <= 0 || c.Busy > c.Owned || c.Jobs == 0 || (c.Bought > 0) != (c.Row == rowDemand || c.Row == rowSpot || c.Row == rowWait) {
			t.Errorf("%+v: want more owned hours than busy ones, and only who buys pays", c)
		}
		switch {
		case c.Size:
			if (c.Row != rowDemand && c.Row != rowWait) || !slices.Contains([]int{32, 48, 64}, c.GPUs) {
				t.Errorf("of another size: %+v", c)
			}
		case c.Seed == 1:
			rows[c.Row] = c
		}
	}
	if most, wait := rows[rowPremisesMost], rows[rowPremisesWait]; !most.Short && most.Met < mostMet || !wait.Short && wait.Met < rows[rowWait].Met {
		t.Errorf("on premises only: %+v, %+v", most, wait)
	}
	least, demand := rows[rowPremises], rows[rowDemand]
	if rows[rowFixed].GPUs != 64 || demand.GPUs != 56 || rows[rowSpot].GPUs != 56 || least.Short || least.Met < demand.Met {
		t.Errorf("rows %+v", rows)
	}
	f := fleetsOf(t, &cell, 1)
	if least.GPUs > 56 {
		less, err := f.play(t.Context(), rowPremises, least.GPUs/perNode-1, -1)
		if err != nil || less.Met >= demand.Met {
			t.Errorf("a node less meets %g of the deadlines, %v: want less than %g", less.Met, err, demand.Met)
		}
	}
	name := filepath.Join(t.TempDir(), "evaluation.md")
	if err := Write(name, played, true); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## Cost and deadlines", "64 GPUs, synthetic gangs, load 1, 2 seeds", rowPremises, rowWait, "where long waits buy nodes", "busy hours, × 3", "Cost per run 15.0 % lower", "27 to 84 %", "by how many GPUs are owned", "| smaller, buys for long waits | 48 |"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the document lacks %q", want)
		}
	}
	_, section, _ := strings.Cut(string(text), "## Cost and deadlines")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, bad := range []string{"NaN", "%!", "Inf"} {
		if strings.Contains(section, bad) {
			t.Errorf("the section has %s:\n%s", bad, section)
		}
	}
}

// What is decided does not depend on the ratio of prices, so that one run is enough
// for all of them.
func TestDecisionsDoNotDependOnTheRatio(t *testing.T) {
	cell := costCell()
	for _, spot := range []float64{0, spotPart} {
		var first Cost
		for i, price := range []float64{1, priceRatios[len(priceRatios)-1]} {
			c, err := fleetsOf(t, &cell, price).play(t.Context(), rowSpot, 6, spot)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = c
			}
			if math.Abs(c.Bought-first.Bought) > 1e-6*first.Bought {
				t.Errorf("at %g: bought for %g, at 1 for %g", price, c.Bought, first.Bought)
			}
			if c.Bought = first.Bought; c != first {
				t.Errorf("at %g: %+v, at 1 %+v", price, c, first)
			}
		}
	}
}

func TestDeadlines(t *testing.T) {
	var jobs []trace.Job
	for i := range 2000 {
		jobs = append(jobs, trace.Job{Submit: float64(i), Duration: 36000, GPUs: 1})
	}
	jobs[0].Duration = 60
	got := withDeadlines(jobs, 3)
	if got[0].Deadline != 3600 || jobs[1].Deadline != 0 {
		t.Errorf("a minute's job is due after %g: want an hour", got[0].Deadline)
	}
	sum := 0.0
	for _, j := range got[1:] {
		slack := (j.Deadline - j.Submit) / j.Duration
		if slack < leastSlack || slack > mostSlack {
			t.Fatalf("due after %g times its run time", slack)
		}
		sum += slack
	}
	// The mean of a uniform on [1.5, 5] is 3.25, and of 1,999 of them within 0.07.
	if mean := sum / 1999; math.Abs(mean-3.25) > 0.07 {
		t.Errorf("mean %g, want 3.25", mean)
	}
	if diff := cmp.Diff(got, withDeadlines(jobs, 3)); diff != "" {
		t.Errorf("the same seed draws others:\n%s", diff)
	}
}

// Worked by hand: two seeds of 10 jobs. All hours at 2: (60 + 2·10)/10 = 8 against
// 100/10 = 10, and (70 + 2·5)/10 = 8 against 10. Spot pays 4 for 10, and 4 for 5.
func TestCostSentences(t *testing.T) {
	p := Played{Cell: costCell()}
	for seed := 1; seed <= 2; seed++ {
		owned, paid := 60.0, 10.0
		if seed == 2 {
			owned, paid = 70, 5
		}
		p.Costs = append(p.Costs,
			Cost{Row: rowPremises, Seed: seed, GPUs: 64, Owned: 100, Busy: 50, Jobs: 10, Met: 1, Short: seed == 2},
			Cost{Row: rowFixed, Seed: seed, GPUs: 64, Owned: 100, Busy: 50, Jobs: 10, Met: 1},
			Cost{Row: rowDemand, Seed: seed, GPUs: 48, Owned: owned, Busy: 40, Bought: paid, Jobs: 10, Met: 1, QueueP95: 300},
			Cost{Row: rowSpot, Seed: seed, GPUs: 48, Owned: owned, Busy: 40, Bought: 4, Jobs: 10, Met: 0.9},
			Cost{Row: rowWait, Seed: seed, GPUs: 48, Owned: 60, Busy: 40, Bought: 15, Jobs: 10, Met: 1, QueueP95: 369},
			Cost{Row: rowWait, Seed: seed, GPUs: 64, Owned: 80, Busy: 50, Bought: 10, Jobs: 10, Met: 1, QueueP95: 360, Size: true},
			Cost{Row: rowPremisesMost, Seed: seed, GPUs: 96, Owned: 120, Busy: 50, Jobs: 10, Met: 0.99},
			Cost{Row: rowPremisesWait, Seed: seed, GPUs: 128, Owned: 180, Busy: 50, Jobs: 10, Met: 1})
	}
	var text page
	text.cost([]Played{p})
	for _, want := range []string{
		"| smaller, buys on demand | 48 | 100.0 % | 5 min | 8 | 7.62 | 8.00 | 8.75 | 5.12 | 5.50 | 6.25 |",
		"In 1 of 2 seeds no fleet up to 4 times",
		// (60 + 2·15)/10 = 9 against 18, 12 and 10; busy (40 + 30)/10 = 7 against 5.
		"of 10 s, up to 4 times the fixed fleet may be bought, no job has a deadline that is known): reached, 369 s (369 s to 369 s)",
		"(smaller, buys for long waits): reached by all hours owned, 50.0 % (50.0 % to 50.0 %), against the fleet that meets as many deadlines; by busy hours -40.0 %.",
		"against one that meets 99 % it is 25.0 % (25.0 % to 25.0 %) lower, and against one that meets as many as are met when only deadlines buy, fewer than here, 10.0 %",
		"| smaller, buys for long waits | 48 | 100.0 % | 6 min | 15 | 8.25 | 9.00 | 10.50 |\n| smaller, buys for long waits | 64 | 100.0 % | 6 min | 10 | 9.50 | 10.00 | 11.00 |",
		"The bound is 0 %, with nothing bought",
		"(smaller, buys on demand): reached by all hours owned, 20.0 % (20.0 % to 20.0 %); by busy hours -10.0 %.",
		"a decision, 6 min**: reached, 5 min",
		"**Spot saves 40.0 %**", "with 90.0 % of the deadlines met against 100.0 %",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, text.String())
		}
	}
	for i := range p.Costs {
		p.Costs[i].Bought = 0
	}
	var none page
	none.cost([]Played{p})
	if !strings.Contains(none.String(), "Nothing is bought in any seed") {
		t.Errorf("spot saves what nobody paid:\n%s", none.String())
	}
	var empty page
	if empty.cost(nil); empty.Len() > 0 {
		t.Errorf("a section of no cells: %s", empty.String())
	}
}
