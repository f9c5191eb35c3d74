package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/purchases"
	"github.com/caravan-sched/caravan/planner/record"
)

// bursts are the nodes that are bought. What was decided is written to a Nomad
// Variable before anybody is told of it, so that whoever leads next knows of each
// purchase that somebody may have begun to make.
type bursts struct {
	store documents

	mu       sync.Mutex
	pools    model.Burst
	coolDown time.Duration
	book     *purchases.Book
	// loaded: book is what is stored, with that index and text.
	loaded bool
	index  uint64
	text   []byte
	// damaged says why what is stored cannot be read: then nothing is bought or given
	// back until a person has looked.
	damaged string
	// told is what was last decided, and on what.
	told *toldDemand
	// carbon is where newer figures for CO2 are from than the pools file's.
	carbon carbons
}

type toldDemand struct {
	view   *observe.View
	demand *model.Demand
}

// The names of the document that the purchases are kept in.
var purchasesNames = []string{"purchases", "all"}

// configure takes the pools; what was bought stays.
func (b *bursts) configure(c *config.Config) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pools = c.Burst.BuyPools(c.LevelNames())
	b.coolDown = c.Policy.Burst.WithDefaults().CoolDown
	b.carbon.configure(&c.Burst)
}

// at is what a decision is told.
func (b *bursts) at(now time.Time) model.Burst {
	b.mu.Lock()
	defer b.mu.Unlock()
	pools := b.carbon.update(b.pools, now)
	if b.book == nil {
		return pools
	}
	out := b.book.Burst(pools, now)
	if b.damaged != "" {
		out.Hold = b.damaged
	}
	return out
}

// used reports whether there is anything to be kept.
func (b *bursts) used() bool {
	return len(b.pools.Pools) > 0 || b.book != nil && len(b.book.Purchases) > 0
}

// load reads what is stored, once in a term, also without pools: one that was taken
// out may have purchases.
func (b *bursts) load(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loaded {
		return nil
	}
	doc, err := b.store.Get(ctx, purchasesNames...)
	b.book, b.index, b.text, b.damaged = &purchases.Book{}, doc.Index, doc.JSON, ""
	switch {
	case errors.Is(err, record.ErrNotFound):
	case errors.Is(err, record.ErrDamaged):
		b.damaged = "the record of purchases is damaged; see what there is in the clouds, and delete the Variable below caravan/purchases"
	case err != nil:
		return fmt.Errorf("read purchases: %w", err)
	default:
		book, err := purchases.Decode(doc.JSON)
		if err != nil {
			b.damaged = err.Error() + "; see what there is in the clouds, and delete the Variable below caravan/purchases"
			break
		}
		b.book = book
	}
	b.loaded = true
	return nil
}

func (b *bursts) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.loaded, b.told = false, nil
}

// carry takes a plan over, and writes it down.
func (b *bursts) carry(ctx context.Context, v *observe.View, plan *model.Plan, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.used() || !b.loaded || b.damaged != "" {
		return nil
	}
	next := b.book.Clone()
	next.Carry(v.Snapshot, plan.Demand, b.coolDown, now)
	if err := b.put(ctx, next); err != nil {
		return err
	}
	b.told = &toldDemand{view: v, demand: plan.Demand}
	return nil
}

// put writes a book, unless it is what is stored already. The caller holds mu.
func (b *bursts) put(ctx context.Context, next *purchases.Book) error {
	text, err := next.Encode()
	if err != nil {
		return err
	}
	if !bytes.Equal(text, b.text) {
		index, err := b.store.Put(ctx, b.index, text, purchasesNames...)
		if err != nil {
			b.loaded, b.told = false, nil // somebody else may have written it
			return fmt.Errorf("write purchases: %w; nothing of this plan is bought", err)
		}
		b.index, b.text = index, text
	}
	b.book = next
	return nil
}

// report takes over what a target says.
func (b *bursts) report(ctx context.Context, r *burstapi.Report, now time.Time) (known bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.loaded || b.damaged != "" {
		return false, errors.New("the purchases have not been read yet")
	}
	next := b.book.Clone()
	if !next.Report(r, now) {
		return false, nil
	}
	return true, b.put(ctx, next)
}

// letGo forgets a purchase; names are those of its nodes that were not gone.
func (b *bursts) letGo(ctx context.Context, id string, now time.Time) (e purchases.Entry, names []string, known bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.loaded || b.damaged != "" {
		return e, nil, false, errors.New("the purchases have not been read yet")
	}
	next := b.book.Clone()
	e, names, known = next.Forget(id, now)
	if !known {
		return e, nil, false, nil
	}
	return e, names, true, b.put(ctx, next)
}

// doubts is how many nodes of each pool are in doubt.
func (b *bursts) doubts() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]int{}
	if b.book != nil {
		for _, d := range b.book.Doubts {
			out[d.Pool]++
		}
	}
	return out
}

// undecided says why there is no answer.
func (b *bursts) undecided() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.damaged != "":
		return b.damaged
	case b.loaded && !b.used():
		return "no pool is configured"
	}
	return "nothing was decided yet"
}

// answer is what is wanted of the pools; nil while nothing was decided.
func (b *bursts) answer() (pools []burstapi.Pool, index uint64, v *observe.View) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.told == nil || b.book == nil {
		return nil, 0, nil
	}
	v = b.told.view
	return b.book.Pools(v.Snapshot, b.told.demand, core.BoughtFault), max(v.Index, b.index), v
}
