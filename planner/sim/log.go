package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// The kinds of events.
const (
	EventSubmit = "submit"
	EventStart  = "start"
	EventStop   = "stop"
	EventResize = "resize"
	EventFinish = "finish"
	EventFail   = "fail"
)

// Event is a line of the log: enough, with the trace, to compute every metric
// again.
type Event struct {
	// At is the time in seconds from the start.
	At    float64 `json:"t_s"`
	Event string  `json:"event"`
	Job   string  `json:"job"`
	// GPUs are those that the job has from now on, as NODE:INDEX; with stop,
	// finish and fail those that it had.
	GPUs []string `json:"gpus"`
	// Speed is the part of its best speed at which the job works there.
	Speed float64 `json:"speed"`
}

func (r *run) log(i int, kind string, pieces []Piece, speed float64) {
	if r.Log == nil {
		return
	}
	e := Event{At: r.now, Event: kind, Job: r.jobs[i].ID, GPUs: []string{}, Speed: speed}
	for _, p := range pieces {
		for _, g := range p.GPUs {
			e.GPUs = append(e.GPUs, fmt.Sprintf("%s:%d", r.Cluster.Nodes[p.Node].ID, g))
		}
	}
	r.Log(e)
}

// Logger writes events as JSON lines.
type Logger struct {
	w   *bufio.Writer
	enc *json.Encoder
	err error
}

// NewLogger returns a Logger that writes to w.
func NewLogger(w io.Writer) *Logger {
	b := bufio.NewWriterSize(w, 1<<16)
	return &Logger{w: b, enc: json.NewEncoder(b)}
}

// Log writes an event; the first error is kept for Close.
func (l *Logger) Log(e Event) {
	if l.err == nil {
		l.err = l.enc.Encode(e)
	}
}

// Close writes what is left.
func (l *Logger) Close() error {
	if l.err == nil {
		l.err = l.w.Flush()
	}
	if l.err != nil {
		return fmt.Errorf("write events: %w", l.err)
	}
	return nil
}
