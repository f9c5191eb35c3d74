package topo

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Row is what is free on one node. Resources may be negative: more is held
// than the node says it has.
type Row struct {
	// GPUs are the free and healthy ones.
	GPUs uint64
	Free model.Resources
	// Ports are the host ports taken, in order. The slice is never written to.
	Ports []uint16
	// Users say, by GPU, what is known of how much those use who hold a time slice;
	// nil is nothing of anybody. The slice is never written to.
	Users []*model.Usage
	// Owner is who keeps the node from everyone else, 0 for nobody.
	Owner int32
	// Closed: nothing new may be placed here.
	Closed bool
}

// Claim is what one member takes of a node.
type Claim struct {
	GPUs      uint64
	Resources model.Resources
	Ports     []uint16
	// Usage is what is known of how much a member uses of the GPUs that it shares.
	Usage *model.Usage
}

// State is what is free. Trial changes return an undo; Set does not, and must
// not be called between a trial change and its undo.
type State struct {
	rows []Row
	// changes lists the nodes changed, oldest first, for those who keep
	// summaries; the first dropped of them are gone.
	changes []int32
	dropped int
	// last is, by node, the version that its last change made.
	last    []int
	journal []journalEntry
}

type journalEntry struct {
	node int32
	row  Row
}

// Undo takes back a trial change and every later one.
type Undo int

// NewState makes a state of n nodes with nothing free.
func NewState(n int) *State { return &State{rows: make([]Row, n), last: make([]int, n)} }

// Row returns what is free on a node. It is valid until the next change.
func (s *State) Row(node int32) *Row { return &s.rows[node] }

// Len is the number of nodes.
func (s *State) Len() int { return len(s.rows) }

// Set replaces a node's row.
func (s *State) Set(node int32, row Row) {
	s.rows[node] = row
	s.changed(node)
}

// Begin is Set before anything has been derived from the state. Different nodes
// may be begun at the same time.
func (s *State) Begin(node int32, row Row) { s.rows[node] = row }

// Mark is an undo of everything from here on.
func (s *State) Mark() Undo { return Undo(len(s.journal)) }

// Take gives a claim to a member. The caller has checked that it is free.
func (s *State) Take(node int32, c Claim) Undo {
	u := s.save(node)
	s.rows[node].Take(c)
	return u
}

// Take gives a claim to a member.
func (r *Row) Take(c Claim) {
	r.GPUs &^= c.GPUs
	r.Free = subtract(r.Free, c.Resources)
	if len(c.Ports) > 0 {
		r.Ports = MergePorts(r.Ports, c.Ports)
	}
	r.SetUser(c.GPUs, c.Usage)
}

// SetUser notes what is known of who has got GPUs, or nil, of who has left them.
func (r *Row) SetUser(gpus uint64, usage *model.Usage) {
	if gpus == 0 || usage == nil && r.Users == nil {
		return
	}
	users := make([]*model.Usage, MaxGPUs)
	copy(users, r.Users)
	Each(gpus, func(i int) { users[i] = usage })
	r.Users = users
}

// UsersOf lists what is known of those who hold GPUs of a set, nil for who is
// unknown.
func (r *Row) UsersOf(set uint64) []*model.Usage {
	out := make([]*model.Usage, 0, 8)
	Each(set&^r.GPUs, func(i int) {
		if r.Users == nil {
			out = append(out, nil)
			return
		}
		out = append(out, r.Users[i])
	})
	return out
}

// Give gives back what somebody holds, as if it had left. What others hold too
// must not be among it.
func (s *State) Give(node int32, c Claim) Undo {
	u := s.save(node)
	s.rows[node].Give(c)
	return u
}

// Give gives a claim back.
func (r *Row) Give(c Claim) {
	r.GPUs |= c.GPUs
	r.Free = subtract(r.Free, model.Resources{CPUMHz: -c.Resources.CPUMHz, Cores: -c.Resources.Cores, MemoryMiB: -c.Resources.MemoryMiB, DiskMiB: -c.Resources.DiskMiB})
	if len(c.Ports) > 0 {
		r.Ports = slices.DeleteFunc(slices.Clone(r.Ports), func(p uint16) bool { return slices.Contains(c.Ports, p) })
	}
	r.SetUser(c.GPUs, nil)
}

// Keep keeps a whole node for an owner.
func (s *State) Keep(node, owner int32) Undo {
	u := s.save(node)
	s.rows[node].Owner = owner
	return u
}

// Try makes a row what is free on a node.
func (s *State) Try(node int32, row Row) Undo {
	u := s.save(node)
	s.rows[node] = row
	return u
}

// Revert undoes.
func (s *State) Revert(u Undo) {
	for i := len(s.journal) - 1; i >= int(u); i-- {
		e := &s.journal[i]
		s.rows[e.node] = e.row
		s.changed(e.node)
	}
	s.journal = s.journal[:u]
}

func (s *State) save(node int32) Undo {
	u := s.Mark()
	if s.journal == nil {
		s.journal = make([]journalEntry, 0, 64+len(s.rows)/4)
	}
	s.journal = append(s.journal, journalEntry{node, s.rows[node]})
	s.changed(node)
	return u
}

func (s *State) changed(node int32) {
	if len(s.changes) > 4*len(s.rows)+1024 {
		// Whoever lags that far behind is quicker when starting over.
		s.dropped += len(s.changes)
		s.changes = s.changes[:0]
	}
	s.changes = append(s.changes, node)
	s.last[node] = s.dropped + len(s.changes)
}

// Since returns the nodes changed since version, and the version now. A false
// result means that too much has changed: look at every node.
func (s *State) Since(version int) (nodes []int32, now int, ok bool) {
	now = s.dropped + len(s.changes)
	if version < s.dropped {
		return nil, now, false
	}
	return s.changes[version-s.dropped:], now, true
}

// EachChanged calls f with every node changed since version, once, and returns
// the version now.
func (s *State) EachChanged(version int, f func(node int32)) (now int) {
	now = s.Version()
	if version < s.dropped || now-version > len(s.rows) {
		for node, at := range s.last {
			if at > version {
				f(int32(node))
			}
		}
		return now
	}
	for i, node := range s.changes[version-s.dropped:] {
		if s.last[node] == version+i+1 { // else it comes again
			f(node)
		}
	}
	return now
}

// Version grows with every change.
func (s *State) Version() int { return s.dropped + len(s.changes) }

func subtract(a, b model.Resources) model.Resources {
	a.CPUMHz -= b.CPUMHz
	a.Cores -= b.Cores
	a.MemoryMiB -= b.MemoryMiB
	a.DiskMiB -= b.DiskMiB
	return a
}

// MergePorts is the union of two port lists, in order, in a new slice.
func MergePorts(a, b []uint16) []uint16 {
	out := make([]uint16, 0, len(a)+len(b))
	out = append(append(out, a...), b...)
	slices.Sort(out)
	return slices.Compact(out)
}

// PortsFree reports whether none of want is taken on the row.
func (r *Row) PortsFree(want []uint16) bool {
	for _, p := range want {
		if _, taken := slices.BinarySearch(r.Ports, p); taken {
			return false
		}
	}
	return true
}
