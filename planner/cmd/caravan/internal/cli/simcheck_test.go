package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// What is wrong with the flags is said before the trace is opened, all of it at once:
// there is no such trace here.
func TestSimulateIsRefusedEarly(t *testing.T) {
	tests := map[string]struct {
		args     []string
		wantCode int
		want     []string
	}{
		"every flag": {
			[]string{"--format", "xml", "--time-unit", "h", "--policies", "best,gang,gang,sjf+luck,sjf@luck", "--load", "NaN", "--seeds", "0", "--gpus", "12", "--interval", "-1", "--max-jobs", "0", "--elastic", "2", "--elastic-speed", "cubic", "--oversubscription", "2", "--workers", "-1"}, CodeUsage,
			[]string{`--format "xml": want one of itp, gavel, openb, sacct, csv`, `--time-unit "h": want s, ms or min`, `policy "best": want one of k8s-default`, "policy gang is there twice", "policy sjf+luck: want easy", `policy sjf@luck: "luck": want one of`, "load NaN: want 0.0001 to 100", "seeds 0: want 1 to 1000", "12 GPUs with 8 per node", "interval -1", "--max-jobs 0", "elastic part 2", `--elastic-speed "cubic"`, "--oversubscription: 1 numbers", "workers -1"},
		},
		"more seeds than anybody waits for":  {[]string{"--seeds", "100000000"}, CodeUsage, []string{"seeds 100000000: want 1 to 1000"}},
		"files and flags":                    {[]string{"--cluster", "/no/cluster", "--policies", "/no/policy.hcl", "--queues", "/no/queues", "--pools", "/no/pools", "--load", "-1"}, CodeUsage, []string{"read cluster", "read policy", "read queues", "read pools", "load -1"}},
		"a load that is not asked for":       {[]string{"--unscaled", "--load", "0.9"}, CodeUsage, []string{"--load beside --unscaled, which leaves submissions where they are"}},
		"files alone":                        {[]string{"--cluster", "/no/cluster", "--policies", "/no/policy.hcl"}, CodeFailure, []string{"read cluster", "read policy"}},
		"no trace beside another fault":      {[]string{"--trace", "", "--load", "0"}, CodeUsage, []string{"no trace: name a file", "load 0"}},
		"events nowhere":                     {[]string{"--events", "/no/such/events"}, CodeFailure, []string{"write events: open /no/such/events"}},
		"events into a directory":            {[]string{"--events", os.TempDir()}, CodeFailure, []string{"write events: create " + os.TempDir() + ": it is a directory"}},
		"a trace that is none, and no fault": {nil, CodeFailure, []string{"read trace: open /no/trace"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := newFakePlanner(t).call(nil, "", append([]string{"simulate", "--trace", "/no/trace"}, test.args...)...)
			if got.code != test.wantCode || got.out != "" {
				t.Errorf("exit code %d, want %d: %s", got.code, test.wantCode, got.out)
			}
			for _, want := range test.want {
				if !strings.Contains(got.errOut, want) {
					t.Errorf("it lacks %q:\n%s", want, got.errOut)
				}
			}
			if name != "a trace that is none, and no fault" && strings.Contains(got.errOut, "read trace") {
				t.Errorf("the trace was opened: %s", got.errOut)
			}
		})
	}
}

// How elastic jobs grow faster is not said where there are none.
func TestElasticSpeedOfNoElasticJobs(t *testing.T) {
	rigid := writeFile(t, "rigid.csv", smallTrace())
	elastic := writeFile(t, "elastic.csv", "job,submit_s,duration_s,gpus,max_gpus\na,0,60,8,16\nb,60,60,8,\n")
	tests := map[string]struct {
		args []string
		want int
	}{
		"none":           {[]string{"--trace", rigid}, CodeUsage},
		"by the trace":   {[]string{"--trace", elastic}, CodeOK},
		"by a flag":      {[]string{"--trace", rigid, "--elastic", "0.1"}, CodeOK},
		"by a row":       {[]string{"--trace", rigid, "--policies", "gang@elastic30"}, CodeOK},
		"by another row": {[]string{"--trace", rigid, "--policies", "gang@oracle,gang@oracle@elastic100"}, CodeOK},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := newFakePlanner(t).call(nil, "", append([]string{"simulate", "--policies", "gang", "--gpus", "32", "--seeds", "1", "--elastic-speed", "model"}, test.args...)...)
			if got.code != test.want || got.code != CodeOK && !strings.Contains(got.errOut, "--elastic-speed model without elastic jobs") {
				t.Errorf("exit code %d: want %d\n%s", got.code, test.want, got.errOut)
			}
		})
	}
}

// How many jobs name models that the cluster has not is said, and that they count for
// nothing where it has one model only.
func TestSimulateSaysModels(t *testing.T) {
	path := writeFile(t, "trace.csv", "job,submit_s,duration_s,gpus,gpu_models\na,0,60,8,H100|A10\nb,10,60,8,A10\nc,60,60,8,\nd,120,60,8,H100\n")
	cluster := writeFile(t, "ours.hcl", "nodes \"a\" {\n  count = 2\n  gpus = 8\n  model = \"H100\"\n}\n")
	tests := map[string]struct {
		args []string
		want []string
	}{
		"a file":      {[]string{"--cluster", cluster}, []string{"2 of 3 jobs that name GPU models name some that the cluster has not (A10); 1 of them name no other one, and are left out: the first is b", `"jobs_with_none_that_it_has": 1`}},
		"equal nodes": {[]string{"--gpus", "16"}, []string{"3 jobs name GPU models that they may run on, which counts for nothing: the cluster has one model; describe yours with --cluster FILE", `"ignored": true`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := newFakePlanner(t).call(nil, "", append([]string{"simulate", "--trace", path, "--policies", "gang", "--seeds", "1", "--no-bootstrap", "--json"}, test.args...)...)
			for _, want := range test.want {
				if got.code != CodeOK || !strings.Contains(got.out+got.errOut, want) {
					t.Errorf("exit code %d, and it lacks %q:\n%s%s", got.code, want, got.out, got.errOut)
				}
			}
		})
	}
}

// Before very many jobs are played it is said what memory that takes, and what helps.
func TestSimulateSaysItsMemory(t *testing.T) {
	tests := map[string]struct {
		jobs, workers, seeds int
		want                 string
	}{
		"a million":              {1_000_000, 1, 5, "1000000 jobs in 1 runs at once take about 1.9 GB of memory: --max-jobs and --workers make it less"},
		"in several runs":        {1_000_000, 8, 3, "1000000 jobs in 6 runs at once take about 4.7 GB"},
		"more workers than runs": {1_000_000, 8, 1, "in 2 runs at once take about 2.5 GB"},
		"few":                    {100_000, 1, 5, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var errOut strings.Builder
			a := app{env: Env{Stderr: &errOut}}
			err := a.large(&sim.Comparison{Jobs: make([]trace.Job, test.jobs), Workers: test.workers, Seeds: test.seeds, Policies: []string{"gang", "backfill"}})
			if got := errOut.String(); err != nil || !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
				t.Errorf("%q, %v: want %q", got, err, test.want)
			}
		})
	}
}

// interrupter cancels a context as soon as something with a text in it is written.
type interrupter struct {
	text   string
	cancel context.CancelFunc
	seen   strings.Builder
}

func (i *interrupter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), i.text) {
		i.cancel()
	}
	return i.seen.Write(p)
}

// endless is a trace from a pipe that nobody ends.
type endless struct{}

func (endless) Read([]byte) (int, error) { select {} }

// Whoever stops a command is told so, and finds nothing that looks whole.
func TestInterrupts(t *testing.T) {
	path := writeFile(t, "trace.csv", smallTrace())
	reading, playing := "it was interrupted before the trace was read to its end\n", "simulate: it was interrupted before all runs had ended\n"
	tests := map[string]struct {
		args []string
		// at is what is written when it is interrupted; "": it is before it begins.
		at, want string
	}{
		"a simulation's trace": {[]string{"simulate", "--trace", path, "--gpus", "16"}, "", path + ": " + reading},
		"its runs":             {[]string{"simulate", "--trace", path, "--gpus", "16"}, "can never hold them", playing},
		"a trace of a pipe":    {[]string{"simulate", "--trace", "-", "--gpus", "16"}, "", "-: " + reading},
		"describe":             {[]string{"trace", "describe", path}, "", path + ": " + reading},
		"describe a pipe":      {[]string{"trace", "describe", "-"}, "", "-: " + reading},
		"convert":              {[]string{"trace", "convert", path}, "", path + ": " + reading},
		"sample a pipe":        {[]string{"trace", "sample", "-"}, "", "-: " + reading},
		"scale":                {[]string{"trace", "scale", path}, "", path + ": " + reading},
		"synth":                {[]string{"trace", "synth", "--jobs", "10"}, "", "it was interrupted before all jobs were made\n"},
		"check events":         {[]string{"trace", "check-events", path, "--gpus", "16"}, "", "it was interrupted before the events were read to their end\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.at == "" {
				cancel()
			}
			errOut, dir := interrupter{text: test.at, cancel: cancel}, t.TempDir()
			if test.args[0] == "simulate" {
				test.args = append(test.args, "--events", filepath.Join(dir, "events.jsonl"), "--report", filepath.Join(dir, "report"))
			}
			code := Run(ctx, test.args, Env{Stdin: endless{}, Stdout: io.Discard, Stderr: &errOut, LookupEnv: func(string) (string, bool) { return "", false }, Now: time.Now})
			if got := errOut.seen.String(); code != CodeFailure || !strings.HasSuffix(got, test.want) || strings.Contains(got, "context canceled") {
				t.Errorf("exit code %d: %s\nwant %q", code, got, test.want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("it leaves %v, %v", left, err)
			}
		})
	}
}

// The events do not take the place of what they are made of.
func TestEventsInPlaceOfTheTrace(t *testing.T) {
	path := writeFile(t, "trace.csv", smallTrace())
	got := newFakePlanner(t).call(nil, "", "simulate", "--trace", path, "--gpus", "16", "--policies", "gang", "--seeds", "1", "--events", filepath.Join(filepath.Dir(path), ".", "trace.csv"))
	if left, err := os.ReadFile(path); got.code != CodeUsage || !strings.Contains(got.errOut, "is the trace: want another file") || err != nil || string(left) != smallTrace() {
		t.Errorf("exit code %d: %s\nthe trace: %v", got.code, got.errOut, err)
	}
}

// Events that find no room stop the run.
func TestEventsWithoutRoom(t *testing.T) {
	if _, err := os.Stat("/dev/full"); errors.Is(err, os.ErrNotExist) {
		t.Skip("there is no /dev/full")
	}
	path := writeFile(t, "trace.csv", smallTrace())
	got := newFakePlanner(t).call(nil, "", "simulate", "--trace", path, "--gpus", "16", "--policies", "gang", "--seeds", "1", "--events", "/dev/full")
	if got.code != CodeFailure || got.out != "" || !strings.Contains(got.errOut, "write events: write /dev/full: no space left on device") {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.errOut)
	}
}

// A trace whose times are hardly those of a cluster is played, and it is said wherever the
// result is.
func TestDoubtfulTimes(t *testing.T) {
	path := writeFile(t, "trace.csv", "job,submit_s,duration_s,gpus\na,0,500,1\nb,1000,600,1\nc,2000,700,8\n")
	const want = "half of the jobs run for 0.6 s or less: are the trace's times in another unit? --time-unit is ms, and may be s, ms or min"
	for unit, doubted := range map[string]bool{"ms": true, "s": false} {
		dir := t.TempDir()
		for _, args := range [][]string{{"simulate", "--trace", path, "--gpus", "8", "--policies", "gang", "--seeds", "1", "--report", dir}, {"trace", "describe", path}} {
			got := newFakePlanner(t).call(nil, "", append(args, "--time-unit", unit, "--json")...)
			if got.code != CodeOK {
				t.Fatalf("%v: exit code %d: %s", args, got.code, got.errOut)
			}
			if strings.Contains(got.errOut, want) != doubted || strings.Contains(got.out, `"warnings"`) != doubted {
				t.Errorf("%v: with --time-unit %s: want it said: %t\n%s%s", args, unit, doubted, got.errOut, got.out)
			}
		}
		page, err := os.ReadFile(filepath.Join(dir, "index.html"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(page), "half of the jobs") != doubted {
			t.Errorf("the report with --time-unit %s: want it said: %t", unit, doubted)
		}
	}
}
