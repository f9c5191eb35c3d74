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
