package model

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Reservation sets nodes, or a start, apart by an operator's word.
type Reservation struct {
	Name string `json:"name"`
	// Kind is ReserveMaintenance, ReserveCapacity or ReserveStart.
	Kind string `json:"kind"`
	// Nodes are names or IDs of nodes, with * for any text. Domain is the path or
	// name of a domain of Level, all nodes of which are meant. With neither, all
	// nodes of the cluster are; capacity with a Level and no Domain is kept in one
	// domain of that level.
	Nodes  []string `json:"nodes,omitempty"`
	Level  string   `json:"level,omitempty"`
	Domain string   `json:"domain,omitempty"`
	// From and Until are when it counts; left out, it always has, or always will.
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Lead is from how long before a maintenance begins jobs are kept off of which
	// nobody knows how long they run, in nanoseconds.
	Lead time.Duration `json:"lead_ns,omitempty"`
	// Evict: what runs when a maintenance begins is stopped, with a checkpoint, and
	// queued again. Without it, it is only told of.
	Evict bool `json:"evict,omitempty"`
	// Queue is whom capacity is for, with the queues below it, and GPUs how many
	// are kept for it, those that it uses included.
	Queue string `json:"queue,omitempty"`
	GPUs  int    `json:"gpus,omitempty"`
	// For is the job that a start is for: it goes before all others, and nobody
	// delays it.
	For JobName `json:"for,omitzero"`
}

// The kinds of reservations.
const (
	// ReserveMaintenance: nothing is placed that would still run when it begins.
	ReserveMaintenance = "maintenance"
	// ReserveCapacity: GPUs are kept for a queue.
	ReserveCapacity = "capacity"
	// ReserveStart: a gang starts as soon as the room that it needs can be had.
	ReserveStart = "start"
)

// ReservationUse is how a reservation stands once a plan is carried out.
type ReservationUse struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// State is "planned", "draining" (jobs are kept off already, or a gang waits),
	// "active", or "over".
	State string    `json:"state"`
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Nodes counts the nodes that it is about, GPUs the GPUs that are kept, and
	// Used those of them that the queue uses.
	Nodes int `json:"nodes"`
	GPUs  int `json:"gpus,omitempty"`
	Used  int `json:"used,omitempty"`
	// Jobs are those that are there, or are expected to be, when a maintenance
	// begins.
	Jobs []JobName `json:"jobs,omitempty"`
	// Start is when the gang is expected to start.
	Start time.Time `json:"start,omitzero"`
	// Reason is a sentence for people, with what to do where something is wrong.
	Reason string `json:"reason"`
}

// ReservationFault is something wrong with a list of reservations.
type ReservationFault struct {
	// Reservation is its index in the list, Field the property in JSON.
	Reservation int
	Field       string
	// Text is the value and what is allowed.
	Text string
}

// MaxLead bounds Reservation.Lead.
const MaxLead = 366 * 24 * time.Hour

// CheckReservations reports everything that is wrong with reservations, in their
// order. levels are those of the cluster.
func CheckReservations(list []Reservation, levels []string) []ReservationFault {
	if len(list) == 0 {
		return nil
	}
	c := reservationChecker{levels: map[string]bool{}, names: map[string]bool{}}
	if len(levels) == 0 {
		levels = DefaultLevels
	}
	for _, level := range levels {
		c.levels[level] = true
	}
	for i := range list {
		c.at = i
		c.one(&list[i])
	}
	return c.faults
}

type reservationChecker struct {
	at     int
	levels map[string]bool
	names  map[string]bool
	faults []ReservationFault
}

func (c *reservationChecker) fault(field, format string, args ...any) {
	c.faults = append(c.faults, ReservationFault{c.at, field, fmt.Sprintf(format, args...)})
}

func (c *reservationChecker) one(r *Reservation) {
	switch {
	case !ValidQueuePath(r.Name):
		c.fault("name", `%q: want a name of letters, digits, ".", "_" and "-"`, r.Name)
	case c.names[r.Name]:
		c.fault("name", "%q: another reservation before it has this name; want each name once", r.Name)
	default:
		c.names[r.Name] = true
	}
	for i, pattern := range r.Nodes {
		if pattern == "" {
			c.fault(fmt.Sprintf("nodes[%d]", i), `"": want a node's name or ID, or a pattern such as "gpu-*"`)
		}
	}
	switch {
	case r.Level != "" && !c.levels[r.Level]:
		c.fault("level", "%q: is no level of this cluster", r.Level)
	case r.Domain != "" && r.Level == "":
		c.fault("domain", "%q: want its level too", r.Domain)
	case r.Level != "" && len(r.Nodes) > 0:
		c.fault("level", "%q: want nodes or a level, not both", r.Level)
	}
	if !r.From.IsZero() && !r.Until.IsZero() && !r.Until.After(r.From) {
		c.fault("until", "%s: want a time after from, %s", r.Until.Format(time.RFC3339), r.From.Format(time.RFC3339))
	}
	c.kind(r)
}

// kind checks what a kind of reservation needs, and what it has no use for.
func (c *reservationChecker) kind(r *Reservation) {
	unused := func(field string, set bool) {
		if set {
			c.fault(field, "is of no use to a reservation of kind %s: leave it out", r.Kind)
		}
	}
	switch r.Kind {
	case ReserveMaintenance:
		if r.From.IsZero() {
			c.fault("from", "want from and until: when the maintenance begins and ends")
		}
		if r.Until.IsZero() {
			c.fault("until", "want from and until: when the maintenance begins and ends")
		}
		if len(r.Nodes) == 0 && r.Domain == "" {
			c.fault("nodes", "want nodes, or a level and a domain; for all of the cluster, \"*\"")
		}
		if r.Lead < 0 || r.Lead > MaxLead {
			c.fault("lead_ns", "%s: want 0s to %s", r.Lead, time.Duration(MaxLead))
		}
	case ReserveCapacity:
		if !ValidQueuePath(r.Queue) {
			c.fault("queue", `%q: want the path of a queue, such as "org/team"`, r.Queue)
		}
		if r.GPUs < 1 || r.GPUs > MaxCount {
			c.fault("gpus", "%d: want 1 to %d", r.GPUs, MaxCount)
		}
	case ReserveStart:
		if r.For.ID == "" {
			c.fault("for", `"": want the job whose start is meant`)
		}
		unused("nodes", len(r.Nodes) > 0)
		unused("level", r.Level != "")
	default:
		c.fault("kind", "%q: want %q, %q or %q", r.Kind, ReserveMaintenance, ReserveCapacity, ReserveStart)
		return
	}
	unused("lead_ns", r.Kind != ReserveMaintenance && r.Lead != 0)
	unused("evict", r.Kind != ReserveMaintenance && r.Evict)
	unused("queue", r.Kind != ReserveCapacity && r.Queue != "")
	unused("gpus", r.Kind != ReserveCapacity && r.GPUs != 0)
	unused("for", r.Kind != ReserveStart && r.For != JobName{})
}

func (s *Snapshot) validateReservations(f *faults) {
	for _, fault := range CheckReservations(s.Reservations, s.Levels) {
		f.add("reservations[%d] (%s).%s: %s", fault.Reservation, s.Reservations[fault.Reservation].Name, fault.Field, fault.Text)
	}
}

// Covers reports whether a reservation is about a node; levels are the cluster's,
// outermost first. Of capacity in one domain of a level it says where that may be.
func (r *Reservation) Covers(n *Node, levels []string) bool {
	named := func(pattern string) bool { return matches(pattern, n.Name) || matches(pattern, n.ID) }
	if len(r.Nodes) > 0 && !slices.ContainsFunc(r.Nodes, named) {
		return false
	}
	if r.Domain == "" {
		return true
	}
	var path []string
	for _, level := range levels {
		if v := n.Levels[level]; v != "" {
			path = append(path, v)
		}
		if level == r.Level {
			break
		}
	}
	whole := strings.Join(path, "/")
	return n.Levels[r.Level] != "" && (whole == r.Domain || strings.HasSuffix(whole, "/"+r.Domain))
}

// matches reports whether a text fits a pattern in which * is any text.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}
