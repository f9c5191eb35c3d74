package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
)

// maxHistory is how many earlier decisions are kept of a job.
const maxHistory = 8

type jobKey struct{ namespace, id string }

// decided is what was last decided on a job.
type decided struct {
	decision model.Decision
	at       time.Time
	specHash string
	position int // from 1, 0 when the job does not wait
	// problem is what could not be done about the job at the last look.
	problem string
	history []httpapi.Past
}

// decisions remembers the last decision on every job. It is a memory for
// people: nothing is decided by it, and another planner does not miss it.
type decisions struct {
	mu    sync.Mutex
	byJob map[jobKey]*decided
	// would is what the last plan does to jobs that run, as half a sentence for
	// those who only observe.
	would   map[jobKey]string
	at      time.Time
	changed chan struct{} // closed and replaced when a plan was carried out
}

func newDecisions() *decisions {
	return &decisions{byJob: map[jobKey]*decided{}, changed: make(chan struct{})}
}

// record keeps a plan that was carried out, as far as it could be, on a view.
func (d *decisions) record(v *observe.View, plan *model.Plan, problems map[jobKey]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := map[jobKey]*decided{}
	for i := range v.Managed {
		key := jobKey{v.Managed[i].Namespace, v.Managed[i].ID}
		if old := d.byJob[key]; old != nil {
			kept := *old
			kept.position, kept.problem = 0, ""
			next[key] = &kept
		}
	}
	position := 0
	for _, decision := range plan.Decisions {
		key := jobKey{decision.Namespace, decision.Job}
		// The canaries of an update are decided on beside their job.
		of, _ := observe.CanaryOf(key.id)
		m, ok := v.Job(key.namespace, of)
		if !ok {
			continue
		}
		entry := &decided{decision: decision, at: v.Taken, specHash: m.SpecHash}
		if decision.Action == model.ActionWait {
			position++
			entry.position = position
		}
		if old := next[key]; old != nil {
			entry.history = old.history
			if old.decision.Action != decision.Action || old.decision.Reason != decision.Reason {
				past := httpapi.Past{At: old.at, Action: old.decision.Action, Reason: old.decision.Reason}
				entry.history = slices.Insert(slices.Clone(old.history), 0, past)
				entry.history = entry.history[:min(len(entry.history), maxHistory)]
			}
		}
		next[key] = entry
	}
	for key, problem := range problems {
		if e := next[key]; e != nil {
			e.problem = problem
		} else if m, ok := v.Job(key.namespace, key.id); ok {
			next[key] = &decided{at: v.Taken, specHash: m.SpecHash, problem: problem}
		}
	}
	d.byJob, d.would, d.at = next, wouldBe(plan), v.Taken
	close(d.changed)
	d.changed = make(chan struct{})
}

// get returns what was decided on a job, and a channel that is closed when the
// next plan was carried out.
func (d *decisions) get(namespace, id string) (decided, bool, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.byJob[jobKey{namespace, id}]
	if !ok {
		return decided{}, false, d.changed
	}
	return *e, true, d.changed
}

// wouldBe says what becomes of jobs that run where a plan is carried out.
func wouldBe(plan *model.Plan) map[jobKey]string {
	out := map[jobKey]string{}
	add := func(namespace, id, what, reason string) {
		key := jobKey{namespace, id}
		if out[key] != "" {
			out[key] += "; "
		}
		out[key] += "would " + what + " if the planner did not only observe: " + reason
	}
	for i := range plan.Preemptions {
		p := &plan.Preemptions[i]
		add(p.Namespace, p.Job, fmt.Sprintf("%s %d of its members", wouldDo(p.Action), len(p.Members)), p.Reason)
	}
	for i := range plan.Resizes {
		r := &plan.Resizes[i]
		add(r.Namespace, r.Job, fmt.Sprintf("%s from %d to %d members", r.Action, r.From, r.To), r.Reason)
	}
	for i := range plan.Repartitions {
		p := &plan.Repartitions[i]
		as := "into " + strings.Join(p.To, ", ")
		if len(p.To) == 0 {
			as = "so that it is whole"
		}
		add(p.For.Namespace, p.For.ID, fmt.Sprintf("have GPU %s of node %s divided %s", p.GPU, p.Node, as), p.Reason)
	}
	return out
}

// wouldDo is what a job does with the members that stop.
func wouldDo(a model.Action) string {
	switch a {
	case model.ActionShrink:
		return "shrink by"
	case model.ActionMove:
		return "move"
	}
	return "give up"
}

// wouldOf is what would become of a job, "" if nothing.
func (d *decisions) wouldOf(namespace, id string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.would[jobKey{namespace, id}]
}

func (d *decisions) last() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

// wait returns once there is a decision on that version of the job. If there
// is none yet, wake is called, once: what is written to Nomad before the wait
// shows at the next look, and everything later wakes the planner by itself.
func (d *decisions) wait(ctx context.Context, namespace, id, specHash string, wake func()) error {
	for first := true; ; first = false {
		e, ok, changed := d.get(namespace, id)
		if ok && (specHash == "" || e.specHash == specHash) {
			return nil
		}
		if first {
			wake()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
