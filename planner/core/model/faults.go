package model

import (
	"errors"
	"fmt"
	"strings"
)

// ErrSnapshot is the error for a snapshot, or part of one, that cannot be.
var ErrSnapshot = errors.New("invalid snapshot")

// maxFaults bounds how many faults are told.
const maxFaults = 100

// faults collects what is wrong, each with where it is and what is allowed.
type faults struct {
	told []error
	more int
	// silent are places, "nodes[3].id", of which nothing more is said: they
	// were not read, so what stands there is not what the snapshot says.
	silent map[string]bool
}

func (f *faults) add(format string, args ...any) {
	if len(f.told) >= maxFaults && len(f.silent) == 0 {
		f.more++
		return
	}
	text := fmt.Sprintf(format, args...)
	if len(f.silent) > 0 && f.isSilent(placeOf(text)) {
		return
	}
	if len(f.told) >= maxFaults {
		f.more++
		return
	}
	f.told = append(f.told, fmt.Errorf("%w: %s", ErrSnapshot, text))
}

// take adds what another one has collected.
func (f *faults) take(o *faults) {
	n := min(len(o.told), max(0, maxFaults-len(f.told)))
	f.told = append(f.told, o.told[:n]...)
	f.more += len(o.told) - n + o.more
}

// isSilent reports whether a place, or what it is part of, is silent.
func (f *faults) isSilent(place string) bool {
	for place != "" {
		if f.silent[place] {
			return true
		}
		place = place[:max(0, strings.LastIndexAny(place, ".["))]
	}
	return false
}

// placeOf is where a fault is, without the names in parentheses.
func placeOf(text string) string {
	var b strings.Builder
	for rest := text; ; {
		open, end := strings.Index(rest, " ("), strings.Index(rest, ": ")
		if end < 0 {
			return text
		}
		if open < 0 || open > end {
			b.WriteString(rest[:end])
			return b.String()
		}
		b.WriteString(rest[:open])
		_, after, found := strings.Cut(rest[open:], ")")
		if !found {
			return text
		}
		rest = after
	}
}

func (f *faults) join() error {
	if f.more > 0 {
		return errors.Join(append(f.told[:len(f.told):len(f.told)], fmt.Errorf("%w: and %d more faults", ErrSnapshot, f.more))...)
	}
	return errors.Join(f.told...)
}
