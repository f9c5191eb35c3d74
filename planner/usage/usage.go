// Package usage learns how much jobs use of the GPUs that they share: the most
// memory, and how busy they are minute by minute. Work comes back, so what a job
// did says what the next one like it will do (Thinakaran et al., Kube-Knots,
// CLUSTER 2019: utilisation is sampled on the nodes, and tasks that are known are
// packed by it). The package is pure arithmetic; what it knows of jobs that have
// ended is one JSON document.
package usage

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/together"
)

// The bounds of what is remembered.
const (
	// minutes is how many minutes are told, and lasting of how many of the latest
	// a running task's busyness is taken.
	minutes = 32
	lasting = 60
	// settled is for how long a task is watched before what it uses is taken to be
	// what it needs: one that has just started uses nothing yet.
	settled = 5 * time.Minute
	// least is of how many minutes at least something is told.
	least = 3
	// maxGap is over how many minutes without a sample the last one holds.
	maxGap = 5
	// maxRuns is of how many jobs alike the peaks count, and maxKinds how many kinds
	// there are; those that were seen longest ago go.
	maxRuns  = 9
	maxKinds = 256
	// Numbers are rounded so that a decision is not made anew for each sample:
	// memory up to so many MiB, percents to so many.
	memoryStep  = 256
	percentStep = 5
)

// Sample is what one task used of a GPU at one moment.
type Sample struct {
	At        time.Time
	MemoryMiB int
	// Busy is in percent, -1 if it is not known.
	Busy int
	// PartMiB and PartBusy are an equal part of the GPU, for as many as share it.
	PartMiB, PartBusy int
}

// Run is what one task has used so far. The zero Run has used nothing.
type Run struct {
	peak, samples int
	// began and at are when the first and the last sample was taken.
	began, at time.Time
	// partMiB and partBusy are its equal part of the GPU.
	partMiB, partBusy int
	// first and last are how busy it was in its first and its latest minutes; the
	// minute that it is in has sum in n samples.
	first, last []int
	minute      int64
	sum, n      int
}

// Add takes in a sample; those of before the last one are ignored.
func (r *Run) Add(s Sample) {
	at := s.At.Unix() / 60
	if s.MemoryMiB < 0 || s.MemoryMiB > model.MaxQuantity || s.At.Before(r.at) {
		return
	}
	if r.samples == 0 {
		r.began = s.At
	}
	r.samples++
	r.at = s.At
	r.peak = max(r.peak, s.MemoryMiB)
	r.partMiB, r.partBusy = min(max(s.PartMiB, 0), model.MaxQuantity), min(max(s.PartBusy, 0), 100)
	if s.Busy < 0 {
		return
	}
	busy := min(s.Busy, 100)
	if at != r.minute {
		r.close()
		switch gap := at - r.minute - 1; {
		case r.minute == 0 || len(r.last) == 0:
		case gap > maxGap:
			r.last = r.last[:0]
		default:
			for range gap {
				r.note(r.last[len(r.last)-1])
			}
		}
		r.minute = at
	}
	r.sum, r.n = r.sum+busy, r.n+1
}

// close notes the minute that the run is in.
func (r *Run) close() {
	if r.n > 0 {
		r.note((r.sum + r.n/2) / r.n)
	}
	r.sum, r.n = 0, 0
}

func (r *Run) note(busy int) {
	if len(r.first) < minutes {
		r.first = append(r.first, busy)
	}
	r.last = append(r.last, busy)
	if len(r.last) > lasting {
		r.last = slices.Delete(r.last, 0, len(r.last)-lasting)
	}
}

// busy is what four fifths of the latest minutes do not exceed, an equal part where
// too few of them are known.
func (r *Run) busy() int {
	if len(r.last) < least {
		return r.partBusy
	}
	return together.Calm(r.last)
}

// settled reports whether it was watched for long enough.
func (r *Run) settled() bool { return r.samples > 0 && r.at.Sub(r.began) >= settled }

// Kind is what jobs alike have used.
type Kind struct {
	// PeaksMiB and Busy are those of the last runs, the latest last.
	PeaksMiB []int `json:"peaks_mib"`
	Busy     []int `json:"busy"`
	// Minutes are the first of the last run that had enough of them.
	Minutes []int `json:"minutes,omitempty"`
	// Samples counts all measurements, and Last is when the latest run ended, in
	// Unix seconds.
	Samples int   `json:"samples"`
	Last    int64 `json:"last"`
}

// Book is what is known of kinds of jobs, by name. The zero Book knows nothing. It
// is not safe for concurrent use.
type Book struct {
	Kinds map[string]*Kind `json:"kinds,omitempty"`
}

// End learns from a task that has ended. It is false if that was too short.
func (b *Book) End(kind string, r *Run, at time.Time) bool {
	r.close()
	if !r.settled() {
		return false
	}
	if b.Kinds == nil {
		b.Kinds = map[string]*Kind{}
	}
	k := b.Kinds[kind]
	if k == nil {
		k = &Kind{}
		b.Kinds[kind] = k
	}
	k.PeaksMiB, k.Busy = latest(append(k.PeaksMiB, r.peak), maxRuns), latest(append(k.Busy, r.busy()), maxRuns)
	if len(r.first) >= least {
		k.Minutes = slices.Clone(r.first)
	}
	k.Samples, k.Last = min(k.Samples+r.samples, model.MaxCount), at.Unix()
	b.forget()
	return true
}

// forget drops the kinds that were seen longest ago.
func (b *Book) forget() {
	if len(b.Kinds) <= maxKinds {
		return
	}
	names := make([]string, 0, len(b.Kinds))
	for name := range b.Kinds {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int {
		return cmp.Or(cmp.Compare(b.Kinds[x].Last, b.Kinds[y].Last), strings.Compare(x, y))
	})
	for _, name := range names[:len(names)-maxKinds] {
		delete(b.Kinds, name)
	}
}

// Expect is what a job of a kind is expected to use, with the runs of its tasks, if
// it has any; nil if nothing is known. A peak that others had may still come; of one
// that has just started, and is like no other, it is an equal part of the GPU, or
// more if it has had more already.
func (b *Book) Expect(kind string, runs ...*Run) *model.Usage {
	out := &model.Usage{}
	if k := b.Kinds[kind]; k != nil {
		out.MemoryMiB, out.Busy, out.Samples = slices.Max(k.PeaksMiB), slices.Max(k.Busy), k.Samples
		out.Minutes = latest(k.Minutes, minutes)
	}
	most := -1
	for _, r := range runs {
		if r.samples == 0 {
			continue
		}
		busy := r.busy()
		out.MemoryMiB, out.Samples = max(out.MemoryMiB, r.peak), out.Samples+r.samples
		switch {
		case r.settled():
		case b.Kinds[kind] != nil:
			continue // others say more
		default:
			out.MemoryMiB, busy = max(out.MemoryMiB, r.partMiB), max(busy, r.partBusy)
		}
		if busy > most {
			most, out.Busy, out.Minutes = busy, busy, latest(r.last, minutes)
		}
	}
	if out.Samples == 0 {
		return nil
	}
	return rounded(out)
}

// rounded is a copy in steps.
func rounded(u *model.Usage) *model.Usage {
	percent := func(p int) int { return min((p+percentStep/2)/percentStep*percentStep, 100) }
	out := &model.Usage{
		MemoryMiB: min((u.MemoryMiB+memoryStep-1)/memoryStep*memoryStep, model.MaxQuantity),
		Busy:      percent(u.Busy), Samples: min(u.Samples, model.MaxCount),
	}
	for _, m := range u.Minutes {
		out.Minutes = append(out.Minutes, percent(m))
	}
	return out
}

// Decode reads what Encode wrote; what is damaged in it is left out.
func Decode(data []byte) (*Book, error) {
	b := new(Book)
	if err := json.Unmarshal(data, b); err != nil {
		return nil, fmt.Errorf("decode usage of shared GPUs: %w", err)
	}
	outside := func(most int) func(int) bool { return func(v int) bool { return v < 0 || v > most } }
	for name, k := range b.Kinds {
		if k == nil || len(k.PeaksMiB) == 0 || len(k.Busy) == 0 || len(k.PeaksMiB) > maxRuns || len(k.Busy) > maxRuns || len(k.Minutes) > minutes ||
			slices.ContainsFunc(k.PeaksMiB, outside(model.MaxQuantity)) || slices.ContainsFunc(slices.Concat(k.Busy, k.Minutes), outside(100)) ||
			k.Samples < 1 || k.Samples > model.MaxCount {
			delete(b.Kinds, name)
		}
	}
	b.forget()
	return b, nil
}

// Encode writes the book.
func (b *Book) Encode() ([]byte, error) {
	data, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode usage of shared GPUs: %w", err)
	}
	return data, nil
}

func latest(list []int, n int) []int { return slices.Clone(list[max(0, len(list)-n):]) }
