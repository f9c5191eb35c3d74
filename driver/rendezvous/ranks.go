package rendezvous

import (
	"errors"
	"fmt"
)

// ErrNotMember is in the chain of an answer about an allocation that is not in
// the membership.
var ErrNotMember = errors.New("not a member of the gang")

// World is the number of ranks: the sum of all members' processes.
func (m Membership) World() int {
	n := 0
	for _, member := range m.Members {
		n += member.Processes
	}
	return n
}

// Elastic says whether the gang may have more than one size.
func (m Membership) Elastic() bool { return m.Min != m.Max }

// Place is where an allocation stands in a membership.
type Place struct {
	// NodeRank is its place in Membership.Members.
	NodeRank int
	// Rank is the first of its global ranks: the processes of those before it.
	Rank   int
	Member Member
}

// Find looks up an allocation. The error is ErrNotMember.
func (m Membership) Find(alloc string) (Place, error) {
	rank := 0
	for i, member := range m.Members {
		if member.Alloc == alloc {
			return Place{NodeRank: i, Rank: rank, Member: member}, nil
		}
		rank += member.Processes
	}
	return Place{}, fmt.Errorf("find allocation %q in epoch %q, generation %d: %w", alloc, m.Epoch, m.Generation, ErrNotMember)
}
