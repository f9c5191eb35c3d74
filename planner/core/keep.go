package core

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// A change costs what has changed: what is derived from all jobs or allocations
// together is kept in step with each of them. Where very much has changed it is
// made again, which is quicker.

// bulk is how many jobs are put into a list one by one, beside a part of its
// length.
const bulk = 64

// relist puts changed jobs into the lists of jobs, and takes old ones out.
func (p *Prepared) relist(old, now []*model.Job) {
	if len(old)+len(now) > 0 {
		p.wants = nil
	}
	for _, j := range old {
		delete(p.said, j)
		delete(p.askings, j)
	}
	if n := len(old) + len(now); n > bulk+len(p.jobs)/16 {
		p.pending, p.lasting, p.aged, p.agedOf, p.some, p.shapes, p.timed = nil, nil, nil, nil, [someCount]map[jobKey]*model.Job{}, nil, -1
		p.scratch.line = nil
		return
	}
	if p.timed >= 0 {
		p.timed += countTimed(now...) - countTimed(old...)
	}
	if p.shapes != nil {
		for _, j := range old {
			p.countShapes(j, -1)
		}
		for _, j := range now {
			p.countShapes(j, 1)
		}
	}
	if p.pending != nil {
		compare := p.policy.Compare(p.queueTree())
		for _, j := range old {
			p.pending = without(p.pending, j, compare)
		}
		for _, j := range now {
			if waits(j) {
				p.pending = with(p.pending, j, compare)
			}
		}
	}
	if p.aged != nil {
		for _, j := range old {
			if a := p.agedOf[j]; a != nil {
				p.lasting.drop(a)
				p.aged = without(p.aged, a, compareAged)
				delete(p.agedOf, j)
				a.gone = true
			}
		}
		for _, j := range now {
			a := newAged(j)
			p.aged, p.agedOf[j] = with(p.aged, a, compareAged), a
			p.lasting.put(a)
		}
	}
	for k, jobs := range p.some {
		if jobs == nil {
			continue
		}
		for _, j := range old {
			delete(jobs, keyOf(j))
		}
		for _, j := range now {
			if someKinds[k](j) {
				jobs[keyOf(j)] = j
			}
		}
	}
}

// Kinds of jobs that are few, so that nobody has to look for them among all.
const (
	// someGave: those that have given way to others.
	someGave = iota
	// someElastic: those with a group whose members may be more or fewer.
	someElastic
	// someResized: those whose gangs got another size.
	someResized
	// someReplaced: those that were stopped because of the nodes of some members.
	someReplaced
	// somePassing: those whose place in the order may be another one as time passes,
	// or that wait with something in place.
	somePassing
	// someStaying: those that may be such as give way to nobody.
	someStaying
	// someBare: those with members that need no GPU.
	someBare
	// someAside: those that may be told more than that they are behind, where one waits
	// ahead of them in a strict queue.
	someAside
	someCount
)

var someKinds = [someCount]func(*model.Job) bool{
	someGave:     func(j *model.Job) bool { return len(j.Preempted) > 0 },
	someResized:  func(j *model.Job) bool { return len(j.Resized) > 0 },
	someStaying:  mayStay,
	someReplaced: func(j *model.Job) bool { return j.Replace != nil },
	somePassing: func(j *model.Job) bool {
		return !j.Deadline.IsZero() || waits(j) && (j.State != model.StateQueued || gangOf(j) != model.GangJob || j.Hold != "")
	},
	someBare: func(j *model.Job) bool {
		return slices.ContainsFunc(j.Groups, func(g model.TaskGroup) bool { return askedGPUs(&g) == 0 })
	},
	someElastic: func(j *model.Job) bool {
		return slices.ContainsFunc(j.Groups, func(g model.TaskGroup) bool { return g.Max > 0 })
	},
	someAside: func(j *model.Job) bool {
		return waits(j) && (!plainlyQueued(j) || len(j.Constraints) > 0 || slices.ContainsFunc(j.Groups, func(g model.TaskGroup) bool {
			return len(g.Constraints) > 0 || slices.ContainsFunc(g.Devices, func(d model.DeviceAsk) bool { return len(d.Constraints) > 0 })
		}))
	},
}

// plainlyQueued reports whether a job is a gang with members that waits for nothing but its
// turn and room.
func plainlyQueued(j *model.Job) bool {
	return j.State == model.StateQueued && gangOf(j) == model.GangJob && j.Hold == "" && j.RetryAfter.IsZero() && membersWanted(j) > 0
}

func membersWanted(j *model.Job) (n int) {
	for i := range j.Groups {
		n += j.Groups[i].Count
	}
	return n
}

// with puts something into a sorted list.
func with[T any](list []*T, x *T, compare func(a, b *T) int) []*T {
	at, _ := slices.BinarySearchFunc(list, x, compare)
	return slices.Insert(list, at, x)
}

// without takes something out of a sorted list.
func without[T any](list []*T, x *T, compare func(a, b *T) int) []*T {
	at, found := slices.BinarySearchFunc(list, x, compare)
	if !found || list[at] != x {
		return list
	}
	return slices.Delete(list, at, at+1)
}

// jobsOf are the jobs of one kind, in no order.
func (p *Prepared) jobsOf(kind int) map[jobKey]*model.Job {
	if p.some[kind] == nil {
		p.some[kind] = map[jobKey]*model.Job{}
		for j := range p.allJobs() {
			if someKinds[kind](j) {
				p.some[kind][keyOf(j)] = j
			}
		}
	}
	return p.some[kind]
}

// jobAllocs lists a job's allocations, along the tree.
func (p *Prepared) jobAllocs(key jobKey) []*model.Alloc {
	if p.allocsOf == nil {
		p.allocsOf = map[jobKey][]*model.Alloc{}
		for _, on := range p.allocsOn {
			for _, a := range on {
				k := jobKey{a.Namespace, a.Job}
				p.allocsOf[k] = append(p.allocsOf[k], a)
			}
		}
	}
	return p.allocsOf[key]
}

// listAlloc puts an allocation into its job's list, or takes it out.
func (p *Prepared) listAlloc(a *model.Alloc, there bool) {
	if p.allocsOf == nil {
		return
	}
	key := jobKey{a.Namespace, a.Job}
	list := p.allocsOf[key]
	if there {
		list = with(list, a, p.compareAllocs)
	} else {
		list = without(list, a, p.compareAllocs)
	}
	if len(list) == 0 {
		delete(p.allocsOf, key)
	} else {
		p.allocsOf[key] = list
	}
}

func (p *Prepared) compareAllocs(a, b *model.Alloc) int {
	x, _ := p.tree.Find(a.Node)
	y, _ := p.tree.Find(b.Node)
	return cmp.Or(cmp.Compare(x, y), strings.Compare(a.ID, b.ID))
}
