package devrun

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/internal/devcluster/reaper"
)

// The autoscaler of a cluster that stays up is there after the scenario, and that it
// has ended by Ctrl-C before the cluster is no error.
func TestAutoscalerOutlivesTheScenario(t *testing.T) {
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, autoscalerName), []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs+string(os.PathListSeparator)+os.Getenv("PATH"))
	for name, ended := range map[string]bool{"it runs": false, "it has ended": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			reap, err := reaper.Start(dir)
			if err != nil {
				t.Fatal(err)
			}
			r := &run{cloud: &cloud{dir: dir, reaper: reap}}
			playing, done := context.WithCancel(t.Context())
			err = r.startAutoscaler(playing)
			done()
			if err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-r.cloud.ended:
				t.Errorf("it went with the scenario: %v", err)
				r.cloud.ended <- err
			case <-time.After(300 * time.Millisecond):
			}
			if ended {
				if err := r.cloud.cmd.Process.Signal(syscall.SIGINT); err != nil {
					t.Fatal(err)
				}
				r.cloud.ended <- <-r.cloud.ended
			}
			if err := r.cloud.stop(); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
	}
}
