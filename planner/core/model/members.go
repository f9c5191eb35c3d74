package model

// validateMembers checks the members of jobs as strictly as allocations. The
// core does not depend on it: it gives nothing away that a member is listed
// with. So it is for snapshots that people and programs write, and not for the
// planner's own, where one job's record must not stop all others.
func (s *Snapshot) validateMembers(f *faults, owner *owners) {
	holder := map[string]string{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		counts := make(map[string]int, len(j.Groups))
		for k := range j.Groups {
			// While an elastic gang is resized it may have members beyond the count.
			counts[j.Groups[k].Name] = max(j.Groups[k].Count, j.Groups[k].Max)
		}
		for k := range j.Members {
			m := &j.Members[k]
			if count, known := counts[m.Group]; known && m.Index >= count {
				f.add("jobs[%d] (%s).members[%d].index: %d: want less than the group's count, %d", i, j.ID, k, m.Index, count)
			}
			if m.Rank < 0 || m.Rank > MaxCount {
				f.add("jobs[%d] (%s).members[%d].rank: %d: want 0 to %d", i, j.ID, k, m.Rank, MaxCount)
			}
			s.validateMemberGPUs(f, i, k, owner, holder)
		}
	}
}

// validateMemberGPUs checks the GPUs of a member. One that no node lists (any
// more) may be among them, as with an allocation.
func (s *Snapshot) validateMemberGPUs(f *faults, i, k int, owner *owners, holder map[string]string) {
	j := &s.Jobs[i]
	m := &j.Members[k]
	for g, uuid := range m.GPUs {
		at, listed := owner.find(uuid)
		if !listed {
			continue
		}
		if on := s.Nodes[at.node].ID; on != m.Node {
			f.add("jobs[%d] (%s).members[%d].gpus[%d]: %q: is on node %q, not on %q", i, j.ID, k, g, uuid, on, m.Node)
		}
		if m.Ended || j.State == StateStopping || j.State == StateQueued && (j.Gang == GangJob) {
			continue
		}
		if other, taken := holder[uuid]; taken {
			f.add("jobs[%d] (%s).members[%d].gpus[%d]: %q: is held by a member of job %q too; want one holder", i, j.ID, k, g, uuid, other)
			continue
		}
		holder[uuid] = j.ID
	}
}
