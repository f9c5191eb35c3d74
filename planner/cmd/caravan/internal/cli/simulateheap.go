package cli

import "runtime/debug"

// spareHeap is by how much a simulation lets its memory grow before it is collected,
// in percent of what is in use: that is little, and all else is garbage of decisions.
const spareHeap = 300

// collectSeldom sets that, unless GOGC says otherwise, and returns how to undo it.
func (a *app) collectSeldom() (undo func()) {
	if _, set := a.env.LookupEnv("GOGC"); set {
		return func() {}
	}
	before := debug.SetGCPercent(spareHeap)
	return func() { debug.SetGCPercent(before) }
}
