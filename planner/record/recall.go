package record

import (
	"slices"
	"time"
)

// Recall says that a user told a member of a gang to stop. None of a gang goes
// on without the others, so the planner stops all of it and places it anew as a
// whole.
type Recall struct {
	// Group is the gang where groups are gangs of their own, and "" where the
	// gang is the whole job.
	Group string `json:"group,omitempty"`
	// Alloc is the allocation that the user named, and By who it was, as far as
	// that is known.
	Alloc string    `json:"alloc"`
	By    string    `json:"by,omitempty"`
	At    time.Time `json:"at"`
	// Taken: the planner has taken the gang off; it is forgotten when the gang
	// runs again.
	Taken bool `json:"taken,omitempty"`
}

// Recalled returns the recall of a group's gang, nil if there is none.
func (r *Record) Recalled(group string) *Recall {
	for i := range r.Recalls {
		if of := r.Recalls[i].Group; of == "" || of == group {
			return &r.Recalls[i]
		}
	}
	return nil
}

// Recall notes that a gang is to be stopped as a whole; the one before of the
// same gang is forgotten. The list is copied.
func (r *Record) Recall(recall Recall) {
	r.Recalls = append(r.without(func(old Recall) bool { return old.Group == recall.Group }), recall)
}

// TakeRecalls notes that the gangs of these groups were taken off. The list is
// copied.
func (r *Record) TakeRecalls(of func(group string) bool) {
	r.Recalls = slices.Clone(r.Recalls)
	for i := range r.Recalls {
		if group := r.Recalls[i].Group; group == "" || of(group) {
			r.Recalls[i].Taken = true
		}
	}
}

// EndRecalls forgets those whose gangs run again. The list is copied.
func (r *Record) EndRecalls() { r.Recalls = r.without(func(old Recall) bool { return old.Taken }) }

func (r *Record) without(gone func(Recall) bool) []Recall {
	var out []Recall
	for _, old := range r.Recalls {
		if !gone(old) {
			out = append(out, old)
		}
	}
	return out
}
