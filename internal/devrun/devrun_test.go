package devrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devjoin"
	"github.com/caravan-sched/caravan/internal/nomadproc"
)

// TestScenarios plays every scenario on the stand-in, and on a real Nomad where
// there is one.
func TestScenarios(t *testing.T) {
	plugin := build(t)
	for _, backend := range []string{devcluster.BackendDevNomad, devcluster.BackendNomad} {
		for _, scenario := range Scenarios() {
			t.Run(scenario+"/on-"+backend, func(t *testing.T) {
				if _, ok := nomadproc.Find(); backend == devcluster.BackendNomad && !ok {
					t.Skip("needs Nomad: set NOMAD_BIN or put nomad on the PATH")
				}
				if _, err := exec.LookPath(autoscalerName); scenario == ScenarioBurst && (err != nil || !terraform.HasBinary()) {
					t.Skip("needs nomad-autoscaler, and terraform or tofu, on the PATH: make tools builds them")
				}
				t.Parallel() // most of the time they wait
				play(t, Options{Scenario: scenario, Backend: backend, Plugin: plugin})
			})
		}
	}
}

// TestInterrupted ends a run in its middle: it must say so, and end everything.
func TestInterrupted(t *testing.T) {
	plugin := build(t)
	ctx, interrupt := context.WithCancelCause(t.Context())
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	out := writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "gated") {
			interrupt(errors.New("Ctrl-C"))
		}
		return len(p), nil
	})
	report, err := Run(ctx, Options{Backend: devcluster.BackendDevNomad, Plugin: plugin, Once: true, Out: out})
	if err == nil || report.OK || !strings.Contains(report.Error, "Ctrl-C") {
		t.Errorf("Run() = %v with report error %q, want the interruption", err, report.Error)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		t.Errorf("%s was left behind", f.Name())
	}
}

// TestStaysUp: without Once the cluster stays until the context ends, and that
// is no error.
func TestStaysUp(t *testing.T) {
	plugin := build(t)
	ctx, stop := context.WithCancel(t.Context())
	out := writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "The cluster stays up") {
			stop()
		}
		return len(p), nil
	})
	if report, err := Run(ctx, Options{Backend: devcluster.BackendDevNomad, Plugin: plugin, Out: out}); err != nil || !report.OK {
		t.Errorf("Run() = %v with %+v, want no error", err, report)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestTasksFindThisProgram: a task can call the running program by its name.
func TestTasksFindThisProgram(t *testing.T) {
	plugin := build(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, backend := range []string{devcluster.BackendDevNomad, devcluster.BackendNomad} {
		t.Run(backend, func(t *testing.T) {
			if _, ok := nomadproc.Find(); backend == devcluster.BackendNomad && !ok {
				t.Skip("needs Nomad: set NOMAD_BIN or put nomad on the PATH")
			}
			t.Parallel()
			cluster, err := startCluster(t.Context(), Options{Backend: backend, Plugin: plugin}, scenarios[ScenarioGang], t.TempDir(), "4656")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := cluster.Stop(); err != nil {
					t.Error(err)
				}
			})
			task := api.NewTask("main", "raw_exec").SetConfig("command", filepath.Base(self)).SetConfig("args", []string{"-test.run=^$"})
			job := api.NewBatchJob("calls-itself", "calls-itself", "global", 50).
				AddTaskGroup(&api.TaskGroup{Name: new("main"), Tasks: []*api.Task{task}, RestartPolicy: &api.RestartPolicy{Attempts: new(0), Mode: new("fail")}})
			if _, _, err := cluster.Client().Jobs().Register(job, nil); err != nil {
				t.Fatal(err)
			}
			index := uint64(0)
			for t.Context().Err() == nil {
				allocs, meta, err := cluster.Client().Jobs().Allocations(*job.ID, true, &api.QueryOptions{WaitIndex: index})
				if err != nil {
					t.Fatal(err)
				}
				index = meta.LastIndex
				for _, a := range allocs {
					switch a.ClientStatus {
					case api.AllocClientStatusComplete:
						return
					case api.AllocClientStatusFailed:
						t.Fatalf("the task failed: %s", a.TaskStates["main"].Events[len(a.TaskStates["main"].Events)-1].DisplayMessage)
					}
				}
			}
		})
	}
}

func TestBadOptions(t *testing.T) {
	tests := map[string]struct {
		opts Options
		want string
	}{
		"scenario": {Options{Scenario: "chaos"}, `scenario "chaos"; allowed are ` + strings.Join(Scenarios(), ", ")},
		"back end": {Options{Backend: "k8s", Plugin: "/bin/true"}, `back end "k8s"; allowed are`},
		"plugin":   {Options{Plugin: "/nonexistent/plugin"}, "find plugin nomad-device-caravan: stat /nonexistent/plugin"},
		"writer": {Options{Plugin: "/nonexistent", Out: writerFunc(func([]byte) (int, error) { return 0, errors.New("pipe closed") })},
			"pipe closed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := Run(t.Context(), tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Run() = %v, want it to say %q", err, tt.want)
			}
		})
	}
}

// built is the device plugin, with the task driver beside it, built once for all
// tests into buildDir.
var (
	buildDir string
	built    = sync.OnceValues(func() (string, error) {
		plugin := filepath.Join(buildDir, pluginName)
		out, err := exec.Command("go", "build", "-o", buildDir+"/", "../../devicegpu/cmd/"+pluginName, "../../driver/cmd/"+driverName, "../../autoscaler/cmd/...").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("build the plugins: %w\n%s", err, out)
		}
		return plugin, nil
	})
)

// The test's binary is the clients of bought nodes too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "dev-client" {
		if err := devjoin.Run(context.Background(), os.Args[2:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// Tests wait for clusters most of the time.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var err error
	if buildDir, err = os.MkdirTemp("", "caravan-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(buildDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func build(t *testing.T) string {
	t.Helper()
	plugin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return plugin
}

func play(t *testing.T, opts Options) {
	t.Helper()
	var log logTail
	var out bytes.Buffer
	opts.Once, opts.Out, opts.Log = true, &out, log.add
	report, err := Run(context.WithoutCancel(t.Context()), opts)
	if errors.Is(err, devcluster.ErrNoNetworks) {
		t.Skip(err)
	}
	if err != nil || !report.OK {
		t.Errorf("Run() = %v\n%s\nlog:\n%s", err, &out, log.String())
	}
	if report.Backend != opts.Backend || report.NomadVersion == "" || report.Addresses.Caravan == "" || len(report.Gangs) == 0 {
		text, _ := json.Marshal(report)
		t.Errorf("report lacks something: %s", text)
	}
	for _, g := range report.Gangs {
		for i, m := range g.Members {
			// Replicas are each the first of one.
			if m.Rank != i && opts.Scenario != ScenarioCanary || m.Node == "" || len(m.GPUs) == 0 || len(m.Islands) == 0 {
				t.Errorf("gang %s: member %d is %+v", g.Job, i, m)
			}
		}
		if g.Reason == "" {
			t.Errorf("gang %s has no reason", g.Job)
		}
	}
}

// logTail keeps the last lines.
type logTail struct {
	mu    sync.Mutex
	lines []string
}

func (l *logTail) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const kept = 150
	if l.lines = append(l.lines, line); len(l.lines) > kept {
		l.lines = l.lines[1:]
	}
}

func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}
