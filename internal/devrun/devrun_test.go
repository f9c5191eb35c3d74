package devrun

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/nomadproc"
)

// TestScenarios plays every scenario on the stand-in, and on a real Nomad where
// there is one.
func TestScenarios(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), pluginName)
	if out, err := exec.Command("go", "build", "-o", plugin, "../../devicegpu/cmd/"+pluginName).CombinedOutput(); err != nil {
		t.Fatalf("build the device plugin: %v\n%s", err, out)
	}
	for _, backend := range []string{devcluster.BackendDevNomad, devcluster.BackendNomad} {
		for _, scenario := range Scenarios() {
			t.Run(backend+"/"+scenario, func(t *testing.T) {
				if _, ok := nomadproc.Find(); backend == devcluster.BackendNomad && !ok {
					t.Skip("needs Nomad: set NOMAD_BIN or put nomad on the PATH")
				}
				play(t, Options{Scenario: scenario, Backend: backend, Plugin: plugin})
			})
		}
	}
}

func play(t *testing.T, opts Options) {
	t.Helper()
	var log logTail
	var out bytes.Buffer
	opts.Once, opts.Out, opts.Log = true, &out, log.add
	report, err := Run(context.WithoutCancel(t.Context()), opts)
	if err != nil || !report.OK {
		t.Errorf("Run() = %v\n%s\nlog:\n%s", err, &out, log.String())
	}
	if report.Backend != opts.Backend || report.NomadVersion == "" || report.Addresses.Caravan == "" || len(report.Gangs) == 0 {
		text, _ := json.Marshal(report)
		t.Errorf("report lacks something: %s", text)
	}
	for _, g := range report.Gangs {
		for i, m := range g.Members {
			if m.Rank != i || m.Node == "" || len(m.GPUs) == 0 || len(m.Islands) == 0 {
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
