// Package report shows what came of simulations: one HTML file that needs no
// other, and the data behind it as CSV.
package report

import (
	"bytes"
	"embed"
	"encoding/base64"
	"encoding/csv"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/wholefile"
)

// Input is what is reported on.
type Input struct {
	// Title and Setup say what was simulated: "GPUs" → "512, 8 per node".
	Title string
	Setup [][2]string
	// Policies are in the order in which they are shown; the first is what the
	// others are compared with.
	Policies []string
	Results  []sim.Result
	// GPUs is the size of the cluster.
	GPUs int
}

//go:embed page.html
var files embed.FS

// page is what the template fills in.
type page struct {
	Input
	Head     []string
	Rows     [][]string
	Against  []string
	Compared [][]string
	Tenants  []string
	Queues   [][]string
	Plots    []plotted
	Pictures []picture
	// Several: there is more than one seed. Pictured is of how many GPUs there are
	// pictures.
	Several  bool
	Pictured int
}

type plotted struct {
	Title, Text string
	SVG         template.HTML
	// All: it shows all seeds, and not the first alone.
	All bool
}

type picture struct {
	Title string
	PNG   string // base64
}

// Make makes the directory of a report, if there is none, and tries whether files can be
// written there. undo takes a directory that it has made away again, if nothing is in it.
func Make(dir string) (undo func(), err error) {
	undo = func() {}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		undo = func() { _ = os.Remove(dir) } // which fails where there is a report
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return undo, fmt.Errorf("write report: %w", err)
	}
	f, err := os.CreateTemp(dir, "report")
	if err != nil {
		return undo, fmt.Errorf("write report: %w", err)
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return undo, fmt.Errorf("write report: %w", err)
	}
	return undo, nil
}

// Write writes the report into a directory, which it makes.
func Write(dir string, in Input) error {
	if _, err := Make(dir); err != nil {
		return err
	}
	p := page{Input: in}
	p.Head, p.Rows = table(in)
	p.Against, p.Compared = compared(in)
	p.Tenants, p.Queues = queues(in)
	p.Several = slices.ContainsFunc(in.Results, func(r sim.Result) bool { return r.Seed != in.Results[0].Seed })
	plots, err := plots(in)
	if err != nil {
		return err
	}
	p.Plots = plots
	for _, policy := range in.Policies {
		if o := first(in, policy); o != nil && len(o.Spans()) > 0 {
			png, err := occupancy(o)
			if err != nil {
				return err
			}
			for _, span := range o.Spans() {
				p.Pictured = max(p.Pictured, span.Row+1)
			}
			p.Pictures = append(p.Pictures, picture{policy, base64.StdEncoding.EncodeToString(png)})
		}
	}
	t, err := template.ParseFS(files, "page.html")
	if err != nil {
		return fmt.Errorf("read the report's template: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, p); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	// The page is last: who sees it has all of its data.
	if err := writeData(dir, in); err != nil {
		return err
	}
	if err := wholefile.Write(filepath.Join(dir, "index.html"), b.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// first is a policy's run with the first seed.
func first(in Input, policy string) *sim.Outcome {
	for i := range in.Results {
		if in.Results[i].Policy == policy {
			return in.Results[i].Outcome
		}
	}
	return nil
}

func writeData(dir string, in Input) error {
	metrics, err := metricData(in)
	if err != nil {
		return err
	}
	if err := writeCSV(dir, "metrics.csv", []string{"policy", "seed", "metric", "value"}, metrics); err != nil {
		return err
	}
	header, sizes := sizeData(in)
	if err := writeCSV(dir, "sizes.csv", header, sizes); err != nil {
		return err
	}
	if header, rows := queueData(in); len(rows) > 0 {
		if err := writeCSV(dir, "queues.csv", header, rows); err != nil {
			return err
		}
	}
	var jobs, time [][]string
	for _, policy := range in.Policies {
		o := first(in, policy)
		if o == nil {
			continue
		}
		for _, j := range o.Done() {
			jobs = append(jobs, []string{policy, j.ID, j.Queue, j.Class, strconv.Itoa(j.GPUs), number(j.Submit), number(j.First), number(j.Ended), number(j.Duration), strconv.Itoa(j.Stops), strconv.FormatBool(j.Cohort)})
		}
		for _, s := range o.Samples() {
			time = append(time, []string{policy, number(s.At), strconv.Itoa(s.Allocated), strconv.Itoa(s.Busy), strconv.Itoa(s.Waiting), strconv.Itoa(s.WaitingGPUs), strconv.Itoa(s.Fillable), strconv.Itoa(s.Fragmented), strconv.Itoa(s.Indivisible)})
		}
	}
	if err := writeCSV(dir, "jobs.csv", []string{"policy", "job", "queue", "class", "gpus", "submit_s", "start_s", "end_s", "duration_s", "stops", "cohort"}, jobs); err != nil {
		return err
	}
	return writeCSV(dir, "time.csv", []string{"policy", "t_s", "allocated", "busy", "waiting_jobs", "waiting_gpus", "fillable", "fragmented", "indivisible"}, time)
}

func writeCSV(dir, name string, header []string, rows [][]string) error {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	if err := w.WriteAll(append([][]string{header}, rows...)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := wholefile.Write(filepath.Join(dir, name), b.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 9, 64) }
