package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/wholefile"
)

// eventLogs are the files of events, one for each run. Runs are begun at once.
type eventLogs struct {
	name    string
	several bool
	// ctx ends, by cancel, as soon as one of them cannot be written: nobody is to wait an
	// hour to be told so.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	files []eventFile
	err   error
}

// eventFile is of a run of a policy.
type eventFile struct {
	policy string
	file   *wholefile.File
	log    *sim.Logger
}

func newEventLogs(ctx context.Context, f *simFlags) *eventLogs {
	l := &eventLogs{name: f.events, several: f.seeds*len(f.policies) > 1}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	return l
}

func (l *eventLogs) stop() { l.cancel(nil) }

// try refuses a place where nothing can be written, before anything is read.
func (l *eventLogs) try() error {
	if l.name == "" {
		return nil
	}
	file, err := wholefile.Create(l.name)
	if err == nil {
		err = file.Drop()
	}
	if err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	return nil
}

// open begins a run's file.
func (l *eventLogs) open(policy string, seed int) func(sim.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.name
	if l.several {
		ending := filepath.Ext(name)
		name = fmt.Sprintf("%s.%s.%d%s", strings.TrimSuffix(name, ending), strings.ReplaceAll(policy, string(filepath.Separator), "_"), seed, ending)
	}
	file, err := wholefile.Create(name)
	if err != nil {
		l.err = errors.Join(l.err, fmt.Errorf("write events: %w", err))
		l.cancel(l.err)
		return nil
	}
	log := sim.NewLogger(file)
	l.files = append(l.files, eventFile{policy, file, log})
	return func(e sim.Event) {
		log.Log(e)
		if err := log.Err(); err != nil {
			l.cancel(err)
		}
	}
}

// close gives the files their names if all runs are whole, or all of their row, and leaves
// nothing of them otherwise. played is what the runs came to.
func (l *eventLogs) close(played error) error {
	err := l.err
	for i := range l.files {
		err = errors.Join(err, l.files[i].log.Close())
	}
	var rows *sim.RowsError
	failed := err != nil || played != nil && !errors.As(played, &rows)
	for i := range l.files {
		f := &l.files[i]
		if failed || rows != nil && rows.Has(f.policy) {
			err = errors.Join(err, f.file.Drop())
		} else {
			err = errors.Join(err, f.file.Done())
		}
	}
	if err != nil {
		return err // if so, that is why the runs were stopped
	}
	return played
}
