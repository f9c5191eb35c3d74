package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// written is what jobs are as a file.
func written(t *rapid.T, jobs []Job) *bytes.Reader {
	var b bytes.Buffer
	w, err := NewWriter(&b)
	for i := range jobs {
		if err == nil {
			err = w.Write(jobs[i])
		}
	}
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b.Bytes())
}

// within are the jobs of a window, the first of them at 0: as in the definition, with
// all of them in memory.
func within(jobs []Job, from, length float64) []Job {
	var out []Job
	for _, j := range jobs {
		if from <= j.Submit && j.Submit < from+length {
			out = append(out, j)
		}
	}
	return Shift(out)
}

// Whatever is done in several passes is what is done with all jobs in memory.
func TestPassesAreAsInMemory(t *testing.T) {
	near := []cmp.Option{cmpopts.EquateApprox(1e-9, 1e-6), cmpopts.EquateEmpty()}
	rapid.Check(t, func(t *rapid.T) {
		jobs := anyJobs(t)
		seed, from, days := rapid.Uint64().Draw(t, "seed"), float64(rapid.IntRange(0, 9).Draw(t, "from"))*day/2, float64(rapid.IntRange(1, 20).Draw(t, "days"))*day/2
		gpus, load := rapid.IntRange(32, 64).Draw(t, "gpus"), rapid.Float64Range(0.1, 3).Draw(t, "load")
		moved := make([]Job, len(jobs)) // in another order, and from another zero
		for i := range jobs {
			moved[(i*7+3)%len(jobs)] = jobs[i].later(-5000)
		}
		if len(jobs)%7 == 0 {
			copy(moved, jobs)
		}
		in := written(t, moved)
		passes := NewPasses(in, in.Size(), Options{Format: FormatCSV, Strict: true})
		run := func(name string, want []Job, pass func(each func(Job) error) error) {
			var got []Job
			err := pass(func(j Job) error {
				got = append(got, j)
				return nil
			})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			Sort(got)
			if diff := cmp.Diff(want, got, near...); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		run("a window", within(jobs, from, days), func(each func(Job) error) error {
			_, n, err := passes.Window(from, days, each)
			if want := len(within(jobs, from, days)); n != want {
				t.Errorf("%d jobs: want %d", n, want)
			}
			return err
		})
		run("days drawn", within(Draw(jobs, 0, seed), from, days), func(each func(Job) error) error {
			_, _, err := passes.Drawn(seed, from, days, each)
			return err
		})
		fit, tooLarge := Fit(jobs, func(n int) bool { return n <= gpus })
		want, factor, err := ScaleTo(Shift(fit), gpus, load)
		if err != nil {
			return
		}
		run("scaled", want, func(each func(Job) error) error {
			out, err := passes.Scale(gpus, load, each)
			if out.TooLarge != len(tooLarge) || math.Abs(out.Factor-factor) > 1e-9*factor {
				t.Errorf("%d too large, factor %g: want %d, %g", out.TooLarge, out.Factor, len(tooLarge), factor)
			}
			return err
		})
	})
}

// changing is a file that is another one from the second pass on.
type changing struct{ reads *int }

func (c changing) ReadAt(p []byte, at int64) (int, error) {
	text := "job,submit_s,duration_s,gpus\na,0,60,1\nb,60,60,1\n"
	if at == 0 {
		*c.reads++
	}
	if *c.reads > 1 {
		text = strings.ReplaceAll(text, "b,60,60,1", "b,60,-1,1")
	}
	if at >= int64(len(text)) {
		return 0, io.EOF
	}
	return copy(p, text[at:]), nil
}

func TestPassesOfWhatChanges(t *testing.T) {
	reads := 0
	_, err := NewPasses(changing{&reads}, 1<<20, Options{Format: FormatCSV}).Scale(8, 1, func(Job) error { return nil })
	if !errors.Is(err, ErrChanged) {
		t.Errorf("error %v: want that it was changed", err)
	}
	one := strings.NewReader("job,submit_s,duration_s,gpus\na,0,60,1\nb,60,60,64\n")
	_, err = NewPasses(one, one.Size(), Options{Format: FormatCSV}).Scale(8, 1, func(Job) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "scale 1 jobs to load 1: want jobs that are submitted at different times: a load is by the time until the last of them") {
		t.Errorf("one job that fits: %v", err)
	}
	stop := errors.New("no more")
	if _, _, err := NewPasses(one, one.Size(), Options{Format: FormatCSV}).Window(0, day, func(Job) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error %v: want that of who takes the jobs", err)
	}
}

// long is a trace of any length that is nowhere: each of its rows is made when it is
// read. Each job has a queue of its own.
type long struct{ rows int }

const longHeader, longRow = "job,submit_s,duration_s,gpus,queue\n", 40

func (l long) size() int64 { return int64(len(longHeader) + l.rows*longRow) }

func (l long) ReadAt(p []byte, at int64) (n int, err error) {
	if at < int64(len(longHeader)) {
		return copy(p, longHeader[at:]), nil
	}
	for n < len(p) {
		from := int(at) + n - len(longHeader)
		k := from / longRow
		if k >= l.rows {
			return n, io.EOF
		}
		row := fmt.Sprintf("j%08d,%08d,%05d,%02d,q%010d\n", k, (k*7919)%l.rows, 60+k%9000, 1<<(k%4), k)
		n += copy(p[n:], row[from%longRow:])
	}
	return n, nil
}

// Memory does not grow with the trace.
func TestPassesAreBounded(t *testing.T) {
	const rows, most = 400_000, 8 << 20 // its jobs alone are some 60 MB
	trace := long{rows}
	held := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, peak, seen := held(), uint64(0), 0
	look := func(Job) error {
		if seen++; seen%100_000 == 0 {
			peak = max(peak, held())
		}
		return nil
	}
	d := NewDescriber()
	passes := NewPasses(trace, trace.size(), Options{Format: FormatCSV, Strict: true})
	for name, pass := range map[string]func() error{
		"describe": func() error {
			_, err := passes.Each(func(j Job) error {
				d.Add(&j)
				return look(j)
			})
			return err
		},
		"scale":  func() error { _, err := passes.Scale(64, 1, look); return err },
		"window": func() error { _, _, err := passes.Window(100, 1e9, look); return err },
		"drawn":  func() error { _, _, err := passes.Drawn(1, 0, 1e9, look); return err },
	} {
		seen = 0
		if err := pass(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if seen < rows/2 {
			t.Errorf("%s: %d jobs: want most of %d", name, seen, rows)
		}
		if peak > before+most {
			t.Errorf("%s holds %d bytes: want %d at most", name, peak-before, most)
		}
	}
	if s := d.Summary(); s.Jobs != rows || s.DurationError != 0 || math.Abs(float64(s.Queues)/rows-1) > 5*s.QueuesError || s.QueuesError > 0.01 {
		t.Errorf("%+v: want %d jobs, and about as many queues", s, rows)
	}
}
