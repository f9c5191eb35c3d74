package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// DefaultMost is how many jobs Bounded keeps unless it is told otherwise: some
// hundreds of megabytes.
const DefaultMost = 1_000_000

// Kept is what Bounded has kept of a trace.
type Kept struct {
	Report
	// Days are those with jobs, Whole how many of them are kept; equal: all are.
	Days  int `json:"days"`
	Whole int `json:"days_kept"`
	// KeptJobs is how many jobs these have.
	KeptJobs int `json:"jobs_kept"`
}

// Bounded reads a trace of any length and keeps at most so many of its jobs: whole
// days, drawn at random by the seed, as if all others had never been. What lies
// between the days that are kept is taken out. Memory grows with the jobs kept and
// the days there are, not with the rows, whatever order they come in: every day
// has a number drawn for it, and those with the largest are dropped as soon as
// there are too many jobs (bottom-k sampling: Cohen and Kaplan, Summarizing Data
// Using Bottom-k Sketches, PODC'07).
func Bounded(r io.Reader, o Options, most int, seed uint64) ([]Job, Kept, error) {
	if most < 1 {
		return nil, Kept{}, fmt.Errorf("%w: at most %d jobs: want 1 or more", ErrTrace, most)
	}
	b := bounded{most: most, seed: seed, blocks: map[int64][]numbered{}, seen: map[int64]int{}, limit: math.MaxUint64}
	rep, err := Scan(r, o, func(j Job) error { return b.add(j) })
	kept := Kept{Report: rep, Days: len(b.seen), Whole: len(b.blocks), KeptJobs: b.jobs}
	if err == nil && len(b.blocks) == 0 {
		err = b.tooMany()
	}
	if err != nil {
		return nil, kept, err
	}
	jobs, err := b.join()
	return jobs, kept, err
}

// numbered is a job with its number in the order of the rows.
type numbered struct {
	Job
	number int
}

type bounded struct {
	most   int
	seed   uint64
	blocks map[int64][]numbered
	// seen are all days, with the jobs of each.
	seen map[int64]int
	// jobs counts those that are kept, rows all.
	jobs, rows int
	// limit is the number from which on days are dropped.
	limit uint64
}

// errTooMany is that no day is left: one alone has more jobs than may be kept.
var errTooMany = errors.New("days are kept whole or not at all, and the first that was drawn alone has more jobs than may be kept")

// tooMany says how many jobs would have to be kept.
func (b *bounded) tooMany() error {
	least, most := math.MaxInt, 0
	for _, n := range b.seen {
		least, most = min(least, n), max(most, n)
	}
	return fmt.Errorf("%w: %w (%d): its %d days have %d to %d; --max-jobs %d is enough for any of them", ErrTrace, errTooMany, b.most, len(b.seen), least, most, most)
}

func (b *bounded) add(j Job) error {
	b.rows++
	at := int64(math.Floor(j.Submit / day))
	b.seen[at]++
	if b.number(at) >= b.limit {
		return nil
	}
	b.blocks[at] = append(b.blocks[at], numbered{j, b.rows})
	b.jobs++
	for b.jobs > b.most {
		last := at
		for k := range b.blocks {
			if b.number(k) > b.number(last) {
				last = k
			}
		}
		b.limit = b.number(last)
		b.jobs -= len(b.blocks[last])
		delete(b.blocks, last)
	}
	return nil
}

// number is drawn for a day: splitmix64 (Steele, Lea and Flood, OOPSLA'14) of the
// day and the seed, no two alike.
func (b *bounded) number(at int64) uint64 {
	return mix(uint64(at) + b.seed*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15)
}

// join puts the days kept one behind the other, unless all are. Names that come
// again are told apart as Read does it.
func (b *bounded) join() ([]Job, error) {
	at := make([]int64, 0, len(b.blocks))
	for k := range b.blocks {
		at = append(at, k)
	}
	slices.Sort(at)
	kept := make([]numbered, 0, b.jobs)
	names := make(map[string]bool, b.jobs)
	for i, k := range at {
		move := 0.0
		if len(b.blocks) < len(b.seen) {
			move = float64(int64(i)-k) * day
		}
		for _, j := range b.blocks[k] {
			j.Submit += move
			if j.Deadline != 0 {
				j.Deadline += move
			}
			kept = append(kept, j)
		}
	}
	slices.SortFunc(kept, func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
	out := make([]Job, len(kept))
	for i := range kept {
		out[i] = kept[i].Job
		distinguish(names, &out[i], kept[i].number)
	}
	Sort(out)
	return out, nil
}
