package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/planner/record"
)

// documents is where documents are kept; record.Documents is one.
type documents interface {
	Get(ctx context.Context, names ...string) (record.Document, error)
	Put(ctx context.Context, index uint64, doc []byte, names ...string) (uint64, error)
}

// saveEvery is how seldom one document of what was learned is written: losing so
// little of the past changes nothing.
const saveEvery = time.Minute

// kept is what a planner learns while it leads, in a document that the next one
// goes on from. Nothing is written before what is there was read, and then at most
// once in so long, by check-and-set. What cannot be written now is written later;
// nobody has to wait for it. It is not safe for concurrent use: its owner's lock
// guards it.
type kept[T any] struct {
	store documents
	// names are the document's, and about is what messages call it.
	names []string
	about string
	// every is how seldom it is written.
	every  time.Duration
	encode func(*T) ([]byte, error)
	decode func([]byte) (*T, error)
	// wins: what was learned here and is not written yet goes over what another
	// planner has written; else theirs is taken up instead.
	wins bool

	// is what is known.
	is T
	// loaded: is continues what is stored, with that index.
	loaded bool
	index  uint64
	// fresh: something was learned since it was written.
	fresh bool
	saved time.Time
}

// load reads what another planner, or this one, has left, unless that was done; anew
// says that it was not. What is damaged is learned anew.
func (k *kept[T]) load(ctx context.Context) (anew bool, err error) {
	if k.loaded {
		return false, nil
	}
	doc, err := k.store.Get(ctx, k.names...)
	if err != nil && !errors.Is(err, record.ErrNotFound) && !errors.Is(err, record.ErrDamaged) {
		return false, fmt.Errorf("read %s: %w", k.about, err)
	}
	k.loaded, k.index = true, doc.Index
	if k.wins && k.fresh {
		return true, nil
	}
	var is T
	if err == nil {
		if there, err := k.decode(doc.JSON); err == nil {
			is = *there
		}
	}
	k.is, k.fresh = is, false
	return true, nil
}

// due reports whether there is something to be written by now.
func (k *kept[T]) due(now time.Time) bool { return k.fresh && now.Sub(k.saved) >= k.every }

// save writes what was learned, if that is due.
func (k *kept[T]) save(ctx context.Context, now time.Time) error {
	if !k.loaded || !k.due(now) {
		return nil
	}
	doc, err := k.encode(&k.is)
	if err != nil {
		return fmt.Errorf("write %s: %w", k.about, err)
	}
	index, err := k.store.Put(ctx, k.index, doc, k.names...)
	if err != nil {
		// After a conflict it is read again. Of any other failure it is not known whether
		// it was written; if it was, the next attempt is a conflict.
		k.loaded = !errors.Is(err, record.ErrConflict)
		return fmt.Errorf("write %s: %w", k.about, err)
	}
	k.index, k.saved, k.fresh = index, now, false
	return nil
}

// forget is for a planner that does not lead: another one writes.
func (k *kept[T]) forget() { k.loaded = false }
