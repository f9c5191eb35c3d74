package driver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
)

// patience is how long anything may take. Only a failing test waits that long.
const patience = 90 * time.Second

// rig is one test's view of a stage.
type rig struct {
	*stage
	t     *testing.T
	nomad *api.Client
	// gate is Nomad's API through the planner.
	gate *api.Client
	// diary is where members write down what they do.
	diary string
	// suffix is put behind the test's name in the jobs' IDs.
	suffix string
	// jobs are those submitted.
	jobs []string
}

func newRig(t *testing.T, s *stage) *rig {
	t.Helper()
	r := &rig{stage: s, t: t, nomad: s.cluster.Client(), diary: t.TempDir()}
	var err error
	if r.gate, err = api.NewClient(&api.Config{Address: s.planners[0].address, SecretID: s.cluster.Token()}); err != nil {
		t.Fatal(err)
	}
	if s.planners[0].cmd == nil { // a test before has failed
		if err := s.planners[0].start(); err != nil {
			t.Fatal(err)
		}
	}
	_, at := s.planners[0].log.from(0)
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := s.planners[0].log.from(at)
			t.Logf("the diary:\n%s\nthe planner's log:\n%s", r.read(), text)
		}
	})
	t.Cleanup(r.tidy)
	return r
}

// until waits for a condition; the second result of ok says what there is.
func (r *rig) until(what string, ok func() (bool, any)) {
	r.t.Helper()
	r.within(patience, what, ok)
}

func (r *rig) within(limit time.Duration, what string, ok func() (bool, any)) {
	r.t.Helper()
	deadline := time.Now().Add(limit)
	for {
		done, got := ok()
		if done {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("never: %s; last: %v", what, got)
		}
		time.Sleep(25 * time.Millisecond)
	}
}

// allFree waits until the jobs of the tests before have had their time to end.
// Elastic gangs would start with fewer members beside them.
func (r *rig) allFree() {
	r.t.Helper()
	r.until("all GPUs are free", func() (bool, any) {
		s, err := r.planners[0].api.Status(r.t.Context())
		return err == nil && s.Counts.GPUs > 0 && s.Counts.FreeGPUs == s.Counts.GPUs, s.Counts
	})
}

// tidy purges the test's jobs, and checks that nothing of them is left: no
// process, no supervisor's state.
func (r *rig) tidy() {
	for _, id := range r.jobs {
		r.purge(id)
	}
	left := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if left = r.leftovers(); left == "" {
			return
		}
	}
	r.t.Errorf("processes are left: %s", left)
}

func (r *rig) purge(id string) {
	if _, _, err := r.nomad.Jobs().Deregister(id, true, nil); err != nil && !strings.Contains(err.Error(), "not found") {
		r.t.Errorf("purge %s: %v", id, err)
	}
	live := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(25 * time.Millisecond) {
		live = ""
		list, _, err := r.nomad.Allocations().List(nil)
		for _, a := range list {
			if a.JobID == id && !ended(a.ClientStatus) {
				live += a.ID + " is " + a.ClientStatus + "; "
			}
		}
		if err == nil && live == "" {
			return
		}
	}
	r.t.Errorf("job %s does not end: %s", id, live)
}

func ended(status string) bool {
	return status == api.AllocClientStatusComplete || status == api.AllocClientStatusFailed || status == api.AllocClientStatusLost
}

// leftovers are the processes that know the test's diary.
func (r *rig) leftovers() string {
	var out []string
	for _, pid := range processes() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || !bytes.Contains(env, []byte("DIARY="+r.diary)) {
			continue
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && len(line) > 0 {
			text := strings.ReplaceAll(string(line), "\x00", " ")
			out = append(out, fmt.Sprintf("%d: %.80s", pid, text))
		}
	}
	return strings.Join(out, "; ")
}

func processes() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// allocs are a job's allocations, oldest first.
func (r *rig) allocs(job string) []*api.AllocationListStub {
	r.t.Helper()
	list, _, err := r.nomad.Jobs().Allocations(job, true, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	slices.SortFunc(list, func(a, b *api.AllocationListStub) int { return int(a.CreateIndex) - int(b.CreateIndex) })
	return list
}

// alloc is an allocation whole.
func (r *rig) alloc(id string) *api.Allocation {
	r.t.Helper()
	a, _, err := r.nomad.Allocations().Info(id, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// events are the messages of an allocation's task.
func (r *rig) events(alloc, task string) []string {
	r.t.Helper()
	var out []string
	if s := r.alloc(alloc).TaskStates[task]; s != nil {
		for _, e := range s.Events {
			out = append(out, e.DisplayMessage)
		}
	}
	return out
}

// told waits until one of a task's events contains all the words.
func (r *rig) told(alloc, task string, words ...string) string {
	r.t.Helper()
	found := ""
	r.until(fmt.Sprintf("task %s of %s is told of %q", task, alloc, words), func() (bool, any) {
		all := r.events(alloc, task)
		for _, e := range all {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e, w) }) {
				found = e
				return true, nil
			}
		}
		return false, strings.Join(all, "\n")
	})
	return found
}

// status waits until an allocation has a client status.
func (r *rig) status(alloc, want string) *api.Allocation {
	r.t.Helper()
	var a *api.Allocation
	r.until("allocation "+alloc+" "+want, func() (bool, any) {
		a = r.alloc(alloc)
		var events []string
		for name := range a.TaskStates {
			events = append(events, name+": "+strings.Join(r.events(alloc, name), "; "))
		}
		return a.ClientStatus == want, a.ClientStatus + ": " + strings.Join(events, "\n")
	})
	return a
}

// file is what a file of an allocation holds, "" if there is none.
func (r *rig) file(a *api.Allocation, path string) string {
	text, err := devcluster.ReadFile(r.nomad, a, path)
	if err != nil {
		return ""
	}
	return text
}

// touch makes a file that members look for.
func (r *rig) touch(name string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.diary, name), nil, 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// remove takes it away.
func (r *rig) remove(name string) {
	r.t.Helper()
	if err := os.Remove(filepath.Join(r.diary, name)); err != nil {
		r.t.Fatal(err)
	}
}

// deadline bounds one call.
func (r *rig) deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.t.Context(), patience)
}
