// Package trace reads logs of jobs that ran on a cluster, in the forms in which
// they are published and in one of its own, and makes samples of them.
package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Job is one job of a trace.
type Job struct {
	ID string `json:"job"`
	// Submit is when it was submitted, in seconds from an arbitrary zero, and
	// Duration how long it runs on the GPUs that it asks for.
	Submit   float64 `json:"submit_s"`
	Duration float64 `json:"duration_s"`
	// GPUs is how many it asks for. Min and Max bound an elastic one, else 0.
	GPUs int `json:"gpus"`
	Min  int `json:"min_gpus,omitempty"`
	Max  int `json:"max_gpus,omitempty"`
	// Deadline is when it is to have ended, on the clock of Submit; 0 is none.
	Deadline float64 `json:"deadline_s,omitempty"`
	// Model is what it trains, Queue who pays for it, Class what kind of work it
	// is (one of Classes); "" is not known.
	Model string `json:"model,omitempty"`
	Queue string `json:"queue,omitempty"`
	Class string `json:"class,omitempty"`
	// Share is what part of its one GPU it needs, above 0 and below 1; 0 is all of
	// each. Profile is the MIG instance that it asks for ("1g.10gb"); "" is none.
	Share   float64 `json:"gpu_share,omitempty"`
	Profile string  `json:"mig_profile,omitempty"`
	// GPUModels are the names of the GPU models that it may run on, with a | between
	// them; "" is any.
	GPUModels string `json:"gpu_models,omitempty"`
}

// Work is its GPU-seconds; of one that needs a part of a GPU, that part of them.
func (j *Job) Work() float64 { return j.Width() * j.Duration }

// Width is how many GPUs it needs, which may be a part of one.
func (j *Job) Width() float64 {
	if j.Share > 0 {
		return j.Share
	}
	return float64(j.GPUs)
}

// The classes of work.
const (
	ClassFoundation  = "foundation"
	ClassFineTune    = "finetune"
	ClassSweep       = "sweep"
	ClassInteractive = "interactive"
)

// Classes are all of them.
var classes = [...]string{ClassFoundation, ClassFineTune, ClassSweep, ClassInteractive}

// The formats.
const (
	FormatITP      = "itp"
	FormatGavel    = "gavel"
	FormatOpenB    = "openb"
	FormatSacct    = "sacct"
	FormatCSV      = "csv"
	FormatTiresias = "tiresias"
	FormatHelios   = "helios"
)

// Formats are all of them.
func Formats() []string {
	return []string{FormatITP, FormatGavel, FormatOpenB, FormatSacct, FormatCSV, FormatTiresias, FormatHelios}
}

// ErrTrace is the error for a trace that cannot be used.
var ErrTrace = errors.New("invalid trace")

// Options say how a trace is read.
type Options struct {
	// Format is one of Formats.
	Format string
	// Unit is how many seconds a number of the trace's times is; 0 is 1. Slurm's
	// times have units of their own.
	Unit float64
	// Strict stops at the first broken row.
	Strict bool
	// Throughputs are the steps per second by "('TYPE', GPUS)", which the gavel
	// format needs for durations.
	Throughputs map[string]float64
	// Shards is how many shards (gres/shard) a GPU has in Slurm's accounting, where the
	// site has such; 0: jobs with shards are left out.
	Shards int
}

// MaxShards is how many shards a GPU has at most.
const MaxShards = 1 << 10

// Report is what was read, and what was not.
type Report struct {
	// Rows counts the rows below the header, Jobs what came of them.
	Rows int `json:"rows"`
	Jobs int `json:"jobs"`
	// Broken counts the rows that cannot be read, and First says what is wrong
	// with the first of them, by line.
	Broken int    `json:"broken,omitempty"`
	First  string `json:"first_broken,omitempty"`
	// Left counts rows that are well and no job for a GPU scheduler, by reason, and
	// FirstLeft says which the first of them is, by line.
	Left      map[string]int `json:"left_out,omitempty"`
	FirstLeft string         `json:"first_left_out,omitempty"`
	// Joined counts the rows of heterogeneous jobs of Slurm that are part of the gang of
	// another row, and Apart those that stand apart from the first of their job, so that
	// they are no part of it.
	Joined int `json:"joined,omitempty"`
	Apart  int `json:"apart,omitempty"`
}

// Said are what is to be said of rows that came to nothing, or to a part of a job: how
// many, why, and which the first is. Nothing is said of a trace of which every row is a job.
func (r *Report) Said() (lines []string) {
	if r.Broken > 0 {
		lines = append(lines, fmt.Sprintf("%d of %d rows are broken and left out; the first is %s", r.Broken, r.Rows, r.First))
	}
	if r.Joined > 0 {
		lines = append(lines, fmt.Sprintf("%d of %d rows are further components of heterogeneous jobs: each is one gang with the others of its job, for the longest of their run times", r.Joined, r.Rows))
	}
	if r.Apart > 0 {
		lines = append(lines, fmt.Sprintf("%d of %d rows are components of heterogeneous jobs without the first one (+0) before or behind them: they are jobs of their own; sort the rows by JobID", r.Apart, r.Rows))
	}
	if len(r.Left) == 0 {
		return lines
	}
	n, why := 0, make([]string, 0, len(r.Left))
	for _, reason := range slices.Sorted(maps.Keys(r.Left)) {
		n += r.Left[reason]
		why = append(why, fmt.Sprintf("%s (%d)", reason, r.Left[reason]))
	}
	return append(lines, fmt.Sprintf("%d of %d rows are left out: %s; the first is %s", n, r.Rows, strings.Join(why, ", "), r.FirstLeft))
}

// leftOut is a row that is well, but no job to schedule.
type leftOut string

func (l leftOut) Error() string { return string(l) }

// row makes a job of a row.
type parser interface {
	// columns are those that must be there, by name.
	columns() []string
	job(r *row) (Job, error)
	// named are the columns that say when a job was submitted, how long it runs and
	// how many GPUs it asks for, as faults name them.
	named() named
}

// insteadOf is what may stand in the place of a form's columns.
func insteadOf(p parser) map[string][]string {
	if other, has := p.(interface{ instead() map[string][]string }); has {
		return other.instead()
	}
	return nil
}

type named struct{ submit, duration, gpus, models string }

// Scan reads a trace, plain or gzipped, and hands out its jobs in the order of
// its rows. Memory does not grow with the trace.
func Scan(r io.Reader, o Options, each func(Job) error) (Report, error) {
	rep := Report{Left: map[string]int{}}
	p, comma, err := o.parser()
	if err != nil {
		return rep, err
	}
	plain, err := unzip(r)
	if err != nil {
		return rep, err
	}
	t, err := newTable(plain, comma, p.columns(), insteadOf(p), o.Format == FormatGavel)
	if err != nil {
		return rep, err
	}
	joined := components{rep: &rep, each: each, none: o.Format != FormatSacct}
	for {
		row, err := t.next()
		if errors.Is(err, io.EOF) {
			if err := joined.end(); err != nil {
				return rep, err
			}
			return rep, rep.check()
		}
		rep.Rows++
		var j Job
		if err == nil {
			j, err = p.job(row)
		}
		if err == nil {
			err = check(&j, p.named())
		}
		if err := joined.next(j.ID); err != nil {
			return rep, err
		}
		var left leftOut
		switch {
		case errors.As(err, &left):
			rep.leave(left, 1, t.line())
			continue
		case err != nil:
			rep.breaks(1, t.line(), err)
			if o.Strict || errors.Is(err, errRead) {
				return rep, fmt.Errorf("%w: line %d: %w", ErrTrace, t.line(), err)
			}
			continue
		}
		if j.ID == "" {
			j.ID = fmt.Sprint(rep.Rows)
		}
		if err := joined.add(j, t.line()); err != nil {
			return rep, err
		}
	}
}

// leave counts rows that are well and no job.
func (r *Report) leave(why leftOut, rows, line int) {
	if r.Left[string(why)] += rows; r.FirstLeft == "" {
		r.FirstLeft = fmt.Sprintf("line %d: %v", line, why)
	}
}

// breaks counts rows that are broken.
func (r *Report) breaks(rows, line int, why error) {
	if r.Broken += rows; r.First == "" {
		r.First = fmt.Sprintf("line %d: %v", line, why)
	}
}

func (r *Report) check() error {
	if r.Jobs > 0 {
		return nil
	}
	if r.First != "" {
		return fmt.Errorf("%w: %d rows, all of them broken or left out; %s", ErrTrace, r.Rows, r.First)
	}
	if r.FirstLeft != "" {
		return fmt.Errorf("%w: %d rows, and no job among them; %s", ErrTrace, r.Rows, r.FirstLeft)
	}
	return fmt.Errorf("%w: %d rows, and no job among them", ErrTrace, r.Rows)
}

// Read reads a trace whole, the earliest job first. A name that comes again gets
// the row's number behind it, so that every job can be told from the others.
func Read(r io.Reader, o Options) ([]Job, Report, error) {
	var jobs []Job
	names := map[string]bool{}
	rep, err := Scan(r, o, func(j Job) error {
		distinguish(names, &j, len(jobs)+1)
		jobs = append(jobs, j)
		return nil
	})
	if err != nil {
		return nil, rep, err
	}
	Sort(jobs)
	return jobs, rep, nil
}

// distinguish puts a job's number, in the order of the rows, behind a name that was
// there before.
func distinguish(names map[string]bool, j *Job, number int) {
	for names[j.ID] {
		j.ID = fmt.Sprintf("%s#%d", j.ID, number)
	}
	names[j.ID] = true
}

// Sort orders jobs by submission, then by ID.
func Sort(jobs []Job) {
	slices.SortStableFunc(jobs, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.Submit, b.Submit), strings.Compare(a.ID, b.ID))
	})
}

func (o Options) parser() (parser, rune, error) {
	unit := o.Unit
	if unit == 0 {
		unit = 1
	}
	switch o.Format {
	case FormatITP:
		return itp{unit}, ',', nil
	case FormatGavel:
		if len(o.Throughputs) == 0 {
			return nil, 0, fmt.Errorf("%w: the gavel format needs the file of throughputs that belongs to it", ErrTrace)
		}
		return gavel{o.Throughputs}, '\t', nil
	case FormatOpenB:
		return openb{unit}, ',', nil
	case FormatSacct:
		return sacct{o.Shards}, '|', nil
	case FormatCSV:
		return own{unit}, ',', nil
	case FormatTiresias:
		return tiresias{unit}, ',', nil
	case FormatHelios:
		return helios{unit}, ',', nil
	}
	return nil, 0, fmt.Errorf("%w: format %q: want one of %s", ErrTrace, o.Format, strings.Join(Formats(), ", "))
}

// packed are the beginnings of files that are compressed in other ways.
var packed = map[string]string{"PK\x03\x04": "zip", "\x28\xb5\x2f\xfd": "zstd", "\xfd7zX": "xz", "BZh": "bzip2"}

// unzip reads through gzip where the data is such, and past the mark that some programs
// put before UTF-8.
func unzip(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	head, _ := b.Peek(4)
	for begin, form := range packed {
		if bytes.HasPrefix(head, []byte(begin)) {
			return nil, fmt.Errorf("%w: it is compressed as %s: want plain text, or gzip", ErrTrace, form)
		}
	}
	if !bytes.HasPrefix(head, []byte{0x1f, 0x8b}) {
		return unmarked(b), nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, fmt.Errorf("%w: decompress: %w", ErrTrace, err)
	}
	return unmarked(bufio.NewReader(z)), nil
}

// unmarked leaves out a byte order mark, in whose place a quote may stand.
func unmarked(b *bufio.Reader) io.Reader {
	if head, _ := b.Peek(len(byteOrderMark)); string(head) == byteOrderMark {
		_, _ = b.Discard(len(byteOrderMark)) // it has them
	}
	return b
}

const byteOrderMark = "\ufeff"
