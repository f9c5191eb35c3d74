package observe

import (
	"sync"
	"time"
)

// While a node is disconnected Nomad sets its status anew, with the time, each
// time that a heartbeat would be due. So when a node was cut off is the time of
// its status when it was first seen so, as long as it is certain that it has not
// been back in between.

// promptly is how soon after a change of a node it has to be looked at. A node
// that came back is ready for at least as long as a heartbeat may be late, which
// is never less than ten seconds by Nomad's own settings.
const promptly = 5 * time.Second

// follow takes over when the node was cut off from what was known of it before.
func (e *nodeEntry) follow(before *nodeEntry, unbroken bool) {
	if unbroken && before != nil && nodeCutOff(before.status) && nodeCutOff(e.status) && before.cutOffAt.Before(e.cutOffAt) {
		e.cutOffAt = before.cutOffAt
	}
}

// nodeWatch knows whether every change of a node was looked at in time.
type nodeWatch struct {
	mu sync.Mutex
	// on is set while the watch waits at Nomad; missed when something may have
	// happened unseen since the last look.
	on, missed bool
	// changed is when the first change since the last look was announced.
	changed time.Time
}

// answered: Nomad has told of a change, or that there was none.
func (w *nodeWatch) answered(change bool, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.on {
		w.on, w.missed = true, true
	}
	if change && w.changed.IsZero() {
		w.changed = now
	}
}

// broke: nobody tells of changes any more.
func (w *nodeWatch) broke() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on, w.missed = false, true
}

// look begins a look at all nodes, and says whether nothing was missed since the
// last one.
func (w *nodeWatch) look(now time.Time) (unbroken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	unbroken = w.on && !w.missed && (w.changed.IsZero() || now.Sub(w.changed) < promptly)
	w.missed, w.changed = !w.on, time.Time{}
	return unbroken
}

// failed: the look has shown nothing.
func (w *nodeWatch) failed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missed = true
}
