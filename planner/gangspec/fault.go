package gangspec

import (
	"fmt"
	"strings"

	"github.com/agext/levenshtein"
)

// Fault is one value of the contract that cannot be used.
type Fault struct {
	// Where is "job", `group "NAME"` or `task "NAME" of group "NAME"`.
	Where string
	// Key is the meta key, or "count" for the group's own count.
	Key   string
	Value string
	// Allowed says what could stand there instead.
	Allowed string
}

// String is one sentence for people.
func (f Fault) String() string {
	if f.Value == "" {
		return fmt.Sprintf("%s: %s: %s", f.Where, f.Key, f.Allowed)
	}
	return fmt.Sprintf("%s: %s = %q: %s", f.Where, f.Key, f.Value, f.Allowed)
}

// Error holds every fault of a job's contract. It is what Parse returns.
type Error struct {
	Faults []Fault
}

// Error lists all faults.
func (e *Error) Error() string {
	return "read the job's caravan settings: " + strings.Join(e.Sentences(), "; ")
}

// Sentences returns one sentence per fault.
func (e *Error) Sentences() []string {
	out := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		out[i] = f.String()
	}
	return out
}

// Sentences takes an error apart: one sentence per fault of each Error in it,
// and one for each other error that was joined. It is empty for nil.
func Sentences(err error) []string {
	switch e := err.(type) {
	case nil:
		return nil
	case *Error:
		return e.Sentences()
	case interface{ Unwrap() []error }:
		var out []string
		for _, part := range e.Unwrap() {
			out = append(out, Sentences(part)...)
		}
		return out
	}
	return strings.Split(err.Error(), "\n")
}

// nearest returns the candidate that the word was most likely meant to be, ""
// if none is near.
func nearest(word string, candidates []string) string {
	best, bestDistance := "", 4
	for _, c := range candidates {
		if d := levenshtein.Distance(word, c, nil); d < bestDistance && d <= len(c)/2 {
			best, bestDistance = c, d
		}
	}
	return best
}

// nearestKey is the key that was most likely meant. What all keys have in
// common does not make two of them alike.
func nearestKey(key string) string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = strings.TrimPrefix(k, Prefix)
	}
	if guess := nearest(strings.TrimPrefix(key, Prefix), names); guess != "" {
		return Prefix + guess
	}
	return ""
}

// oneOf says what is allowed, with a guess at what was meant.
func oneOf(word string, allowed []string) string {
	text := "allowed is " + orList(allowed)
	if guess := nearest(word, allowed); guess != "" {
		text += fmt.Sprintf(" (did you mean %q?)", guess)
	}
	return text
}

func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
