// Package barrier is the planner's side of a gang's start and life. Members
// wait at the barrier until all have joined, get their ranks, start together,
// and then report and take orders. What was decided is in a Nomad Variable
// before anybody is told, so that a planner that takes over in between tells
// the rest the same.
//
// Gang is pure: a state machine without clock or I/O. Service puts long polls,
// Nomad's Variables and time around it.
package barrier

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// State is what is remembered of a gang.
type State struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	Group     string `json:"group,omitempty"`
	Slot      int    `json:"slot,omitempty"`
	// Epochs counts the common starts.
	Epochs int `json:"epochs"`
	// Running is set from a common start until the gang has to start anew or
	// has failed.
	Running bool `json:"running"`
	// Failed says why the gang has failed for good; "" if it has not.
	Failed string `json:"failed,omitempty"`
	// Suspended says who suspended the gang and why; "" if nobody has.
	Suspended string `json:"suspended,omitempty"`
	// SuspendedAt is since when, while it is suspended.
	SuspendedAt time.Time `json:"suspended_at,omitzero"`
	// Membership is the last one given out; nil before the first start. Runs are
	// its members' runs, in the same order.
	Membership *rendezvous.Membership `json:"membership,omitempty"`
	Runs       []Run                  `json:"runs,omitempty"`
	// StartAt is when all start, by the planner's clock.
	StartAt time.Time `json:"start_at,omitzero"`
	// Sequence is the last order's. End is the order that ended the last epoch,
	// Pause the last to suspend or to resume.
	Sequence int64          `json:"sequence"`
	End      *gangapi.Order `json:"end,omitempty"`
	Pause    *gangapi.Order `json:"pause,omitempty"`
	// EndedBy is the allocation whose end was the reason of End; "" if it was
	// none's.
	EndedBy string `json:"ended_by,omitempty"`
	// cause is the kind of failure that this state follows from; "" if none.
	cause string
	// Past are earlier epochs, newest first, at most maxPast: who is still in
	// one of them must leave it.
	Past []string `json:"past,omitempty"`
	// Events are the latest, newest first, at most maxEvents.
	Events []Event `json:"events,omitempty"`
}

// Run is a member's part in an epoch.
type Run struct {
	Task    string `json:"task"`
	Run     string `json:"run"`
	Attempt int    `json:"attempt"`
	Port    int    `json:"port"`
}

// Event is something that happened to a gang.
type Event struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

const (
	maxPast   = 16
	maxEvents = 12
)

// Key names the state's gang.
func (s *State) Key() Key { return Key{s.Namespace, s.Job, s.Group, s.Slot} }

// clone is a copy that may be changed; what Membership and the orders point to
// is never changed.
func (s *State) clone() *State {
	out := *s
	out.cause = ""
	out.Past, out.Events, out.Runs = slices.Clone(s.Past), slices.Clone(s.Events), slices.Clone(s.Runs)
	return &out
}

func (s *State) note(now time.Time, text string) {
	s.Events = slices.Insert(s.Events, 0, Event{At: now, Text: text})
	s.Events = s.Events[:min(len(s.Events), maxEvents)]
}

// order gives the next order a number.
func (s *State) order(kind gangapi.OrderKind, reason string) *gangapi.Order {
	s.Sequence++
	return &gangapi.Order{Sequence: s.Sequence, Kind: kind, Reason: reason}
}

// epoch is the name of the epoch in force or last in force; "" before the first.
func (s *State) epoch() string {
	if s.Membership == nil {
		return ""
	}
	return s.Membership.Epoch
}

// leave ends the epoch in force.
func (s *State) leave() {
	s.Running = false
	if e := s.epoch(); e != "" && !slices.Contains(s.Past, e) {
		s.Past = slices.Insert(s.Past, 0, e)
		s.Past = s.Past[:min(len(s.Past), maxPast)]
	}
}

// epochName names an epoch. Two epochs of a job never share a name, even if what
// was remembered of the job is lost in between.
func epochName(n int, key Key, members []rendezvous.Member, runs []Run) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %d\n", key.Namespace, key.Job, key.Group, n)
	for i, m := range members {
		fmt.Fprintf(h, "%q %q %d\n", m.Alloc, runs[i].Run, runs[i].Attempt)
	}
	return fmt.Sprintf("%d-%s", n, hex.EncodeToString(h.Sum(nil)[:4]))
}
