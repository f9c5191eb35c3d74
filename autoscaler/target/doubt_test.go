package target

import (
	"testing"
	"time"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
)

// When nodes in doubt are looked for, and when they are in doubt no more: those that
// were made would have joined within ten minutes.
func TestWhenDoubtsAreSettled(t *testing.T) {
	const timeout = 10 * time.Minute
	stray, other := machine{ID: "m", Lives: true, Purchase: "p"}, machine{ID: "m", Lives: true, Purchase: "q"}
	tests := map[string]struct {
		since, looked time.Duration // ago; 0 is never
		looks         int
		node          machine
		known         bool
		due           bool
		resolved      string // "found" or "never"
	}{
		"at once":                          {since: time.Second, due: true},
		"not twice":                        {since: 2 * time.Minute, looked: time.Minute, looks: 1},
		"again when it has joined":         {since: 9 * time.Minute, looked: 6 * time.Minute, looks: 1, node: stray, due: true},
		"not at each pass":                 {since: 9 * time.Minute, looked: time.Minute, looks: 1, node: stray},
		"another of its name tells naught": {since: 9 * time.Minute, looked: 6 * time.Minute, looks: 1, node: other},
		"again after a look that failed":   {since: 9 * time.Minute, looked: 6 * time.Minute, due: true},
		"last when it would have joined":   {since: 11 * time.Minute, looked: 6 * time.Minute, looks: 1, due: true},
		"and then it was never made":       {since: 11 * time.Minute, looked: 30 * time.Second, looks: 2, resolved: "never"},
		"unless it lives":                  {since: 11 * time.Minute, looked: 30 * time.Second, looks: 2, node: stray},
		"or nobody could look":             {since: time.Hour, looked: 30 * time.Second},
		"for a day":                        {since: 25 * time.Hour, looked: 30 * time.Second, resolved: "never"},
		"found":                            {since: time.Minute, looked: time.Second, known: true, resolved: "found"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := terraform.Doubt{Value: terraform.Value{Purchase: "p"}, Since: noon.Add(-test.since), Looks: test.looks}
			if test.looked > 0 {
				d.Looked = noon.Add(-test.looked)
			}
			s := sight{state: terraform.State{}, nodes: map[string]machine{"a": test.node}, doubts: map[string]terraform.Doubt{"a": d}}
			if test.known {
				s.state = stateOf("a=p")
			}
			if due := s.due(noon, timeout); (len(due) == 1) != test.due {
				t.Errorf("due are %v, want %v", due, test.due)
			}
			found, never := s.resolved(noon, timeout)
			got := ""
			switch {
			case len(found) > 0:
				got = "found"
			case len(never) > 0:
				got = "never"
			}
			if got != test.resolved {
				t.Errorf("resolved is %q, want %q", got, test.resolved)
			}
			if s.doubtful(noon, timeout) != (test.due || test.resolved != "") {
				t.Error("a pass has something to do, and is not begun, or the other way round")
			}
		})
	}
}
