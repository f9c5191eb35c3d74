package devrun

import (
	"fmt"
	"slices"
	"time"
)

// checkStartTogether: each time, all members started within a second, with the
// ranks from 0, and none twice.
func checkStartTogether(d diary, members int) Check {
	var faults []string
	var spreads []time.Duration
	for i, l := range d.launches() {
		var ranks []int
		for _, e := range l.starts {
			ranks = append(ranks, e.number("rank"))
		}
		slices.Sort(ranks)
		for want, rank := range ranks {
			if rank != want || len(ranks) != members {
				faults = append(faults, fmt.Sprintf("start %d has the ranks %v", i+1, ranks))
				break
			}
		}
		if l.spread() > startTogether {
			faults = append(faults, fmt.Sprintf("start %d took %v", i+1, round(l.spread())))
		}
		spreads = append(spreads, round(l.spread()))
	}
	if len(spreads) == 0 {
		faults = append(faults, "nothing started")
	}
	return result("start-together:"+trainDriver, faults, fmt.Sprintf("all %d members started within %v", members, spreads))
}

// checkNothingLost: what began again went on at the step at which it had ended.
func checkNothingLost(d diary) Check {
	var faults []string
	lost, resumed := 0, 0
	ends := map[string]int{} // by rank
	for _, e := range d {
		rank := e.values["rank"]
		switch e.word {
		case wordStart:
			if was, ok := ends[rank]; ok {
				resumed++
				lost += was - e.number("step")
			}
		case wordEnd:
			starts := d.of(e.alloc).with(wordStart)
			ends[starts[len(starts)-1].values["rank"]] = e.number("step")
		}
	}
	if resumed == 0 {
		faults = append(faults, "no member went on from a checkpoint")
	}
	if lost != 0 {
		faults = append(faults, fmt.Sprintf("%d steps were lost", lost))
	}
	return result("steps-lost:"+trainDriver, faults, fmt.Sprintf("%d members went on from their checkpoints, 0 steps were lost", resumed))
}

// checkSurvived: the processes that started first are those that wrote last.
func checkSurvived(d, first diary) Check {
	var faults []string
	var pids []string
	for _, s := range first {
		starts := d.of(s.alloc).with(wordStart)
		pids = append(pids, s.values["pid"])
		if len(starts) != 1 || starts[0].values["pid"] != s.values["pid"] {
			faults = append(faults, fmt.Sprintf("member %s started %d times", s.alloc, len(starts)))
		}
	}
	return result("same-processes:"+trainDriver, faults, fmt.Sprintf("processes %v ran all the time", pids))
}

// checkSameAllocs: what started again did so in its own allocation.
func checkSameAllocs(d diary) Check {
	allocs := map[string]int{}
	for _, s := range d.with(wordStart) {
		allocs[s.alloc]++
	}
	var faults []string
	for _, l := range d.launches() {
		if len(l.starts) != len(allocs) {
			faults = append(faults, fmt.Sprintf("%d of %d allocations took part in a start", len(l.starts), len(allocs)))
		}
	}
	return result("same-allocations:"+trainDriver, faults, fmt.Sprintf("%d allocations started %d times each, none was replaced", len(allocs), len(d.launches())))
}

// checkFenced: the code of a member that was cut off ran on for a while, and not
// too long.
func checkFenced(d diary, alloc string, cut time.Time) Check {
	mine := d.of(alloc)
	last := mine[len(mine)-1]
	ran := last.at.Sub(cut)
	var faults []string
	if ran > fenceAfter+fenceSlack {
		faults = append(faults, fmt.Sprintf("it ran on for %v, longer than %v", round(ran), fenceAfter+fenceSlack))
	}
	if ran < fenceAfter/4 {
		faults = append(faults, fmt.Sprintf("it ended after %v already, though it may run on for %v", round(ran), fenceAfter))
	}
	return result("fenced:"+trainDriver, faults, fmt.Sprintf("the member's code ended %v after it was cut off", round(ran)))
}

// checkNeverTwice: no rank's code runs in two places at a time.
func checkNeverTwice(d diary) Check {
	var faults []string
	// Who had a rank last, and who has it.
	last := map[string]entry{}
	rankOf := map[string]string{}
	handed := 0
	for _, e := range d {
		if e.word == wordStart {
			rankOf[e.alloc] = e.values["rank"]
			if was, ok := last[rankOf[e.alloc]]; ok && was.alloc != e.alloc {
				handed++
			}
		}
		rank := rankOf[e.alloc]
		if was, ok := last[rank]; ok && was.alloc != e.alloc && e.word != wordStart {
			faults = append(faults, fmt.Sprintf("rank %s in %s beside %s", rank, e.alloc, was.alloc))
		}
		last[rank] = e
	}
	if len(faults) > 3 {
		faults = append(faults[:3], fmt.Sprintf("and %d more", len(faults)-3))
	}
	return result("never-twice:"+trainDriver, faults, fmt.Sprintf("%d ranks went to another allocation, none while it ran in the one before", handed))
}
