package devrun

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// checkUnchangedSince: after the index, no version was made of the job and none
// of its allocations was made, stopped or restarted.
func checkUnchangedSince(t timeline, job string, index uint64) Check {
	var faults []string
	before := map[string]*allocState{}
	var version *jobState
	for _, s := range t {
		switch {
		case s.job != nil && s.job.id == job:
			if s.index > index && version != nil && (s.job.version != version.version || s.job.modify != version.modify) {
				faults = append(faults, fmt.Sprintf("%v: registered again, as version %d after %d", round(s.at), s.job.version, version.version))
			}
			version = s.job
		case s.alloc != nil && s.alloc.job == job:
			b := before[s.alloc.id]
			if s.index > index {
				switch {
				case b == nil:
					faults = append(faults, fmt.Sprintf("%v: new allocation %s", round(s.at), s.alloc.name))
				case b.desired != s.alloc.desired || b.client != s.alloc.client:
					faults = append(faults, fmt.Sprintf("%v: %s went from %s/%s to %s/%s", round(s.at), s.alloc.name, b.desired, b.client, s.alloc.desired, s.alloc.client))
				}
			}
			before[s.alloc.id] = s.alloc
		}
	}
	if version == nil {
		faults = append(faults, "it was never seen")
	}
	return result("unchanged:"+job, faults, "no new version, no allocation touched")
}

// checkRolledBack: the job was partial, then had no member at all, and has
// members now.
func checkRolledBack(t timeline, job string) Check {
	const (
		none = iota
		placed
		back
		again
	)
	phase := none
	first := map[string]bool{}
	t.moments(func(_ time.Duration, _ uint64, allocs map[string]*allocState) {
		count := 0
		for _, a := range allocs {
			if a.job == job && a.placed() {
				count++
				if phase <= placed {
					first[a.id] = true
				}
			}
		}
		switch {
		case phase == none && count > 0:
			phase = placed
		case phase == placed && count == 0:
			phase = back
		case phase == back && count > 0:
			phase = again
		}
	})
	var faults []string
	if phase != again {
		faults = append(faults, [...]string{
			"it was never placed", "it was placed and not rolled back", "it was rolled back and not placed again",
		}[phase])
	}
	return result("rolled-back:"+job, faults, "the first try ("+count(len(first), "member")+") had stopped before the second began")
}

// checkOneRack: all members are in one rack, because one had room for all.
func checkOneRack(t timeline, job string, rackOf func(node string) string) Check {
	used := map[string]bool{}
	for _, a := range t.members(job) {
		used[rackOf(a.node)] = true
	}
	names := strings.Join(slices.Sorted(maps.Keys(used)), ", ")
	var faults []string
	if len(used) != 1 {
		faults = append(faults, fmt.Sprintf("it is in %d racks: %s", len(used), names))
	}
	return result("one-rack:"+job, faults, "all in "+names)
}

// checkUndisturbed: the job's allocations run on from their first to the end,
// none stopped, none placed again.
func checkUndisturbed(t timeline, job string) Check {
	var faults []string
	all := t.last(job)
	for _, a := range all {
		if !a.placed() {
			faults = append(faults, fmt.Sprintf("%s is %s/%s", a.name, a.desired, a.client))
		}
	}
	if len(all) == 0 {
		faults = append(faults, "it was never placed")
	}
	return result("undisturbed:"+job, faults, count(len(all), "allocation")+" ran on from beginning to end")
}

// checkMoved: the gang was stopped whole before a new member was placed, and
// nothing of it is on the node any more.
func checkMoved(t timeline, job, node, name string) Check {
	back := checkRolledBack(t, job)
	var faults []string
	if !back.OK {
		faults = append(faults, back.Detail)
	}
	members := t.members(job)
	for _, a := range members {
		if a.node == node {
			faults = append(faults, a.name+" is still on "+name)
		}
	}
	return result("moved-whole:"+job, faults, "stopped whole, and then "+count(len(members), "member")+" placed off "+name)
}

// checkMembersUntouched: the members that ran at the index run on, and no other
// came.
func checkMembersUntouched(t timeline, job string, index uint64) Check {
	before := map[string]bool{}
	var faults []string
	for _, s := range t {
		switch {
		case s.alloc == nil || s.alloc.job != job:
		case s.index <= index:
			before[s.alloc.id] = s.alloc.placed()
		case before[s.alloc.id] && !s.alloc.placed():
			faults = append(faults, fmt.Sprintf("%v: %s is %s/%s", round(s.at), s.alloc.name, s.alloc.desired, s.alloc.client))
		case !before[s.alloc.id] && s.alloc.placed():
			faults = append(faults, fmt.Sprintf("%v: %s was placed", round(s.at), s.alloc.name))
		}
	}
	return result("untouched:"+job, faults, "its members ran on when the node came back")
}
