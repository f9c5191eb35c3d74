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

// keptEvents is how many events Nomad keeps of a task.
const keptEvents = 10

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
	gates     map[stage]chan struct{} // closed when the stage's tasks may start
	open      map[stage]bool
	stopping  bool
	noDelay   bool
	destroyed bool
}

func newAllocRunner(c *Client, a *api.Allocation) *allocRunner {
	r := &allocRunner{
		c: c, alloc: a, group: a.Job.LookupTaskGroup(a.TaskGroup),
		done: make(chan struct{}), kill: make(chan struct{}), now: make(chan struct{}),
		tasks: map[string]*taskRunner{}, states: map[string]*api.TaskState{},
		gates: map[stage]chan struct{}{}, open: map[stage]bool{},
	}
	if r.group == nil {
		r.group = &api.TaskGroup{}
	}
	for s := range stages {
		r.gates[s] = make(chan struct{})
	}
	for _, t := range r.group.Tasks {
		r.states[t.Name] = &api.TaskState{State: taskPending}
		r.tasks[t.Name] = newTaskRunner(r, t)
	}
	return r
}

func (r *allocRunner) dir() string { return filepath.Join(r.c.cfg.Dir, "alloc", r.alloc.ID) }

// run goes through the allocation's life: the tasks start as their stages
// come, and it is over when all have ended.
func (r *allocRunner) run() {
	defer close(r.done)
	r.push()
	r.awaitBefore()
	var tasks sync.WaitGroup
	for _, t := range r.group.Tasks {
		tasks.Go(r.tasks[t.Name].run)
	}
	r.mu.Lock()
	r.advance()
	r.mu.Unlock()
	tasks.Wait()
	r.push()
}

// stop tells all tasks to end with their grace; it may be called again.
func (r *allocRunner) stop(noDelay bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noDelay = r.noDelay || noDelay
	r.killTasks()
}

// destroy ends all tasks at once.
func (r *allocRunner) destroy() {
	r.stop(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.destroyed {
		return
	}
	r.destroyed = true
	close(r.now)
	for _, t := range r.tasks {
		t.end()
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

func (r *allocRunner) current() *api.Allocation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.alloc
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

// set changes a task's state, adds an event, sees what follows for the other
// tasks, and reports.
func (r *allocRunner) set(task string, change func(*api.TaskState), e *api.TaskEvent) {
	r.mu.Lock()
	r.setLocked(task, change, e)
	r.advance()
	r.mu.Unlock()
	r.push()
}

func (r *allocRunner) setLocked(task string, change func(*api.TaskState), e *api.TaskEvent) {
	s := *r.states[task]
	if change != nil {
		change(&s)
	}
	if e != nil {
		if e.Time == 0 {
			e.Time = r.c.cfg.Clock.Now().UnixNano()
		}
		display(e)
		s.Events = append(append([]*api.TaskEvent(nil), s.Events...), e)
		if over := len(s.Events) - keptEvents; over > 0 {
			s.Events = s.Events[over:]
		}
	}
	r.states[task] = &s
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
// all of them have, and it failed when one of them did. Nomad's own rule puts
// failed first, but its client reports nothing until the siblings are dead.
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

// after is a channel that the client's clock closes.
func (r *allocRunner) after(d time.Duration) <-chan struct{} {
	fired := make(chan struct{})
	r.c.cfg.Clock.AfterFunc(d, func() { close(fired) })
	return fired
}
