package client

import (
	"github.com/hashicorp/nomad/api"
)

// stage is a part of an allocation's life in which tasks of one kind start.
type stage int

// The stages, in order. The names of the hooks are the job file's.
const (
	prestart stage = iota
	prestartSidecar
	mainStage
	poststart
	poststartSidecar
	poststop
	stages
)

func stageOf(t *api.Task) stage {
	if t.Lifecycle == nil {
		return mainStage
	}
	switch t.Lifecycle.Hook {
	case api.TaskLifecycleHookPrestart:
		if t.Lifecycle.Sidecar {
			return prestartSidecar
		}
		return prestart
	case api.TaskLifecycleHookPoststart:
		if t.Lifecycle.Sidecar {
			return poststartSidecar
		}
		return poststart
	case api.TaskLifecycleHookPoststop:
		return poststop
	}
	return mainStage
}

func (s stage) sidecar() bool { return s == prestartSidecar || s == poststartSidecar }

// advance opens the stages whose time has come, and kills what has no reason
// to run any more. The caller holds the lock.
func (r *allocRunner) advance() {
	r.allow(prestart, true)
	r.allow(prestartSidecar, true)
	began := r.every(prestart, func(s *api.TaskState) bool { return s.State == taskDead && !s.Failed }) &&
		r.every(prestartSidecar, func(s *api.TaskState) bool { return s.State == taskRunning })
	r.allow(mainStage, began)
	runs := r.open[mainStage] && r.every(mainStage, func(s *api.TaskState) bool { return s.State != taskPending })
	r.allow(poststart, runs)
	r.allow(poststartSidecar, runs)
	over := true
	for s := prestart; s < poststop; s++ {
		over = over && r.every(s, func(s *api.TaskState) bool { return s.State == taskDead })
	}
	r.allow(poststop, over)
	if event := r.reasonToKill(); event != nil && !r.stopping {
		for name, t := range r.tasks {
			if stageOf(t.task) != poststop && r.states[name].State != taskDead {
				e := *event
				r.setLocked(name, nil, &e)
			}
		}
		r.killTasks()
	}
}

func (r *allocRunner) allow(s stage, when bool) {
	if when && !r.open[s] {
		r.open[s] = true
		close(r.gates[s])
	}
}

// every says whether all tasks of a stage are so.
func (r *allocRunner) every(s stage, so func(*api.TaskState) bool) bool {
	for name, t := range r.tasks {
		if stageOf(t.task) == s && !so(r.states[name]) {
			return false
		}
	}
	return true
}

// reasonToKill is the event that ends the living tasks, or nil: a leader
// ended, a task failed, or nothing but sidecars is left.
func (r *allocRunner) reasonToKill() *api.TaskEvent {
	live, sidecars := 0, 0
	var failed, leader *api.TaskEvent
	for _, task := range r.group.Tasks {
		s, state := stageOf(task), r.states[task.Name]
		switch {
		case s == poststop:
		case state.State != taskDead:
			live++
			if s.sidecar() {
				sidecars++
			}
		case state.Failed:
			failed = &api.TaskEvent{Type: api.TaskSiblingFailed, FailedSibling: task.Name}
		case task.Leader:
			leader = &api.TaskEvent{Type: api.TaskLeaderDead}
		}
	}
	switch {
	case live == 0:
		return nil
	case leader != nil:
		return leader
	case failed != nil:
		return failed
	case live == sidecars:
		return &api.TaskEvent{Type: taskMainDead}
	}
	return nil
}

// taskMainDead is the type of Nomad's event for the end of the main tasks,
// which its API package does not name.
const taskMainDead = "Main Tasks Dead"

// killTasks ends the tasks: the leader first, then the others, sidecars last.
// Poststop tasks still run. The caller holds the lock.
func (r *allocRunner) killTasks() {
	if r.stopping {
		return
	}
	r.stopping = true
	close(r.kill)
	var waves [3][]*taskRunner
	for _, task := range r.group.Tasks {
		t := r.tasks[task.Name]
		switch s := stageOf(task); {
		case s == poststop:
		case task.Leader:
			waves[0] = append(waves[0], t)
		case s.sidecar():
			waves[2] = append(waves[2], t)
		default:
			waves[1] = append(waves[1], t)
		}
	}
	go func() {
		for _, wave := range waves {
			for _, t := range wave {
				t.end()
			}
			for _, t := range wave {
				<-t.done
			}
		}
	}()
}
