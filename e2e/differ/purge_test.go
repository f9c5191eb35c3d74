package differ

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/nomadproc"
)

// TestPurgeFreesAtOnce: a purge takes a job's allocations with it, so that
// Nomad gives away the GPUs of tasks that have not ended yet.
func TestPurgeFreesAtOnce(t *testing.T) {
	t.Run("stand-in", func(t *testing.T) { purgeFreesAtOnce(t, standIn(t)) })
	if _, ok := nomadproc.Find(); !ok {
		return
	}
	t.Run("nomad", func(t *testing.T) {
		w, release, _ := realNomad(t)
		defer release()
		purgeFreesAtOnce(t, w)
	})
}

func purgeFreesAtOnce(t *testing.T, w *world) {
	w.played++
	pidFile := filepath.Join(t.TempDir(), "pid")
	stubborn := (&shape{Type: api.JobTypeBatch, Groups: []groupShape{{Count: 1, GPUs: gpusPerNode}}}).job(w.id("stubborn"))
	stubborn.Constraints = append(stubborn.Constraints, &api.Constraint{LTarget: "${node.unique.name}", Operand: "=", RTarget: nodeName(0)})
	task := stubborn.TaskGroups[0].Tasks[0]
	task.SetConfig("args", []string{"-c", "trap '' TERM INT; echo $$ > " + pidFile + "; while :; do sleep 1; done"})
	task.KillTimeout = ptr(20 * time.Second)
	next := clone(stubborn)
	next.ID, next.Name = ptr(w.id("next")), ptr(w.id("next"))
	t.Cleanup(func() {
		// The test's own context has ended here.
		if err := w.clean(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if _, err := w.register(stubborn); err != nil {
		t.Fatal(err)
	}
	if err := w.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := lacking(t, w, next); n != 1 {
		t.Fatalf("%d groups lack a place beside the first job, want 1", n)
	}
	if _, _, err := w.api.Jobs().Deregister(*stubborn.ID, true, nil); err != nil {
		t.Fatal(err)
	}
	if n := lacking(t, w, next); n != 0 {
		t.Errorf("%d groups lack a place after the purge, want 0", n)
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the task of the purged job has ended: %v", err)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL) // nobody has to wait for its kill_timeout
}

// lacking counts the groups of a job that would find no place now.
func lacking(t *testing.T, w *world, job *api.Job) int {
	t.Helper()
	resp, _, err := w.api.Jobs().Plan(clone(job), false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return len(resp.FailedTGAllocs)
}
