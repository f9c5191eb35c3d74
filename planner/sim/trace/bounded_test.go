package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rows is a long trace that is made while it is read: days of a hundred jobs, in
// an order of their own.
type rows struct {
	n, made int
	rest    bytes.Buffer
}

func (r *rows) Read(p []byte) (int, error) {
	for r.rest.Len() < len(p) && r.made <= r.n {
		if r.made == 0 {
			r.rest.WriteString("job,submit_s,duration_s,gpus\n")
		} else {
			at := (r.made * 7919) % r.n // all days at once
			fmt.Fprintf(&r.rest, "j%d,%d,60,1\n", at, at*864)
		}
		r.made++
	}
	return r.rest.Read(p)
}

// Whole days are kept, as many as there may be, whatever order the rows come in.
func TestBounded(t *testing.T) {
	jobs, kept, err := Bounded(&rows{n: 100_000}, Options{Format: FormatCSV}, 5050, 1)
	if err != nil {
		t.Fatal(err)
	}
	if kept.Rows != 100_000 || kept.Days != 1000 || kept.Whole != 50 || len(jobs) != 5000 || kept.KeptJobs != 5000 {
		t.Fatalf("%+v, %d jobs: want 50 of 1000 days of 100 jobs", kept, len(jobs))
	}
	for i := range jobs {
		if want := float64(i) * 864; jobs[i].Submit != want {
			t.Fatalf("job %d at %g s: want the days one behind the other, %g", i, jobs[i].Submit, want)
		}
	}
	var text strings.Builder
	if _, err := io.Copy(&text, &rows{n: 100_000}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	rng := rand.New(rand.NewPCG(1, 2))
	rng.Shuffle(len(lines)-1, func(i, k int) { lines[i+1], lines[k+1] = lines[k+1], lines[i+1] })
	again, _, err := Bounded(strings.NewReader(strings.Join(lines, "\n")), Options{Format: FormatCSV}, 5050, 1)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(jobs, again); diff != "" {
		t.Error("another order of the rows keeps other days")
	}
	other, _, err := Bounded(&rows{n: 100_000}, Options{Format: FormatCSV}, 5050, 2)
	if err != nil || cmp.Equal(jobs, other) {
		t.Errorf("another seed keeps the same days: %v", err)
	}
}

// A trace that is short enough is read as it is; one that has too much in a day is
// refused.
func TestBoundedKeepsAll(t *testing.T) {
	text := "job,submit_s,duration_s,gpus,deadline_s\nb,900000,60,1,900100\na,5,60,2,\na,6,60,1,\nc,-1,60,x,\n"
	jobs, kept, err := Bounded(strings.NewReader(text), Options{Format: FormatCSV}, 3, 1)
	want := []Job{{ID: "a", Submit: 5, Duration: 60, GPUs: 2}, {ID: "a#3", Submit: 6, Duration: 60, GPUs: 1}, {ID: "b", Submit: 900000, Duration: 60, GPUs: 1, Deadline: 900100}}
	if err != nil || kept.Broken != 1 || kept.Days != kept.Whole {
		t.Fatalf("%+v, %v", kept, err)
	}
	if diff := cmp.Diff(want, jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if _, _, err := Bounded(strings.NewReader(text), Options{Format: FormatCSV}, 1, 1); err != nil && !errors.Is(err, errTooMany) {
		t.Errorf("one job: %v", err)
	}
	if _, _, err := Bounded(&rows{n: 1000}, Options{Format: FormatCSV}, 99, 1); !errors.Is(err, errTooMany) {
		t.Errorf("a day of 100 jobs, and 99 may be kept: %v", err)
	}
	if _, _, err := Bounded(strings.NewReader(text), Options{Format: FormatCSV}, 0, 1); !errors.Is(err, ErrTrace) {
		t.Errorf("no job: %v", err)
	}
}

// A day with too many jobs is one that was not drawn, whether it comes first or last;
// where no day is left the error says how many jobs would have to be kept.
func TestBoundedWithALargeDay(t *testing.T) {
	const header, few = "job,submit_s,duration_s,gpus\n", 3
	var large, small strings.Builder
	for i := range 9 {
		fmt.Fprintf(&large, "l%d,%d,60,1\n", i, i)
	}
	for i := range few {
		fmt.Fprintf(&small, "s%d,%d,60,1\n", i, 86400+i)
	}
	kept := 0
	for seed := range uint64(8) {
		first, _, errFirst := Bounded(strings.NewReader(header+large.String()+small.String()), Options{Format: FormatCSV}, 8, seed)
		last, _, errLast := Bounded(strings.NewReader(header+small.String()+large.String()), Options{Format: FormatCSV}, 8, seed)
		if fmt.Sprint(errFirst) != fmt.Sprint(errLast) || !cmp.Equal(first, last) {
			t.Errorf("seed %d: the large day first: %v, %v; last: %v, %v", seed, first, errFirst, last, errLast)
		}
		switch {
		case errFirst == nil && len(first) == few:
			kept++
		case !errors.Is(errFirst, errTooMany):
			t.Errorf("seed %d: %v, %v", seed, first, errFirst)
		case !strings.HasSuffix(errFirst.Error(), "(8): its 2 days have 3 to 9; --max-jobs 9 is enough for any of them"):
			t.Errorf("seed %d: error %q", seed, errFirst)
		}
	}
	if kept == 0 || kept == 8 {
		t.Errorf("the small day was kept by %d of 8 seeds: want some", kept)
	}
}

// A trace that is kept whole has the names that Read gives, whatever the order of
// its rows, and with submissions before zero.
func TestBoundedNamesAsReadDoes(t *testing.T) {
	const text = "job,submit_s,duration_s,gpus\na,100,100,4\na,120,100,1\nr,-5,100,1\na,-90000,1,2\na#2,1,1,1\n"
	want, _, err := Read(strings.NewReader(text), Options{Format: FormatCSV})
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := Bounded(strings.NewReader(text), Options{Format: FormatCSV}, 10, 1)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("jobs (-Read +Bounded):\n%s", diff)
	}
}
