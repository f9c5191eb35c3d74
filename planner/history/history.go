// Package history learns from jobs that have ended how long others like them
// run, and how much service jobs need. Most work in GPU clusters comes back: the
// same user submits the same kind of job again and again (Weng et al., MLaaS in
// the Wild, NSDI'22, section 5.2: recurring tasks are told by user and name, and
// the runs of the past predict the next). The package is pure arithmetic; what
// it knows is one JSON document.
package history

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// The bounds of what is remembered.
const (
	// maxRuns is of how many runs of like jobs the median is taken.
	maxRuns = 9
	// maxPatterns is how many kinds of jobs are known; those that ended longest
	// ago are forgotten first, some at a time.
	maxPatterns = 2000
	someAtATime = 200
	// maxDemands and maxErrors are how many jobs count for the distribution of
	// service, and for how far predictions were off.
	maxDemands = 1000
	maxErrors  = 200
	// maxSeconds is the longest run that can be, some thirty years.
	maxSeconds = 1e9
)

// Book is what is known. The zero Book knows nothing. It is not safe for
// concurrent use.
type Book struct {
	// Patterns are the runs of jobs alike, by what they have in common.
	Patterns map[string]*Pattern `json:"patterns,omitempty"`
	// Demands are the GPU-seconds of the latest jobs that have ended.
	Demands []float64 `json:"demands_gpu_s,omitempty"`
	// Errors are by what part of it the latest predictions were off: 0.5 is a run
	// half as long again as was predicted, or half as long.
	Errors []float64 `json:"errors,omitempty"`
}

// Pattern is what jobs alike have done.
type Pattern struct {
	// Seconds are the run times, the latest last.
	Seconds []int64 `json:"s"`
	// Last is when the latest of them ended, in Unix seconds.
	Last int64 `json:"t"`
}

// Ended is a job that has ended.
type Ended struct {
	Job *model.Job
	// Ran is how long it has run in all of its runs, and GPUSeconds what it has
	// had.
	Ran        time.Duration
	GPUSeconds float64
	// Completed: it came to its own end, and was not stopped or failed. Only then
	// it says how long others like it run.
	Completed bool
	At        time.Time
}

// Prediction is how long a job is thought to run.
type Prediction struct {
	// Median of the last Runs like it; Spread is how far half of them are off at
	// most.
	Median, Spread time.Duration
	Runs           int
}

// Decode reads what Encode wrote.
func Decode(data []byte) (*Book, error) {
	b := new(Book)
	if err := json.Unmarshal(data, b); err != nil {
		return nil, fmt.Errorf("decode history: %w", err)
	}
	for key, p := range b.Patterns {
		if p == nil || len(p.Seconds) == 0 || slices.Min(p.Seconds) < 0 || slices.Max(p.Seconds) > maxSeconds {
			delete(b.Patterns, key)
		}
	}
	b.Demands = slices.DeleteFunc(b.Demands, func(d float64) bool { return !(d >= 0 && d <= model.MaxQuantity) })
	b.Errors = slices.DeleteFunc(b.Errors, func(e float64) bool { return !(e >= 0) })
	return b, nil
}

// Encode writes the book.
func (b *Book) Encode() ([]byte, error) {
	data, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode history: %w", err)
	}
	return data, nil
}

// Add learns from a job that has ended.
func (b *Book) Add(e Ended) {
	if e.Ran <= 0 {
		return
	}
	b.Demands = last(append(b.Demands, math.Round(e.GPUSeconds)), maxDemands)
	if !e.Completed {
		return
	}
	if was, known := b.Predict(e.Job); known && was.Median > 0 {
		off := math.Abs(e.Ran.Seconds()-was.Median.Seconds()) / was.Median.Seconds()
		b.Errors = last(append(b.Errors, math.Round(off*1000)/1000), maxErrors)
	}
	if b.Patterns == nil {
		b.Patterns = map[string]*Pattern{}
	}
	for _, key := range keys(e.Job) {
		p := b.Patterns[key]
		if p == nil {
			p = new(Pattern)
			b.Patterns[key] = p
		}
		p.Seconds = last(append(p.Seconds, max(1, int64(e.Ran/time.Second))), maxRuns)
		p.Last = max(p.Last, e.At.Unix())
	}
	b.forget()
}

// forget drops the patterns that ended longest ago.
func (b *Book) forget() {
	if len(b.Patterns) <= maxPatterns {
		return
	}
	names := make([]string, 0, len(b.Patterns))
	for name := range b.Patterns {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int {
		return cmp.Or(cmp.Compare(b.Patterns[x].Last, b.Patterns[y].Last), strings.Compare(x, y))
	})
	for _, name := range names[:len(names)-maxPatterns+someAtATime] {
		delete(b.Patterns, name)
	}
}

// Predict says how long a job is thought to run, by those that are likest to it;
// false if none like it has ended.
func (b *Book) Predict(j *model.Job) (Prediction, bool) {
	for _, key := range keys(j) {
		if p := b.Patterns[key]; p != nil {
			return p.predict(), true
		}
	}
	return Prediction{}, false
}

// predict is the median of the runs and the median of their distances from it.
func (p *Pattern) predict() Prediction {
	middle := median(p.Seconds)
	off := make([]int64, len(p.Seconds))
	for i, s := range p.Seconds {
		off[i] = max(s-middle, middle-s)
	}
	return Prediction{Median: time.Duration(middle) * time.Second, Spread: time.Duration(median(off)) * time.Second, Runs: len(p.Seconds)}
}

// Error is the median of by what part predictions were off lately, and of how
// many.
func (b *Book) Error() (part float64, of int) {
	if len(b.Errors) == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(b.Errors))
	return sorted[len(sorted)/2], len(sorted)
}

// median is the middle, of an even number the mean of the two.
func median(list []int64) int64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// keys name what jobs have in common, the closest first: the queue (which names
// team and user), the pattern of the name and the shape; then the same without
// the shape.
func keys(j *model.Job) []string {
	who := strings.Join([]string{j.Namespace, j.Queue, NamePattern(j.ID)}, "|")
	var shape strings.Builder
	for i := range j.Groups {
		g := &j.Groups[i]
		gpus := 0
		for k := range g.Devices {
			gpus += g.Devices[k].Count
		}
		shape.WriteString("|" + strconv.Itoa(g.Count) + "x" + strconv.Itoa(gpus))
	}
	return []string{who + "|of" + shape.String(), who}
}

// NamePattern is a job's name without what tells one run from the next: every
// number is "#", and so is a part between separators with both digits and no
// letters beyond f, as of a hash.
func NamePattern(name string) string {
	var out strings.Builder
	for part := range strings.FieldsFuncSeq(name, separates) {
		if out.Len() > 0 {
			out.WriteByte('-')
		}
		if isHash(part) {
			out.WriteByte('#')
			continue
		}
		digit := false
		for _, r := range part {
			if unicode.IsDigit(r) {
				if !digit {
					out.WriteByte('#')
				}
				digit = true
				continue
			}
			digit = false
			out.WriteRune(r)
		}
	}
	return out.String()
}

func separates(r rune) bool { return strings.ContainsRune("-_./: ", r) }

// isHash reports whether a part of a name looks like one of a commit or a UUID.
func isHash(part string) bool {
	return len(part) >= 4 && strings.ContainsAny(part, "0123456789") &&
		strings.Trim(part, "0123456789abcdefABCDEF") == ""
}

func last[T any](list []T, n int) []T {
	if len(list) > n {
		return slices.Clone(list[len(list)-n:])
	}
	return list
}
