package devrun

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// entry is a line that a member's code has written down; see trainer.sh.
type entry struct {
	at    time.Time
	alloc string
	word  string
	// values are the details by name.
	values map[string]string
}

// The words.
const (
	wordStart   = "start"
	wordTick    = "tick"
	wordCrash   = "crash"
	wordResized = "resized"
	wordEnd     = "end"
)

func (e entry) number(key string) int {
	n, err := strconv.Atoi(e.values[key])
	if err != nil {
		return -1
	}
	return n
}

// diary is what the members of a job have written, in the order of time.
type diary []entry

// readDiary reads the files of all members. A last line that is being written
// is left out.
func readDiary(dir string) (diary, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read diary: %w", err)
	}
	var out diary
	for _, f := range files {
		if f.IsDir() || !strings.Contains(f.Name(), "-") || strings.HasPrefix(f.Name(), "crash-") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, fmt.Errorf("read diary: %w", err)
		}
		data = data[:bytes.LastIndexByte(data, '\n')+1]
		for line := range strings.Lines(string(data)) {
			e, err := parseEntry(line)
			if err != nil {
				return nil, fmt.Errorf("read diary of %s: %w", f.Name(), err)
			}
			e.alloc = f.Name()
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b entry) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.alloc, b.alloc)) })
	return out, nil
}

func parseEntry(line string) (entry, error) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return entry{}, fmt.Errorf("line %q has no word", line)
	}
	ns, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return entry{}, fmt.Errorf("line %q begins with no time", line)
	}
	e := entry{at: time.Unix(0, ns), word: words[1], values: map[string]string{}}
	for _, w := range words[2:] {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return entry{}, fmt.Errorf("line %q: %q is no detail", line, w)
		}
		e.values[key] = value
	}
	return e, nil
}

// with are the entries with a word.
func (d diary) with(word string) diary {
	return slices.DeleteFunc(slices.Clone(d), func(e entry) bool { return e.word != word })
}

// of are the entries of an allocation.
func (d diary) of(alloc string) diary {
	return slices.DeleteFunc(slices.Clone(d), func(e entry) bool { return e.alloc != alloc })
}

// launch is one time that a gang's members started together.
type launch struct {
	epoch  string
	starts diary
}

// spread is the time from the first start to the last.
func (l launch) spread() time.Duration { return l.starts[len(l.starts)-1].at.Sub(l.starts[0].at) }

// launches groups the starts by their epoch, in the order of time.
func (d diary) launches() []launch {
	var out []launch
	for _, e := range d.with(wordStart) {
		i := slices.IndexFunc(out, func(l launch) bool { return l.epoch == e.values["epoch"] })
		if i < 0 {
			i, out = len(out), append(out, launch{epoch: e.values["epoch"]})
		}
		out[i].starts = append(out[i].starts, e)
	}
	return out
}
