package gateway

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

// nomadsWarnings are Nomad's warnings without the one about a workload identity
// that does not expire, where that is Caravan's: members that were placed when
// it had no lifetime keep it as it is, and their user has not written it.
func (s *submission) nomadsWarnings(text string) string {
	for _, g := range s.original.TaskGroups {
		for _, t := range g.Tasks {
			if slices.ContainsFunc(t.Identities, func(id *api.WorkloadIdentity) bool { return id != nil && id.Name == gangspec.IdentityName }) {
				return text
			}
		}
	}
	return withoutWarning(text, "Identity["+gangspec.IdentityName+"] identities without an expiration are insecure")
}

// withoutWarning takes a sentence out of Nomad's warnings, and what leads to
// nothing else. A text that is not of Nomad's form stays as it is.
func withoutWarning(text, sentence string) string {
	if !strings.Contains(text, sentence) {
		return text
	}
	w := warningText{lines: strings.Split(text, "\n"), drop: map[int]bool{}, sentence: sentence}
	head := warningHead.FindStringSubmatch(w.lines[0])
	if head == nil {
		return text
	}
	w.next = 1
	kept, ok := w.items(head[1])
	if !ok || strings.TrimSpace(strings.Join(w.lines[w.next:], "")) != "" {
		return text
	}
	if kept == 0 {
		return ""
	}
	w.lines[0] = counted(kept, "warning") + ":"
	var out []string
	for i, line := range w.lines {
		if !w.drop[i] {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// Nomad's warnings are a list with its length before it. What an item says may
// be such a list itself, which is not indented to its depth: only the lengths
// tell what belongs to what.
var (
	warningHead = regexp.MustCompile(`^(\d+) warnings?:$`)
	warningItem = regexp.MustCompile(`^\t*\* `)
	warningList = regexp.MustCompile(`(\d+) errors? occurred:$`)
)

type warningText struct {
	lines    []string
	next     int
	drop     map[int]bool
	sentence string
}

// items reads as many items as count says and returns how many of them stay.
func (w *warningText) items(count string) (kept int, ok bool) {
	n, err := strconv.Atoi(count)
	if err != nil || n > len(w.lines) {
		return 0, false
	}
	for range n {
		for w.next < len(w.lines) && strings.TrimSpace(w.lines[w.next]) == "" {
			w.next++
		}
		stays, ok := w.item()
		if !ok {
			return 0, false
		}
		if stays {
			kept++
		}
	}
	return kept, true
}

// item reads one item.
func (w *warningText) item() (stays, ok bool) {
	at := w.next
	if at >= len(w.lines) || !warningItem.MatchString(w.lines[at]) {
		return false, false
	}
	w.next++
	if list := warningList.FindStringSubmatchIndex(w.lines[at]); list != nil {
		kept, ok := w.items(w.lines[at][list[2]:list[3]])
		if kept == 0 {
			w.drop[at] = true
		}
		w.lines[at] = w.lines[at][:list[0]] + counted(kept, "error") + " occurred:"
		return kept > 0, ok
	}
	// The rest of a text of several lines.
	for w.next < len(w.lines) && strings.TrimSpace(w.lines[w.next]) != "" && !warningItem.MatchString(w.lines[w.next]) {
		w.next++
	}
	if stays := warningItem.ReplaceAllString(w.lines[at], "") != w.sentence; stays {
		return true, true
	}
	w.drop[at] = true
	return false, true
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
