// Package purchases is what is remembered of nodes that were bought: how far each
// purchase is, what it has cost, and where buying has failed. It has no clock and
// does no I/O: the planner keeps its Book in a Nomad Variable, a simulation in
// memory.
package purchases

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Book is all that is remembered.
type Book struct {
	Purchases []Entry `json:"purchases,omitempty"`
	// Jobs are what purchases that are over, or others pay for now, have cost.
	Jobs []JobSpent `json:"jobs,omitempty"`
	// Queues is the same by queue, of the present month.
	Queues map[string]Month `json:"queues,omitempty"`
	// Failures are the pools and markets in which buying has failed lately.
	Failures []Failure `json:"failures,omitempty"`
	// Doubts are nodes that may exist, and that the target cannot end.
	Doubts []Doubt `json:"doubts,omitempty"`
}

// Doubt is a node of which a target does not know whether it exists.
type Doubt struct {
	Pool     string    `json:"pool"`
	Purchase string    `json:"purchase"`
	Name     string    `json:"name"`
	Since    time.Time `json:"since"`
	Why      string    `json:"why,omitempty"`
}

// Entry is one purchase.
type Entry struct {
	model.Purchase
	// Queue is that of the job that pays.
	Queue string `json:"queue,omitempty"`
	// MinBilling, Period, Boot and Join are its pool's when it was made.
	MinBilling time.Duration `json:"min_billing_ns,omitempty"`
	Period     time.Duration `json:"period_ns,omitempty"`
	Boot       time.Duration `json:"boot_ns,omitempty"`
	Join       time.Duration `json:"join_ns,omitempty"`
	// Parted is what those of its nodes have cost that are gone, and Charged what of
	// all is in Jobs and Queues already.
	Parted  float64 `json:"parted,omitempty"`
	Charged float64 `json:"charged,omitempty"`
	// Joined: one of its nodes has joined Nomad. Made: its target says that one of
	// them exists, or may.
	Joined bool `json:"joined,omitempty"`
	Made   bool `json:"made,omitempty"`
	// Message is what became of it, in words, and Ended when it failed or went.
	Message string    `json:"message,omitempty"`
	Ended   time.Time `json:"ended,omitzero"`
}

// JobSpent is what a job has cost.
type JobSpent struct {
	For    model.JobName `json:"for"`
	Amount float64       `json:"amount"`
	At     time.Time     `json:"at"`
}

// Month is what a queue has cost in a month.
type Month struct {
	Month  string  `json:"month"`
	Amount float64 `json:"amount"`
}

// Failure is that buying has failed in a pool and market, "" is both.
type Failure struct {
	Pool   string    `json:"pool"`
	Market string    `json:"market,omitempty"`
	Count  int       `json:"count"`
	Until  time.Time `json:"until"`
	Why    string    `json:"why"`
}

// ErrBook is the error for what is no Book.
var ErrBook = errors.New("the record of purchases cannot be read")

// Decode reads a Book.
func Decode(data []byte) (*Book, error) {
	b := &Book{}
	if err := json.Unmarshal(data, b); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBook, err)
	}
	for i := range b.Purchases {
		e := &b.Purchases[i]
		if e.ID == "" || e.Pool == "" || e.Nodes != len(e.Names) || !(e.Price > 0) {
			return nil, fmt.Errorf("%w: purchase %d (%q) is not whole", ErrBook, i, e.ID)
		}
	}
	return b, nil
}

// Encode writes a Book.
func (b *Book) Encode() ([]byte, error) {
	out, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("write purchases: %w", err)
	}
	return out, nil
}

// Clone is a copy that shares nothing which is changed.
func (b *Book) Clone() *Book {
	out := *b
	out.Purchases, out.Jobs, out.Failures = slices.Clone(b.Purchases), slices.Clone(b.Jobs), slices.Clone(b.Failures)
	out.Doubts = slices.Clone(b.Doubts)
	for i := range out.Purchases {
		e := &out.Purchases[i]
		e.Leaving, e.Gone, e.With = slices.Clone(e.Leaving), slices.Clone(e.Gone), slices.Clone(e.With)
	}
	out.Queues = make(map[string]Month, len(b.Queues))
	for path, m := range b.Queues {
		out.Queues[path] = m
	}
	return &out
}

func (b *Book) find(id string) *Entry {
	for i := range b.Purchases {
		if b.Purchases[i].ID == id {
			return &b.Purchases[i]
		}
	}
	return nil
}

// total is what a purchase has cost up to a time.
func (e *Entry) total(now time.Time) float64 {
	left := e.Nodes - len(e.Gone)
	if e.Billed.IsZero() || left <= 0 {
		return e.Parted
	}
	if !e.Joined && !e.Made && !e.Until.IsZero() && now.After(e.Until) {
		now = e.Until // what never came is not paid for beyond when it was to go
	}
	return e.Parted + burst.Bill(left, e.Price, now.Sub(e.Billed), e.MinBilling, e.Period)
}

// Burst is what the next decision is told, with the pools as configured.
func (b *Book) Burst(pools model.Burst, now time.Time) model.Burst {
	out := pools
	for i := range b.Purchases {
		e := &b.Purchases[i]
		p := e.Purchase
		p.Spent = max(0, e.total(now)-e.Charged)
		if e.Message != "" && (!e.Open() || len(e.Leaving) > 0) {
			p.Why = e.Message // why it goes, no more why it was made
		}
		out.Bought = append(out.Bought, p)
	}
	for _, s := range b.Jobs {
		out.Spent = append(out.Spent, model.Spent{For: s.For, Amount: s.Amount})
	}
	for _, path := range sortedPaths(b.Queues) {
		if m := b.Queues[path]; m.Month == monthOf(now) {
			out.Spent = append(out.Spent, model.Spent{Queue: path, Amount: m.Amount})
		}
	}
	for _, f := range b.Failures {
		if f.Until.After(now) {
			out.Blocked = append(out.Blocked, model.BlockedPool{Pool: f.Pool, Market: f.Market, Until: f.Until, Why: f.Why})
		}
	}
	return out
}

func monthOf(t time.Time) string { return t.UTC().Format("2006-01") }

func sortedPaths(m map[string]Month) []string {
	out := make([]string, 0, len(m))
	for path := range m {
		out = append(out, path)
	}
	slices.Sort(out)
	return out
}

// maxJobs bounds of how many jobs it is remembered what they cost.
const maxJobs = 2000

// maxDoubts bounds how many nodes in doubt are told of.
const maxDoubts = 500

// charge writes down what a purchase has cost since it was last charged, to who
// has it.
func (b *Book) charge(e *Entry, now time.Time) {
	more := e.total(now) - e.Charged
	if more <= 0 {
		return
	}
	e.Charged += more
	at := slices.IndexFunc(b.Jobs, func(s JobSpent) bool { return s.For == e.For })
	if at < 0 {
		at = len(b.Jobs)
		b.Jobs = append(b.Jobs, JobSpent{For: e.For})
	}
	b.Jobs[at].Amount += more
	b.Jobs[at].At = now
	if len(b.Jobs) > maxJobs {
		slices.SortStableFunc(b.Jobs, func(x, y JobSpent) int { return y.At.Compare(x.At) })
		b.Jobs = b.Jobs[:maxJobs]
	}
	if e.Queue == "" {
		return
	}
	m := b.Queues[e.Queue]
	if m.Month != monthOf(now) {
		m = Month{Month: monthOf(now)}
	}
	m.Amount += more
	if b.Queues == nil {
		b.Queues = map[string]Month{}
	}
	b.Queues[e.Queue] = m
}

// The back-off after failures of a pool.
const (
	firstBlock = 5 * time.Minute
	maxBlock   = 2 * time.Hour
)

// fail notes that a purchase has failed in its pool, and from when on it is tried
// there again. Where the cloud has none left of a market the other one may have.
func (b *Book) fail(e *Entry, now time.Time, inMarket bool, why string) {
	market := ""
	if inMarket {
		market = e.Market
	}
	at := slices.IndexFunc(b.Failures, func(f Failure) bool { return f.Pool == e.Pool && f.Market == market })
	if at < 0 {
		at = len(b.Failures)
		b.Failures = append(b.Failures, Failure{Pool: e.Pool, Market: market})
	}
	f := &b.Failures[at]
	if now.Sub(f.Until) > maxBlock {
		f.Count = 0 // long ago
	}
	f.Until = now.Add(min(firstBlock<<max(0, min(f.Count, 10)), maxBlock))
	f.Count++
	f.Why = strings.TrimSuffix(why, ".")
}

// succeed forgets the failures of a pool.
func (b *Book) succeed(e *Entry) {
	b.Failures = slices.DeleteFunc(b.Failures, func(f Failure) bool { return f.Pool == e.Pool && (f.Market == "" || f.Market == e.Market) })
}
