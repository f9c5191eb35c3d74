package sim

import (
	"bytes"
	"encoding/json"
	"runtime"
	"sync"
	"testing"

	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// The same seeds give the same bytes, however many processors there are and
// however many runs are played at once.
func TestSameBytes(t *testing.T) {
	jobs, err := trace.Synthetic{Jobs: 50, Days: 1, GPUsPerNode: 8, MaxNodes: 4, Small: 0.5, Seed: 3}.Make()
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := Regular(64, 8)
	if err != nil {
		t.Fatal(err)
	}
	play := func(processors, workers int) []byte {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
		var mu sync.Mutex
		logs := map[string]*bytes.Buffer{}
		var loggers []*Logger
		c := Comparison{
			Cluster: cluster, Jobs: jobs, Policies: []string{PolicyKube, "las", "caravan@elastic30"}, Load: 1, Seeds: 2, Sigma: 1, Interval: 60,
			Restart: DefaultRestart, Failures: Failures{PerNodeDay: 0.2, Repair: 3600}, Workers: workers,
			Log: func(policy string, seed int) func(Event) {
				mu.Lock()
				defer mu.Unlock()
				b := new(bytes.Buffer)
				logs[policy+string(rune('0'+seed))] = b
				l := NewLogger(b)
				loggers = append(loggers, l)
				return l.Log
			},
		}
		results, err := c.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range loggers {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		texts := map[string]string{}
		for name, b := range logs {
			texts[name] = b.String()
		}
		for i := range results {
			results[i].Metrics.DecideMean, results[i].Metrics.DecideEvent = 0, 0 // by the real clock
		}
		out, err := json.Marshal(map[string]any{"results": results, "events": texts})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	one := play(1, 1)
	if len(one) < 10000 {
		t.Fatalf("only %d bytes", len(one))
	}
	for _, more := range [][2]int{{1, 1}, {4, 6}} {
		if !bytes.Equal(one, play(more[0], more[1])) {
			t.Errorf("%d processors and %d runs at once give other bytes", more[0], more[1])
		}
	}
}
