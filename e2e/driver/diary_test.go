package driver

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// entry is a line that a task's code has written down; see trainer.
type entry struct {
	at          time.Time
	task, alloc string
	word        string
	values      map[string]string
}

func (e entry) number(key string) int {
	n, err := strconv.Atoi(e.values[key])
	if err != nil {
		return -1
	}
	return n
}

// diary is what the tasks of a test have written, in the order of time.
type diary []entry

// String leaves the ticks out.
func (d diary) String() string {
	var b strings.Builder
	for _, e := range d {
		if e.word != "tick" {
			fmt.Fprintf(&b, "%s %s.%.8s %s %v\n", e.at.Format("05.000"), e.task, e.alloc, e.word, e.values)
		}
	}
	return b.String()
}

// read reads the files of all tasks. A last line that is being written is left
// out.
func (r *rig) read() diary {
	r.t.Helper()
	files, err := filepath.Glob(filepath.Join(r.diary, "*.*-*-*-*-*"))
	if err != nil {
		r.t.Fatal(err)
	}
	var out diary
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			r.t.Fatal(err)
		}
		data = data[:bytes.LastIndexByte(data, '\n')+1]
		task, alloc, _ := strings.Cut(filepath.Base(f), ".")
		for line := range strings.Lines(string(data)) {
			words := strings.Fields(line)
			ns, err := strconv.ParseInt(words[0], 10, 64)
			if err != nil || len(words) < 2 {
				r.t.Fatalf("%s has the line %q", f, line)
			}
			e := entry{at: time.Unix(0, ns), task: task, alloc: alloc, word: words[1], values: map[string]string{}}
			for _, w := range words[2:] {
				key, value, _ := strings.Cut(w, "=")
				e.values[key] = value
			}
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b entry) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.alloc, b.alloc)) })
	return out
}

// await waits until the diary is as it should be.
func (r *rig) await(what string, ok func(diary) bool) diary {
	r.t.Helper()
	var d diary
	r.until(what, func() (bool, any) {
		d = r.read()
		return ok(d), r.because(d)
	})
	return d
}

// because says what may be the reason why members do not write.
func (r *rig) because(d diary) string {
	text := d.String()
	for _, id := range r.jobs {
		list, _, err := r.nomad.Jobs().Allocations(id, true, nil)
		if err != nil {
			return text + err.Error()
		}
		for _, a := range list {
			text += fmt.Sprintf("%s %s/%s on %s\n", a.ID[:8], a.DesiredStatus, a.ClientStatus, a.NodeName)
			for name, s := range a.TaskStates {
				for _, e := range s.Events {
					text += fmt.Sprintf("  %s %s: %s\n", time.Unix(0, e.Time).Format("05.000"), name, e.DisplayMessage)
				}
			}
		}
	}
	return text
}

func (d diary) where(ok func(entry) bool) diary {
	return slices.DeleteFunc(slices.Clone(d), func(e entry) bool { return !ok(e) })
}

// with are the entries with a word, of those of an allocation, after those
// later than a time.
func (d diary) with(word string) diary  { return d.where(func(e entry) bool { return e.word == word }) }
func (d diary) of(alloc string) diary   { return d.where(func(e entry) bool { return e.alloc == alloc }) }
func (d diary) by(task string) diary    { return d.where(func(e entry) bool { return e.task == task }) }
func (d diary) after(t time.Time) diary { return d.where(func(e entry) bool { return e.at.After(t) }) }

// rank is the start of who has a rank, the last one.
func (d diary) rank(n int) entry {
	for _, e := range slices.Backward(d.with("start")) {
		if e.number("rank") == n {
			return e
		}
	}
	return entry{}
}

// abreast is the most that may lie between the starts of a gang's members. On an
// idle machine it is some milliseconds; what is longer than a busy one takes is a
// member that waited for something else than its gang.
const abreast = 30 * time.Second

// together checks that each epoch's members started about the same time, with the
// ranks from 0, and none twice. It returns how many epochs there were.
func (r *rig) together(d diary, members int) int {
	r.t.Helper()
	epochs := map[string]diary{}
	for _, e := range d.with("start") {
		epochs[e.values["epoch"]] = append(epochs[e.values["epoch"]], e)
	}
	for epoch, starts := range epochs {
		var ranks []int
		for _, e := range starts {
			ranks = append(ranks, e.number("rank"))
		}
		slices.Sort(ranks)
		for want, rank := range ranks {
			if rank != want || len(ranks) != members {
				r.t.Errorf("epoch %s started the ranks %v, want 0 to %d", epoch, ranks, members-1)
				break
			}
		}
		if spread := starts[len(starts)-1].at.Sub(starts[0].at); spread > abreast {
			r.t.Errorf("epoch %s took %v to start", epoch, spread)
		}
	}
	return len(epochs)
}

// goOn waits until each of the allocations has written some lines more.
func (r *rig) goOn(allocs ...string) diary {
	r.t.Helper()
	was := map[string]int{}
	d := r.read()
	for _, a := range allocs {
		was[a] = len(d.of(a).with("tick"))
	}
	return r.await("the members go on", func(d diary) bool {
		return !slices.ContainsFunc(allocs, func(a string) bool { return len(d.of(a).with("tick")) < was[a]+3 })
	})
}
