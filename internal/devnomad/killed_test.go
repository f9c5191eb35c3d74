package devnomad_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadplugin/plugintest"
)

// toBeKilled tells the test's binary to run a cluster until it is killed.
const toBeKilled = "CARAVAN_TEST_CLUSTER_TO_BE_KILLED"

// TestHelperToBeKilled is no test: TestKilledProcessLeavesNothing runs it.
func TestHelperToBeKilled(t *testing.T) {
	if os.Getenv(toBeKilled) == "" {
		t.Skip("it runs as a process of its own")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	plugin := devcluster.Plugin{Name: plugintest.DeviceName, Path: self, Config: `count = 1`}
	c := startSpec(t, devcluster.Spec{Nodes: []devcluster.Node{{Name: "a", Plugins: []devcluster.Plugin{plugin}}}}, devnomad.Options{})
	register(t, c, job("sleeper", api.JobTypeBatch, 1, "exec sleep 300"))
	reach(t, c, "sleeper", api.AllocClientStatusRunning, 1)
	fmt.Println("ready")
	select {}
}

// TestKilledProcessLeavesNothing: plugins, tasks and folders go with the
// process that started the cluster, however it ends.
func TestKilledProcessLeavesNothing(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGQUIT} {
		t.Run(signal.String(), func(t *testing.T) {
			dir := t.TempDir()
			mark := toBeKilled + "=" + filepath.Base(filepath.Dir(dir)) + signal.String()
			cmd := exec.Command(os.Args[0], "-test.run=^TestHelperToBeKilled$", "-test.v")
			cmd.Env = append(os.Environ(), mark, "TMPDIR="+dir)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ready := false
			for lines := bufio.NewScanner(out); !ready && lines.Scan(); {
				ready = lines.Text() == "ready"
			}
			// The plugin inherits the mark, and the task has its folder.
			if n := len(having(t, mark, dir)); !ready || n < 3 {
				t.Errorf("ready: %v, with %d processes", ready, n)
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed
			var left []string
			t.Cleanup(func() {
				if t.Failed() {
					t.Errorf("left: %q", left)
				}
			})
			eventually(t, "everything is gone", func() bool {
				files, err := filepath.Glob(filepath.Join(dir, "*"))
				if err != nil {
					t.Fatal(err)
				}
				left = append(files, having(t, mark, dir)...)
				return len(left) == 0
			})
		})
	}
}

// having lists the processes with one of the texts in their environment.
func having(t *testing.T, texts ...string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		raw, err := os.ReadFile(f)
		for _, text := range texts {
			if err == nil && bytes.Contains(raw, []byte(text)) && !strings.HasSuffix(f, fmt.Sprintf("/%d/environ", os.Getpid())) {
				out = append(out, f)
				break
			}
		}
	}
	return out
}
