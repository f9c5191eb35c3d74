package study

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/sim"
)

// Write writes the document of a study, and its plots as SVG into the directory of
// the same name beside it.
func Write(name string, all []Played, quick bool) error {
	dir := strings.TrimSuffix(name, filepath.Ext(name))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write evaluation: %w", err)
	}
	plots, err := draw(all)
	if err != nil {
		return err
	}
	for _, p := range plots {
		if err := os.WriteFile(filepath.Join(dir, p.file), p.svg, 0o644); err != nil {
			return fmt.Errorf("write evaluation: %w", err)
		}
	}
	var p page
	p.setup(all, quick)
	// Of a part of the comparisons nothing is said that needs others.
	compared := len(kind(all, KindHeadline, KindTraces)) > 0
	if compared {
		p.headline(all)
	}
	if len(kind(all, KindHeadline)) > 0 {
		p.claim(all)
	}
	if compared {
		p.targets(all)
	}
	p.cost(all)
	if compared {
		p.losses(all)
		p.parts(all)
	}
	p.sensitivity(all)
	p.ablation(all)
	p.plots(plots, filepath.Base(dir))
	if err := os.WriteFile(name, []byte(strings.TrimRight(p.String(), "\n")+"\n"), 0o644); err != nil {
		return fmt.Errorf("write evaluation: %w", err)
	}
	return nil
}

// setup says what was compared, and how.
func (p *page) setup(all []Played, quick bool) {
	runs, jobs := 0, 0
	for i := range all {
		runs += len(all[i].Results)
		for _, n := range all[i].Jobs {
			jobs += n * len(all[i].Cell.Policies)
		}
	}
	p.say("# Evaluation\n")
	p.say("<!-- Written by `caravan simulate --compare`; changes by hand are lost. -->\n")
	command := "caravan simulate --compare --trace-dir DIR --out RUNS --evaluation docs/evaluation.md"
	if quick {
		command += " --quick"
		p.say("**A quick run**: fewer days and jobs, two seeds. It shows the form and roughly the result;\nintervals are wide (they are of two values each), and T is short beside the longest jobs.\n")
	}
	if kinds := slices.DeleteFunc(Kinds(), func(name string) bool { return len(kind(all, name)) == 0 }); len(kinds) < len(Kinds()) {
		command += " --only " + strings.Join(kinds, ",")
		p.say("**A part of the comparisons**: of what needs others nothing is said.\n")
	}
	p.say("```sh\n%s\n```\n", command)
	p.say("wrote every number and every sentence with a number below, from %d runs with %d jobs in all.\nThe cells' results are JSON in `RUNS`. What is modelled, and how each figure is measured,\nis in [the simulator's page](simulator.md); `caravan trace check-events` checks any run's\nevents with a program that shares no code with the simulator.\n", runs, jobs)
	p.say("## Set-up\n")
	p.say(`- *Clusters*: nodes of 8 H100, 4 to a rack, 8 racks to a block.
- *Traces*: Microsoft's ITP jobs (7 clusters, 2021), each size of cluster with the trace
  whose own cluster was nearest in size; and synthetic gangs of foundation-model training,
  up to a quarter of the cluster. Whole days are drawn with replacement for each seed;
  submissions are moved by one factor to reach the load.
- *Load* %g unless said otherwise. At 1 and above the queue grows for as long as jobs come:
  there is no steady state, and the figures are of these windows.
- *Estimates*: run time × lognormal (σ = 1), the same for every policy. *Jobs* are rigid, but for
  the rows that say otherwise. No failures.
- *Decisions*: at most one in 10 s, for every policy.
- *Policies*: %s. The first two are
  what clusters run without Caravan, backfill is EASY by the planner's own code. caravan is the
  default, by which jobs that save their work give way, as all do here unless a row says otherwise;
  with +no-preempt nobody does, as with preempt.enabled = false.
- *Intervals* are 95 %% confidence intervals of the mean of paired differences, seed by seed.
`, headlineLoad, "`"+strings.Join(compared, "`, `")+"`")
	p.say("What rests on a modelling choice: how much slower a gang is when spread out (one formula\nfor each class of work; jobs without a class count as fine-tuning), that no job fails,\nthat all can save their work and load it again, and that Kubernetes gives a partial gang up after %d minutes.\n", int(sim.KubeTimeout/60))
	rows := [][]string{{"comparison", "jobs per seed", "load", "submissions moved by", "seeds"}}
	for _, c := range kind(all, KindHeadline, KindTraces) {
		n := 0.0
		for _, k := range c.Jobs {
			n += float64(k)
		}
		rows = append(rows, []string{c.Cell.name(), whole(n / float64(len(c.Jobs))), fmt.Sprint(c.Cell.Load), fmt.Sprintf("× %.3g", sim.Of(c.Factors).Mean), fmt.Sprint(c.Cell.Seeds)})
	}
	p.table(rows)
}

// headline is the comparison of the policies.
func (p *page) headline(all []Played) {
	p.say("## The policies\n")
	p.say("Means over the seeds. *Stranded* is fillable and fragmented together; the last row of\neach table is what no schedule can exceed, or go below.\n")
	for _, c := range kind(all, KindHeadline, KindTraces) {
		p.say("**%s**\n", c.Cell.name())
		p.comparison(&c)
	}
	p.say("### Differences\n")
	keys := []string{"utilisation_productive", "jct_mean_s", "jct_p99_s", "jct_p999_s", "jct_max_s", "jct_gpu_weighted_s", "queue_p95_s"}
	for _, pair := range [][2]string{{caravan, sim.PolicyKube}, {caravan, backfill}, {staying, sim.PolicyKube}, {staying, backfill}} {
		rows := [][]string{{pair[0] + " against " + pair[1]}}
		for _, key := range keys {
			rows[0] = append(rows[0], figureOf(key).name)
		}
		for _, c := range kind(all, KindHeadline, KindTraces) {
			row := []string{c.Cell.name()}
			for _, key := range keys {
				row = append(row, c.change(pair[0], pair[1], key))
			}
			rows = append(rows, row)
		}
		p.table(rows)
	}
}

// comparison is the table of one cell.
func (p *page) comparison(c *Played) {
	rows := [][]string{{"policy"}}
	for _, f := range figures {
		rows[0] = append(rows[0], f.name)
	}
	for _, policy := range c.Cell.Policies {
		row := []string{policy}
		for _, f := range figures {
			row = append(row, f.text(c.mean(policy, f.key)))
		}
		rows = append(rows, row)
	}
	row := []string{"*bound*"}
	for _, f := range figures {
		bound, there := boundOf[f.key]
		switch {
		case f.key == "jct_p99_s":
			row = append(row, f.text(c.leastOf(alone)))
		case there:
			row = append(row, f.text(c.mean(c.Cell.Policies[0], bound)))
		default:
			row = append(row, "")
		}
	}
	p.table(append(rows, row))
}

// sensitivity shows what load, estimates, restarts and elastic jobs do.
func (p *page) sensitivity(all []Played) {
	if len(kind(all, KindLoad, KindEstimates, KindRestart, KindSaves, KindInteractive, KindRows)) == 0 {
		return
	}
	p.say("## What the results depend on\n")
	keys := []string{"utilisation_productive", "utilisation_bound", "jct_mean_s", "jct_p99_s", "jct_max_s", "jct_gpu_weighted_s", "queue_p95_s", "interactive_start_p95_s", stranded, "preemptions"}
	for _, part := range []struct{ kind, title, text string }{
		{KindLoad, "Load", "From a load of 1 on nothing is steady."},
		{KindEstimates, "Error of estimates", "σ of the lognormal factor; 0 is exact."},
		{KindRestart, "Cost of restarts", "A factor on the time that saving and loading take. Only who stops somebody pays it. `las` and `gittins`\nlook worse on P99 than on the mean because they know no run times: a job that has had much waits for all that\nhave had less, and nodes that are kept for a gang stay empty meanwhile, for they have no backfill unless it is named."},
		{KindSaves, "Jobs that save nothing", "So many percent of the jobs save nothing of what they do. By default they are not stopped, and from half of\nthe GPUs on the order is the one in which nobody is; with `+unsaved` they are, and lose all that they have done."},
		{KindInteractive, "Interactive jobs that say so", "By default nobody says which jobs somebody waits for. Here those of one GPU that the metric counts do,\nat a load of 1: `+reserve` keeps 2 % of the GPUs for them, `+reserve=30` 30 %, `+lend` lets others use the 2 % meanwhile and\nstops them for an interactive job. Without a reserve a job that displaces another one waits up to 10 s for the\ndecision, until the other one has saved its state, and up to 10 s for the next decision."},
		{KindRows, "Known run times, none, and elastic jobs", "The jobs are the same but for that. Elastic ones may have half to twice their nodes, and are as much faster."},
	} {
		if len(kind(all, part.kind)) == 0 {
			continue
		}
		p.say("### %s\n", part.title)
		p.say("%s\n", part.text)
		head := []string{part.kind, "policy"}
		for _, key := range keys {
			head = append(head, figureOf(key).name)
		}
		rows := [][]string{head}
		for _, c := range kind(all, part.kind) {
			for _, policy := range c.Cell.Policies {
				row := []string{strings.TrimPrefix(c.Cell.ID, part.kind+"-"), policy}
				for _, key := range keys {
					row = append(row, figureOf(key).text(c.mean(policy, key)))
				}
				rows = append(rows, row)
			}
		}
		p.table(rows)
	}
}

// ablation shows what each part of the default policy is worth.
func (p *page) ablation(all []Played) {
	if len(kind(all, KindAblation)) == 0 {
		return
	}
	p.say("## What each mechanism is worth\n")
	p.say("Each row is the default policy with one part taken away, added or put in the place of its own;\ndifferences are from the default.\n")
	for _, c := range kind(all, KindAblation) {
		keys := []string{"utilisation_productive", "jct_mean_s", "jct_p99_s", "jct_max_s", "jct_gpu_weighted_s", "queue_p95_s"}
		rows := [][]string{{c.Cell.name()}}
		for _, key := range keys {
			rows[0] = append(rows[0], figureOf(key).name)
		}
		rows[0] = append(rows[0], "stranded", "preempted")
		for _, policy := range c.Cell.Policies {
			row := []string{policy}
			for _, key := range keys {
				if policy == caravan {
					row = append(row, figureOf(key).text(c.mean(policy, key)))
				} else {
					row = append(row, c.change(policy, caravan, key))
				}
			}
			rows = append(rows, append(row, percent(c.mean(policy, stranded)), whole(c.mean(policy, "preemptions"))))
		}
		p.table(rows)
	}
}

// plots shows the plots.
func (p *page) plots(list []plot, dir string) {
	p.say("## Plots\n")
	for _, one := range list {
		p.say("%s\n\n![%s](%s/%s)\n", one.title, one.title, dir, one.file)
	}
}
