package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/caravan-sched/caravan/planner/sim"
)

// spareHeap is by how much a simulation lets its memory grow before it is collected,
// in percent of what is in use: that is little, and all else is garbage of decisions.
// Where it is much, with very many jobs, that is no more than spareBytes, but leastSpare
// percent at least.
const (
	spareHeap  = 300
	leastSpare = 30
	spareBytes = 1 << 30
)

// The bytes that a job of the trace needs, and one of each run that is under way:
// measured with a million of them.
const (
	traceBytes = 300
	runBytes   = 550
)

// sizeOf is what the jobs of a comparison need while so many runs are under way.
func sizeOf(c *sim.Comparison) (bytes int64, runs int) {
	if runs = c.Workers; runs <= 0 {
		runs = runtime.GOMAXPROCS(0)
	}
	runs = min(runs, c.Seeds*len(c.Policies))
	return int64(len(c.Jobs)) * int64(traceBytes+runs*runBytes), runs
}

// collectSeldom sets how much is spared, unless GOGC says it, and returns how to undo it.
func (a *app) collectSeldom(c *sim.Comparison) (undo func()) {
	if _, set := a.env.LookupEnv("GOGC"); set {
		return func() {}
	}
	bytes, _ := sizeOf(c)
	before := debug.SetGCPercent(int(max(leastSpare, min(spareHeap, 100*spareBytes/max(1, bytes)))))
	return func() { debug.SetGCPercent(before) }
}

// large says what memory a very long trace takes, and what helps.
func (a *app) large(c *sim.Comparison) error {
	bytes, runs := sizeOf(c)
	if bytes < spareBytes/2 {
		return nil
	}
	_, err := fmt.Fprintf(a.env.Stderr, "%d jobs in %d runs at once take about %.1f GB of memory: --max-jobs and --workers make it less, and `caravan trace sample` a shorter trace\n", len(c.Jobs), runs, float64(bytes+max(spareBytes, bytes*leastSpare/100))/1e9)
	return err
}
