package client

import (
	"maps"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
)

// The states of a task.
const (
	taskPending = "pending"
	taskRunning = "running"
	taskDead    = "dead"
)

// allocRunner runs one allocation.
type allocRunner struct {
	c    *Client
	done chan struct{} // closed when every task is dead
	kill chan struct{} // closed to stop
	now  chan struct{} // closed to end at once, without grace

	mu        sync.Mutex
	alloc     *api.Allocation
	group     *api.TaskGroup
	tasks     map[string]*taskRunner
	states    map[string]*api.TaskState
	stopping  bool
	noDelay   bool
	destroyed bool
}

func newAllocRunner(c *Client, a *api.Allocation) *allocRunner {
	r := &allocRunner{
		c: c, alloc: a, group: a.Job.LookupTaskGroup(a.TaskGroup),
		done: make(chan struct{}), kill: make(chan struct{}), now: make(chan struct{}),
		tasks: map[string]*taskRunner{}, states: map[string]*api.TaskState{},
	}
	if r.group == nil {
		r.group = &api.TaskGroup{}
	}
	for _, t := range r.group.Tasks {
		r.states[t.Name] = &api.TaskState{State: taskPending}
		r.tasks[t.Name] = &taskRunner{r: r, task: t, dir: filepath.Join(r.dir(), t.Name)}
	}
	return r
}

func (r *allocRunner) dir() string { return filepath.Join(r.c.cfg.Dir, "alloc", r.alloc.ID) }

// stop tells all tasks to end with their grace; it may be called again.
func (r *allocRunner) stop(noDelay bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopping {
		r.stopping, r.noDelay = true, noDelay
		close(r.kill)
	}
}

// destroy ends all tasks at once.
func (r *allocRunner) destroy() {
	r.stop(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.destroyed {
		r.destroyed = true
		close(r.now)
	}
}

// update takes the servers' newer idea of the allocation.
func (r *allocRunner) update(a *api.Allocation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.AllocModifyIndex > r.alloc.AllocModifyIndex {
		r.alloc = a
	}
}

// hook says when a task runs: "" is a main task.
func hook(t *api.Task) (name string, sidecar bool) {
	if t.Lifecycle == nil {
		return "", false
	}
	return t.Lifecycle.Hook, t.Lifecycle.Sidecar
}

// run goes through the allocation's life: prestart tasks first, then the main
// ones with the sidecars, then poststop.
func (r *allocRunner) run() {
	defer close(r.done)
	r.push()
	r.awaitBefore()
	ok := r.runAll("prestart", false)
	var sidecars, main sync.WaitGroup
	endSidecars := make(chan struct{})
	if ok {
		r.spawn(&sidecars, endSidecars, func(h string, sidecar bool) bool { return sidecar && h != api.TaskLifecycleHookPoststop })
		r.spawn(&main, nil, func(h string, sidecar bool) bool {
			return h == "" || h == api.TaskLifecycleHookPoststart && !sidecar
		})
	}
	main.Wait()
	close(endSidecars)
	sidecars.Wait()
	r.killRest()
	r.runAll("poststop", true)
	r.push()
}

// awaitBefore waits until what this allocation replaces or evicts has ended
// here: it may have been given the same devices.
func (r *allocRunner) awaitBefore() {
	before := append([]string{r.alloc.PreviousAllocation}, r.alloc.PreemptedAllocations...)
	for _, id := range before {
		r.c.mu.Lock()
		prev := r.c.runners[id]
		r.c.mu.Unlock()
		if prev == nil {
			continue
		}
		select {
		case <-prev.done:
		case <-r.kill:
			return
		}
	}
}

// runAll runs the tasks of a hook that are no sidecars, all at once, and waits
// for them.
func (r *allocRunner) runAll(which string, evenStopping bool) bool {
	var wg sync.WaitGroup
	for _, t := range r.group.Tasks {
		if h, sidecar := hook(t); h == which && !sidecar {
			if !evenStopping && r.isStopping() {
				return false
			}
			wg.Go(func() { r.tasks[t.Name].run(nil, evenStopping) })
		}
	}
	wg.Wait()
	if evenStopping {
		return true
	}
	return !r.failed() && !r.isStopping()
}

func (r *allocRunner) spawn(wg *sync.WaitGroup, end <-chan struct{}, pick func(string, bool) bool) {
	for _, t := range r.group.Tasks {
		if pick(hook(t)) {
			wg.Go(func() { r.tasks[t.Name].run(end, false) })
		}
	}
}

// killRest marks tasks that never came to run.
func (r *allocRunner) killRest() {
	for _, t := range r.group.Tasks {
		if h, _ := hook(t); h == api.TaskLifecycleHookPoststop {
			continue
		}
		r.mu.Lock()
		pending := r.states[t.Name].State == taskPending
		r.mu.Unlock()
		if pending {
			r.set(t.Name, func(s *api.TaskState) { s.State, s.FinishedAt = taskDead, r.c.cfg.Clock.Now() }, nil)
		}
	}
}

func (r *allocRunner) isStopping() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopping
}

func (r *allocRunner) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.states {
		if s.Failed {
			return true
		}
	}
	return false
}

// taskFailed ends the siblings of a task that failed, and of a leader that
// ended.
func (r *allocRunner) taskEnded(t *api.Task, failed bool) {
	h, _ := hook(t)
	if failed && h != api.TaskLifecycleHookPoststop || t.Leader {
		r.stop(false)
	}
}

// set changes a task's state, adds an event, and reports.
func (r *allocRunner) set(task string, change func(*api.TaskState), e *api.TaskEvent) {
	r.mu.Lock()
	s := *r.states[task]
	if change != nil {
		change(&s)
	}
	if e != nil {
		e.Time = r.c.cfg.Clock.Now().UnixNano()
		s.Events = append(append([]*api.TaskEvent(nil), s.Events...), e)
		if over := len(s.Events) - 10; over > 0 {
			s.Events = s.Events[over:]
		}
	}
	r.states[task] = &s
	r.mu.Unlock()
	r.push()
}

// push reports the allocation as it is.
func (r *allocRunner) push() {
	r.mu.Lock()
	report := &api.Allocation{ID: r.alloc.ID, TaskStates: maps.Clone(r.states)}
	report.ClientStatus, report.ClientDescription = clientStatus(r.states)
	r.mu.Unlock()
	r.c.report(report)
}

// clientStatus is an allocation's status by its tasks: it has ended only when
// all of them have, and it failed when one of them did.
func clientStatus(states map[string]*api.TaskState) (status, description string) {
	pending, running, failed := false, false, false
	for _, s := range states {
		switch s.State {
		case taskPending:
			pending = true
		case taskRunning:
			running = true
		}
		failed = failed || s.Failed
	}
	switch {
	case running:
		return api.AllocClientStatusRunning, "Tasks are running"
	case pending && !failed:
		return api.AllocClientStatusPending, "No tasks have started"
	case failed && !pending:
		return api.AllocClientStatusFailed, "Failed tasks"
	case pending:
		return api.AllocClientStatusPending, "No tasks have started"
	}
	return api.AllocClientStatusComplete, "All tasks have completed"
}

// wait sleeps on the client's clock; false when the allocation was stopped
// meanwhile, or end was closed.
func (r *allocRunner) wait(d time.Duration, end <-chan struct{}) bool {
	fired := make(chan struct{})
	cancel := r.c.cfg.Clock.AfterFunc(d, func() { close(fired) })
	defer cancel()
	select {
	case <-fired:
		return true
	case <-r.kill:
	case <-end:
	}
	return false
}
