package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// nameWarnings are those of policy, queues and reservations as they count now, for
// the nodes and jobs of a snapshot.
func (d *Daemon) nameWarnings(s *model.Snapshot) []httpapi.Warning {
	policy, _, queues := d.queues.settings()
	now := *s
	now.Queues, now.Reservations = queues, d.queues.reserved(time.Time{})
	return append(policyWarnings(&policy, &now), reservationWarnings(&now, d.now())...)
}

// reservationWarnings name the reservations that are about nodes or queues that are
// not there, with what is.
func reservationWarnings(s *model.Snapshot, now time.Time) (out []httpapi.Warning) {
	nodes := make([]*model.Node, len(s.Nodes))
	for i := range s.Nodes {
		nodes[i] = &s.Nodes[i]
	}
	levels := s.Levels
	if len(levels) == 0 {
		levels = model.DefaultLevels
	}
	for i := range s.Reservations {
		r := &s.Reservations[i]
		if !r.Until.IsZero() && !r.Until.After(now) {
			continue
		}
		for _, text := range r.Unmatched(nodes, levels) {
			out = append(out, httpapi.Warning{Subject: "reservation " + r.Name, Text: text + ": correct it if it is misspelt"})
		}
		if r.Kind == model.ReserveCapacity && !anyQueue(s, r.Queue) {
			out = append(out, httpapi.Warning{Subject: "reservation " + r.Name, Text: fmt.Sprintf("no job is in queue %q, and it is not configured, so that %d GPUs are kept for nobody: correct it if it is misspelt", r.Queue, r.GPUs)})
		}
	}
	return out
}

// policyWarnings name what policy and queues say of names that nobody has: that is
// mostly a misspelling, and does nothing without a word.
func policyWarnings(p *queue.Policy, s *model.Snapshot) (out []httpapi.Warning) {
	tree := queue.NewTree(s.Queues, nil)
	classes, storages, unknown := map[string]bool{}, map[string]bool{}, map[string]int{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		classes[j.PriorityClass], storages[j.CheckpointStorage] = true, true
		if j.PriorityClass != "" && !tree.HasClass(j) && !slices.Contains(p.Interactive.Classes, j.PriorityClass) {
			unknown[j.PriorityClass]++
		}
	}
	for i := range s.Queues {
		for class := range s.Queues[i].Priorities {
			classes[class] = true
		}
	}
	for _, class := range slices.Sorted(maps.Keys(unknown)) {
		out = append(out, httpapi.Warning{Subject: "priority " + class, Text: fmt.Sprintf(
			"%d of the jobs name it, but neither their queues nor those above give it a number, so Nomad's priority counts: add it to priorities, or correct caravan_priority", unknown[class])})
	}
	for _, class := range p.Interactive.Classes {
		if !classes[class] {
			out = append(out, httpapi.Warning{Subject: "policy.interactive.classes", Text: fmt.Sprintf("no job has the priority %q, and no queue gives it a number: correct it if it is misspelt", class)})
		}
	}
	for _, path := range p.Interactive.Queues {
		if !anyQueue(s, path) {
			out = append(out, httpapi.Warning{Subject: "policy.interactive.queues", Text: fmt.Sprintf("no job is in queue %q, and it is not configured: correct it if it is misspelt", path)})
		}
	}
	for _, storage := range p.Preempt.Storages {
		if !storages[storage.Name] {
			out = append(out, httpapi.Warning{Subject: "policy.preempt.storage", Text: fmt.Sprintf("no job has caravan_checkpoint_storage = %q: correct it if it is misspelt", storage.Name)})
		}
	}
	return out
}

// anyQueue reports whether a queue, or one below it, is configured or has jobs.
func anyQueue(s *model.Snapshot, path string) bool {
	in := func(other string) bool { return other == path || strings.HasPrefix(other, path+"/") }
	return slices.ContainsFunc(s.Queues, func(q model.Queue) bool { return in(q.Path) }) ||
		slices.ContainsFunc(s.Jobs, func(j model.Job) bool { return in(j.Queue) })
}
