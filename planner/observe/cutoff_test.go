package observe

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

func TestNodeWatch(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	tests := map[string]struct {
		steps func(w *nodeWatch)
		want  bool
	}{
		"nobody watches":               {func(w *nodeWatch) {}, false},
		"the first look":               {func(w *nodeWatch) { w.answered(true, at(0)) }, false},
		"nothing has changed":          {func(w *nodeWatch) { w.answered(true, at(0)); w.look(at(1)) }, true},
		"nothing has changed for long": {func(w *nodeWatch) { w.answered(true, at(0)); w.look(at(1)); w.answered(false, at(60)) }, true},
		"looked at once":               {func(w *nodeWatch) { w.answered(true, at(0)); w.look(at(1)); w.answered(true, at(98)) }, true},
		"looked late": {func(w *nodeWatch) {
			w.answered(true, at(0))
			w.look(at(1))
			w.answered(true, at(80))
			w.answered(true, at(99))
		}, false},
		"broken in between":        {func(w *nodeWatch) { w.answered(true, at(0)); w.look(at(1)); w.broke(); w.answered(true, at(99)) }, false},
		"broken still":             {func(w *nodeWatch) { w.answered(true, at(0)); w.look(at(1)); w.broke(); w.look(at(2)) }, false},
		"mended, and looked since": {func(w *nodeWatch) { w.broke(); w.answered(true, at(50)); w.look(at(51)); w.answered(true, at(99)) }, true},
		"the last look failed":     {func(w *nodeWatch) { w.answered(true, at(0)); w.look(at(1)); w.look(at(2)); w.failed() }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var w nodeWatch
			test.steps(&w)
			if got := w.look(at(100)); got != test.want {
				t.Errorf("unbroken = %v, want %v", got, test.want)
			}
		})
	}
}

// TestFenceOfDisconnectedNodes: Nomad sets the time of the status of a node that
// is disconnected again and again; who waits for its fence does not wait anew
// each time, unless the node may have been back.
func TestFenceOfDisconnectedNodes(t *testing.T) {
	const ready, disconnected, down = api.NodeStatusReady, api.NodeStatusDisconnected, api.NodeStatusDown
	tests := map[string]struct {
		before, now string
		unbroken    bool
		want        int64
	}{
		"disconnected still":    {disconnected, disconnected, true, 980},
		"and then down":         {disconnected, down, true, 980},
		"it may have been back": {disconnected, disconnected, false, 993},
		"it was back":           {ready, disconnected, true, 993},
		"it is back":            {disconnected, ready, true, 993},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			entry := func(status string, at int64) *nodeEntry {
				n := node("a", 1)
				n.Status, n.StatusUpdatedAt = status, at
				return (&nodeReader{words: map[string]string{}}).read(n)
			}
			e := entry(test.now, 993)
			e.follow(entry(test.before, 980), test.unbroken)
			if e.cutOffAt.Unix() != test.want {
				t.Errorf("cut off at %d, want %d", e.cutOffAt.Unix(), test.want)
			}
		})
	}
}
