package progress

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// least and share bound what looking costs: never sooner after the last look,
	// and never more than one part in share of the time.
	least = 100 * time.Millisecond
	share = 20
	// maxWatched bounds the directories that the kernel is asked to watch, out of
	// a number that all programs of a user share.
	maxWatched = 64
	// pending bounds the changes that are noted between two looks.
	pending = 1024
)

// watcher looks at the checkpoints now and then, and soon after the kernel says
// that something has changed. The kernel is no more than a hint: network file
// systems, and hosts whose watches are used up, say nothing.
type watcher struct {
	scanner *scanner
	poll    time.Duration
	found   func(checkpoint)
	// requests ask for a look at once; the channel is closed after it.
	requests chan chan struct{}
}

func newWatcher(config Config, f *faults, begin func() uint64, found func(checkpoint)) *watcher {
	return &watcher{
		scanner:  &scanner{patterns: config.Checkpoints, settle: config.Settle, faults: f, begin: begin, entries: map[string]*entry{}},
		poll:     config.Poll,
		found:    found,
		requests: make(chan chan struct{}),
	}
}

// notify asks the kernel for changes; nil where it cannot.
func notify() *fsnotify.Watcher {
	w, err := fsnotify.NewBufferedWatcher(pending)
	if err != nil {
		return nil
	}
	return w
}

// look asks for a look and waits for its end.
func (w *watcher) look(ctx context.Context) {
	done := make(chan struct{})
	select {
	case w.requests <- done:
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// run looks until the context ends. kernel may be nil.
func (w *watcher) run(ctx context.Context, kernel *fsnotify.Watcher) {
	var events chan fsnotify.Event
	var errs chan error
	if kernel != nil {
		defer kernel.Close()
		events, errs = kernel.Events, kernel.Errors
	}
	watched := map[string]bool{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	// changes is events while they are listened to: after the first, the look
	// that it brings about sees the rest, however many they are.
	changes, gap, last := events, least, time.Time{}
	for {
		var request chan struct{}
		select {
		case <-ctx.Done():
			return
		case <-changes:
			changes = nil
			timer.Reset(max(0, gap-time.Since(last)))
			continue
		case <-errs: // some changes were lost
			timer.Reset(max(0, gap-time.Since(last)))
			continue
		case request = <-w.requests:
		case <-timer.C:
		}
		drain(events)
		began := time.Now()
		out := w.scanner.scan(began)
		last = time.Now()
		gap = max(least, share*last.Sub(began))
		if out.complete != nil {
			w.found(*out.complete)
		}
		changes = events
		next := w.poll
		if rewatch(kernel, watched, out.dirs) {
			next = 0 // what changed before the kernel watched is seen by another look
		}
		if request != nil {
			close(request)
		}
		if out.unsettled {
			next = min(next, w.scanner.settle)
		}
		timer.Reset(max(next, gap))
	}
}

// drain forgets the changes so far: the look that follows sees them.
func drain(events <-chan fsnotify.Event) {
	for range pending {
		select {
		case <-events:
		default:
			return
		}
	}
}

// rewatch makes the kernel watch these directories and no others, and says
// whether there is one that it did not watch before.
func rewatch(kernel *fsnotify.Watcher, watched map[string]bool, dirs []string) (added bool) {
	if kernel == nil {
		return false
	}
	want := map[string]bool{}
	for _, dir := range dirs {
		if len(want) < maxWatched {
			want[dir] = true
		}
	}
	for dir := range watched {
		if !want[dir] {
			delete(watched, dir)
			// Of a directory that is gone the kernel has let go already.
			_ = kernel.Remove(dir)
		}
	}
	for dir := range want {
		// Adding anew is cheap, and needed where a directory was made again.
		if kernel.Add(dir) == nil {
			added = added || !watched[dir]
			watched[dir] = true
		}
	}
	return added
}
