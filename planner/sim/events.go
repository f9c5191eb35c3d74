package sim

import "container/heap"

// what is the kind of an event.
type what uint8

const (
	submitted what = iota
	// finished: a job's work is done, if it has run on undisturbed since the
	// event was made.
	finished
	// loaded: a job has loaded its state and works; only the log is told of it.
	loaded
	// stopped: what was told to stop has saved its state and left its GPUs.
	stopped
	// decide: it is time to decide again.
	decide
	// failed and repaired are a node's.
	failed
	repaired
	// booted, given and taken are a bought node's: it is ready, it is given back, it
	// is taken away.
	booted
	given
	taken
	// divided: a GPU of a node, by turn, has its new form.
	divided
)

// event is something that happens at a time, in seconds.
type event struct {
	at   float64
	seq  int
	what what
	// of is a job or a node, by number; turn tells whether a job has been
	// disturbed since.
	of, turn int
}

// calendar are the events to come. Those of one time come in the order in which
// they were made, but decisions come last: they are made on all of it.
type calendar struct {
	list []event
	made int
}

func (c *calendar) add(e event) {
	c.made++
	e.seq = c.made
	heap.Push(c, e)
}

func (c *calendar) next() (event, bool) {
	if len(c.list) == 0 {
		return event{}, false
	}
	return heap.Pop(c).(event), true
}

// Len implements heap.Interface.
func (c *calendar) Len() int { return len(c.list) }

// Less implements heap.Interface.
func (c *calendar) Less(i, j int) bool {
	a, b := &c.list[i], &c.list[j]
	switch {
	case a.at != b.at:
		return a.at < b.at
	case (a.what == decide) != (b.what == decide):
		return b.what == decide
	}
	return a.seq < b.seq
}

// Swap implements heap.Interface.
func (c *calendar) Swap(i, j int) { c.list[i], c.list[j] = c.list[j], c.list[i] }

// Push implements heap.Interface.
func (c *calendar) Push(x any) { c.list = append(c.list, x.(event)) }

// Pop implements heap.Interface.
func (c *calendar) Pop() any {
	last := len(c.list) - 1
	e := c.list[last]
	c.list = c.list[:last]
	return e
}
