package federate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// Refresh looks at all regions and returns what is seen of them as one. It fails
// when the first cannot be seen.
func (f *Federation) Refresh(ctx context.Context) (*observe.View, error) {
	waits := make([]<-chan struct{}, len(f.regions))
	for i, r := range f.regions {
		waits[i] = r.look(ctx, f.opts.Now(), f.opts.Wake)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	over := false
	for i, r := range f.regions {
		switch {
		case waits[i] == nil:
		case r.first:
			<-waits[i]
		case !over:
			select {
			case <-waits[i]:
			case <-timer.C:
				over = true
			case <-ctx.Done():
				over = true
			}
		}
	}
	for i, r := range f.regions {
		before := r.held
		if err := r.settle(waits[i], f.opts.Now()); r.first && err != nil {
			return nil, err
		}
		switch {
		case r.held != "" && before == "":
			f.opts.Log.Warn("a region is held: what runs there is left as it is, and nothing is placed there", "region", r.Name, "why", r.held)
		case r.held == "" && before != "":
			f.opts.Log.Info("a region is decided on again", "region", r.Name)
		}
	}
	return f.merge(), nil
}

// look begins a look at the region, and returns a channel that is closed at its
// end; nil where none is begun or none is worth waiting for.
func (r *region) look(ctx context.Context, now time.Time, wake func()) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	silent := r.err != nil && !r.first
	if r.busy || silent && now.Sub(r.tried).Abs() < again {
		return nil
	}
	r.busy = true
	cancel := context.CancelFunc(func() {})
	if !r.first {
		// It may go on when the caller has stopped waiting.
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	}
	done := make(chan struct{})
	go func() {
		defer cancel()
		v, err := r.Observer.Refresh(ctx)
		late := r.saw(v, err, now)
		close(done)
		if late && err == nil && wake != nil {
			wake()
		}
	}()
	if silent {
		return nil
	}
	return done
}

// saw keeps what a look has brought, and says whether nobody waited for it.
func (r *region) saw(v *observe.View, err error, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	late := r.late
	r.busy, r.late, r.err, r.tried = false, false, err, now
	if err == nil {
		r.last = v
	}
	return late
}

var errSlow = errors.New("it has not answered yet")

// settle says how the region stands in this round: what was waited for and has
// come is what counts.
func (r *region) settle(wait <-chan struct{}, now time.Time) error {
	answered := false
	select {
	case <-wait:
		answered = true
	default: // a nil channel, too
	}
	r.mu.Lock()
	r.late = r.busy
	err := r.err
	next := r.last
	r.mu.Unlock()
	if next != r.view {
		r.view = next
		r.index()
	}
	if err == nil && !answered {
		err = errSlow
	}
	r.fresh = err == nil
	held := ""
	if err != nil {
		held = fmt.Sprintf("region %s cannot be seen: %v", r.Name, err)
	} else if blind := r.view.Blind(); blind != "" {
		held = fmt.Sprintf("region %s: %s", r.Name, blind)
	} else if term, why := r.Term(); term == nil && why != "" {
		held = fmt.Sprintf("region %s is not changed from here: %s", r.Name, why)
	}
	if r.since.IsZero() || (held == "") != (r.held == "") {
		r.since = now
	}
	r.held = held
	return err
}

// index finds the view's jobs and records by their names.
func (r *region) index() {
	r.jobs, r.records = map[jobKey]*observe.Managed{}, map[jobKey]*record.Record{}
	for i := range r.view.Managed {
		m := &r.view.Managed[i]
		key := jobKey{m.Namespace, m.ID}
		r.jobs[key] = m
		if m.Record != nil {
			r.records[key] = m.Record
		}
	}
	for _, rec := range r.view.Orphans {
		r.records[jobKey{rec.Namespace, rec.JobID}] = rec
	}
}
