// Package audit checks a log of events against what no cluster can do, and
// computes every metric again from it. It shares no code with the simulator, and
// reads nothing but the log, the cluster and, if there is one, the trace: whoever
// doubts a result can doubt this instead, or write another.
package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// ErrEvents is the error for a log that cannot be read as one.
var ErrEvents = errors.New("invalid events")

// Node is one node of the cluster.
type Node struct {
	Name string
	GPUs int
	// Bought: it is one that can be bought, and is down until it is.
	Bought bool
	// Slices are by how many tasks each GPU is shared, 0 by none, and Profiles the MIG
	// instances that each is divided into at the start; nil is a node whose GPUs are
	// whole. Divides: they may be divided otherwise while nobody uses them.
	Slices   []int
	Profiles [][]string
	Divides  bool
	// Models are the names that the model of its GPUs goes by, the driver's first; nil: it
	// is not known, and does not count.
	Models []string
}

// Job is one job of the trace.
type Job struct {
	ID       string
	GPUs     int
	Duration float64
	// Share is what part of its GPU it needs, 0 all of it, and Profile the MIG
	// instance that it asks for.
	Share   float64
	Profile string
	// GPUModels are the models that it may run on, with a | between them; "" is any.
	GPUModels string
	// Queue, Class and Model are whose it is and what; Timed: it has a deadline.
	Queue, Class, Model string
	Timed               bool
}

// line is one event, as it is written.
type line struct {
	Time  float64  `json:"t_s"`
	Event string   `json:"event"`
	Job   string   `json:"job"`
	GPUs  []string `json:"gpus"`
	Speed float64  `json:"speed"`
	Lost  float64  `json:"lost_s"`
	Until float64  `json:"until_s"`
	Node  string   `json:"node"`
	Asks  *asks    `json:"asks"`
	// Profiles are those of a GPU that is divided.
	Profiles []string `json:"profiles"`
}

type asks struct {
	GPUs     int     `json:"gpus"`
	Min      int     `json:"min_gpus"`
	Max      int     `json:"max_gpus"`
	Duration float64 `json:"duration_s"`
	Estimate float64 `json:"estimate_s"`
	Deadline float64 `json:"deadline_s"`
	Queue    string  `json:"queue"`
	Class    string  `json:"class"`
	Model    string  `json:"model"`
	Share    float64 `json:"gpu_share"`
	Profile  string  `json:"mig_profile"`
	Models   string  `json:"gpu_models"`
	Unsaved  bool    `json:"unsaved"`
}

// width is how many GPUs a job needs, which may be a part of one.
func (a *asks) width() float64 {
	if a.Share > 0 {
		return a.Share
	}
	return float64(a.GPUs)
}

// maxLine is the longest line that is read: a gang of a million GPUs by name.
const maxLine = 64 << 20

// read hands out the lines of a log with their numbers.
func read(in io.Reader, each func(number int, l *line) error) error {
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 1<<16), maxLine)
	number := 0
	for s.Scan() {
		number++
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		var l line
		d := json.NewDecoder(bytes.NewReader(s.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil {
			return fmt.Errorf("%w: line %d: %w", ErrEvents, number, err)
		}
		for name, x := range map[string]float64{"t_s": l.Time, "speed": l.Speed, "lost_s": l.Lost, "until_s": l.Until} {
			if math.Abs(x) > 1e12 {
				return fmt.Errorf("%w: line %d: %s is %g: want a number that can be", ErrEvents, number, name, x)
			}
		}
		if err := each(number, &l); err != nil {
			return err
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%w: after line %d: %w", ErrEvents, number, err)
	}
	return nil
}
