package trace

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
)

// Passes reads the same trace again and again, so that what needs to be known of all
// of its jobs is known when they are written. None is kept in memory.
type Passes struct {
	in   io.ReaderAt
	size int64
	o    Options
	read *Report // what the first pass has read; nil before it
}

// NewPasses reads so many bytes.
func NewPasses(in io.ReaderAt, size int64, o Options) *Passes {
	return &Passes{in: in, size: size, o: o}
}

// ErrChanged is that of a trace that is not what it was when it was read before.
var ErrChanged = errors.New("it was changed while it was read")

// Each hands out all jobs once, in the order of the rows.
func (p *Passes) Each(each func(Job) error) (Report, error) {
	rep, err := Scan(io.NewSectionReader(p.in, 0, p.size), p.o, each)
	switch {
	case p.read == nil && err == nil:
		p.read = &rep
	case p.read != nil && (err == nil || errors.Is(err, ErrTrace)) && !rep.same(p.read):
		return rep, fmt.Errorf("%w: %w", ErrTrace, ErrChanged)
	}
	return rep, err
}

func (r *Report) same(as *Report) bool {
	return r.Rows == as.Rows && r.Jobs == as.Jobs && r.Joined == as.Joined && r.Apart == as.Apart && r.Broken == as.Broken && r.First == as.First && r.FirstLeft == as.FirstLeft && maps.Equal(r.Left, as.Left)
}

// Scaled is what came of Scale.
type Scaled struct {
	Report
	// Factor is by what the submissions were moved, TooLarge how many jobs were left
	// out as they ask for more GPUs than there are.
	Factor   float64
	TooLarge int
}

// Scale is ScaleTo for a trace of any length: it reads it twice, leaves out the jobs
// that are larger than the cluster, and hands out the others in the order of the rows.
// The first of them is submitted at 0.
func (p *Passes) Scale(gpus int, load float64, each func(Job) error) (Scaled, error) {
	var out Scaled
	if err := CheckScale(gpus, load); err != nil {
		return out, err
	}
	first, last, work, fit := math.Inf(1), math.Inf(-1), 0.0, 0
	var err error
	out.Report, err = p.Each(func(j Job) error {
		if j.GPUs > gpus {
			out.TooLarge++
			return nil
		}
		first, last, work, fit = min(first, j.Submit), max(last, j.Submit), work+j.Work(), fit+1
		return nil
	})
	if err != nil {
		return out, err
	}
	if !(last > first) {
		return out, noLoad(fit, load)
	}
	out.Factor = work / (float64(gpus) * (last - first)) / load
	_, err = p.Each(func(j Job) error {
		if j.GPUs > gpus {
			return nil
		}
		j = j.later(-first)
		return each(j.later(j.Submit*out.Factor - j.Submit))
	})
	return out, err
}

// Window hands out the jobs that are submitted in [from, from+length), in seconds from
// the first job of the trace, in the order of the rows; the first of them is submitted
// at 0. It says how many they are.
func (p *Passes) Window(from, length float64, each func(Job) error) (Report, int, error) {
	first, _, rep, err := p.span()
	if err != nil {
		return rep, 0, err
	}
	n, err := p.window(func(j Job, each func(Job) error) error { return each(j.later(-first)) }, from, length, each)
	return rep, n, err
}

// Drawn is Window of days drawn at random, as by Draw, rather than of the trace's
// own.
func (p *Passes) Drawn(seed uint64, from, length float64, each func(Job) error) (Report, int, error) {
	first, last, rep, err := p.span()
	if err != nil {
		return rep, 0, err
	}
	earliest := make([]float64, int((last-first)/day)+1) // of each day
	for i := range earliest {
		earliest[i] = math.Inf(1)
	}
	if _, err := p.Each(func(j Job) error {
		at := j.Submit - first
		earliest[int(at/day)] = min(earliest[int(at/day)], at)
		return nil
	}); err != nil {
		return rep, 0, err
	}
	start, places := math.Inf(1), map[int][]int{}
	for to, block := range drawDays(len(earliest), len(earliest), seed) {
		start = min(start, earliest[block]+float64(to-block)*day)
		places[block] = append(places[block], to)
	}
	if math.IsInf(start, 1) {
		return rep, 0, nil // only days without jobs were drawn
	}
	n, err := p.window(func(j Job, each func(Job) error) error {
		j = j.later(-first)
		block := int(j.Submit / day)
		for _, to := range places[block] {
			if err := each(j.asDrawn(block, to).later(-start)); err != nil {
				return err
			}
		}
		return nil
	}, from, length, each)
	return rep, n, err
}

// span is when the first and the last job are submitted.
func (p *Passes) span() (first, last float64, rep Report, err error) {
	first, last = math.Inf(1), math.Inf(-1)
	rep, err = p.Each(func(j Job) error {
		first, last = min(first, j.Submit), max(last, j.Submit)
		return nil
	})
	return first, last, rep, err
}

// window hands out those jobs in [from, from+length) that others are made into.
func (p *Passes) window(made func(Job, func(Job) error) error, from, length float64, each func(Job) error) (n int, err error) {
	inside := func(then func(Job) error) error {
		_, err := p.Each(func(j Job) error {
			return made(j, func(j Job) error {
				if at := j.Submit; !(from <= at && at < from+length) {
					return nil
				}
				return then(j)
			})
		})
		return err
	}
	start := 0.0 // the first of all is there
	if from > 0 {
		start = math.Inf(1)
		if err := inside(func(j Job) error {
			start = min(start, j.Submit)
			return nil
		}); err != nil {
			return 0, err
		}
	}
	err = inside(func(j Job) error {
		n++
		return each(j.later(-start))
	})
	return n, err
}
