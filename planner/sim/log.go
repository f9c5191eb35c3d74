package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// The kinds of events. With every event a job has exactly the GPUs that the event
// names from then on, and works at its speed, until the job's next one; after
// stop, finish and fail it has none.
const (
	EventSubmit = "submit"
	// EventStart: the whole gang has its GPUs. The speed is 0 while it loads its
	// state; a resize to the same GPUs tells that it works.
	EventStart = "start"
	// EventStop: it has given its GPUs up, its state saved or all lost, or, if it never
	// started, what its first members held. It waits again.
	EventStop = "stop"
	// EventResize: its GPUs, its speed, or both are other ones. Before a start it
	// tells what members hold that wait for the others.
	EventResize = "resize"
	EventFinish = "finish"
	// EventFail: a node under it failed. It waits again.
	EventFail = "fail"
	// EventDown and EventUp are of nodes: no job can be there in between.
	EventDown = "down"
	EventUp   = "up"
	// EventRent: nodes are bought for a job that waits. They boot until Until.
	EventRent = "rent"
	// EventDivide: an idle GPU is being divided into Profiles, and nobody has it until
	// EventDivided; no profile is a whole GPU.
	EventDivide  = "divide"
	EventDivided = "divided"
)

// Event is a line of the log: enough, with the cluster, to compute every metric
// again.
type Event struct {
	// At is the time in seconds from the start.
	At    float64 `json:"t_s"`
	Event string  `json:"event"`
	Job   string  `json:"job"`
	// GPUs are those that the job has from now on, as NODE:INDEX, or one part of one
	// as NODE:INDEX/PART; with stop, finish and fail those that it had.
	GPUs []string `json:"gpus"`
	// Speed is at what part of its best speed the job works from now on.
	Speed float64 `json:"speed"`
	// Lost is the work that a failure lost, or the stop of a job that saves nothing, in
	// seconds at the best speed.
	Lost float64 `json:"lost_s,omitempty"`
	// Asks is what a job is that is submitted.
	Asks *Asks `json:"asks,omitempty"`
	// Until is when nodes that are bought have booted.
	Until float64 `json:"until_s,omitempty"`
	// Node is the one that is down or up again.
	Node string `json:"node,omitempty"`
	// Profiles are the MIG instances that a GPU is divided into.
	Profiles []string `json:"profiles,omitempty"`
}

// Asks is what a submitted job asks for.
type Asks struct {
	GPUs int `json:"gpus"`
	Min  int `json:"min_gpus,omitempty"`
	Max  int `json:"max_gpus,omitempty"`
	// Duration is how long it works on its GPUs at the best speed, Estimate how
	// long it is thought to, 0 if nobody knows; in seconds.
	Duration float64 `json:"duration_s"`
	Estimate float64 `json:"estimate_s,omitempty"`
	Deadline float64 `json:"deadline_s,omitempty"`
	Queue    string  `json:"queue,omitempty"`
	Class    string  `json:"class,omitempty"`
	Model    string  `json:"model,omitempty"`
	// Unsaved: whenever it stops it loses all that it has done.
	Unsaved bool `json:"unsaved,omitempty"`
	// Share is what part of its one GPU it needs, Profile the instance that it asks
	// for.
	Share   float64 `json:"gpu_share,omitempty"`
	Profile string  `json:"mig_profile,omitempty"`
	// Models are the driver's names of those that it may run on, with a | between them;
	// "" is all that the cluster has.
	Models string `json:"gpu_models,omitempty"`
}

// logNode tells of a node that fails or comes back.
func (r *run) logNode(node int, kind string) {
	if r.Log != nil {
		r.Log(Event{At: r.now, Event: kind, GPUs: []string{}, Node: r.Cluster.Nodes[node].ID})
	}
}

// logDivision tells of a GPU that is divided.
func (r *run) logDivision(node int, gpu int8, kind string, profiles []string) {
	if r.Log != nil {
		id := r.Cluster.Nodes[node].ID
		r.Log(Event{At: r.now, Event: kind, GPUs: []string{fmt.Sprintf("%s:%d", id, gpu)}, Node: id, Profiles: profiles})
	}
}

// logSpeed tells at what speed a job works from now on, and when it will work if
// it loads its state first.
func (r *run) logSpeed(i int, kind string) {
	if r.Log == nil {
		return
	}
	j := &r.jobs[i]
	if j.begins <= r.now {
		r.log(i, kind, j.pieces, j.speed)
		return
	}
	r.log(i, kind, j.pieces, 0)
	r.calendar.add(event{at: j.begins, what: loaded, of: i, turn: j.turn})
}

func (r *run) log(i int, kind string, pieces []Piece, speed float64) {
	if r.Log == nil {
		return
	}
	e := Event{At: r.now, Event: kind, Job: r.jobs[i].ID, GPUs: []string{}, Speed: speed, Lost: r.jobs[i].lately}
	if j := &r.jobs[i]; kind == EventSubmit {
		e.Asks = &Asks{j.GPUs, j.Min, j.Max, j.Duration, j.estimate, j.Deadline, j.Queue, j.Class, j.Model, j.unsaved, j.Share, j.Profile, j.GPUModels}
	}
	for _, p := range pieces {
		for _, g := range p.GPUs {
			name := fmt.Sprintf("%s:%d", r.Cluster.Nodes[p.Node].ID, g)
			if p.Part > 0 {
				name = fmt.Sprintf("%s/%d", name, p.Part)
			}
			e.GPUs = append(e.GPUs, name)
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

// Log writes an event; the first error is kept for Err and Close.
func (l *Logger) Log(e Event) {
	if l.err == nil {
		l.err = l.enc.Encode(e)
	}
}

// Err is the first error of Log.
func (l *Logger) Err() error { return l.err }

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
