package core

import (
	"math/bits"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// Deadlines are promised by a plan of GPUs over time, which knows of no places. For
// gangs whose members take whole nodes it is told how many nodes are whole, in the
// domain that they require; for others how much a member takes away, and how much is
// in pieces.

// maxRooms bounds the sets of nodes that are told apart, and those that jobs may be in
// instead of others.
const maxRooms = 16

// countPlaces tells the discipline of places, if deadlines are to be promised.
func (c *cycle) countPlaces(s *queue.Situation) {
	if !slices.ContainsFunc(s.Jobs, func(e queue.Entry) bool { return !e.Job.Deadline.IsZero() }) {
		return
	}
	rooms := roomList{c: c, s: s}
	for _, i := range s.InOrderOfPromise() {
		if e := &s.Jobs[i]; e.Waiting && !e.Running && !e.Job.Deadline.IsZero() && e.GPUsPerMember > 0 {
			rooms.add(e)
		}
	}
	rooms.enterElse()
	if len(s.Rooms) == 0 {
		return
	}
	at := map[jobKey]int{}
	for i := range s.Jobs {
		if s.Jobs[i].Running {
			at[keyOf(s.Jobs[i].Job)] = i
		}
	}
	for node, in := range rooms.any {
		if !in {
			continue
		}
		for _, h := range c.holders(int32(node)) {
			i, runs := at[h.job]
			if !runs || h.gpus == 0 {
				continue
			}
			if list := s.Jobs[i].Nodes; len(list) == 0 || list[len(list)-1] != int32(node) {
				s.Jobs[i].Nodes = append(list, int32(node))
			}
		}
	}
}

// roomList are the rooms so far.
type roomList struct {
	c *cycle
	s *queue.Situation
	// any says of each node whether it is in a room, and taken how many nodes of a
	// domain gangs are to have that require one; rest are who may be in other rooms too.
	any   []bool
	rest  []otherRooms
	taken map[int32]int
	known map[*place.Request]*survey
}

// otherRooms are those in which a job may be too.
type otherRooms struct {
	e     *queue.Entry
	rooms []queue.Room
}

// survey is what is known of the places of members alike.
type survey struct {
	footprint, pieces int
	// whole: each takes a whole node; nodes are those, and idle says which of them
	// are whole now.
	whole bool
	nodes []int32
	idle  map[int32]bool
}

// survey looks at the nodes that members alike may be on.
func (l *roomList) survey(request *place.Request, gpus int) *survey {
	if known := l.known[request]; known != nil {
		return known
	}
	all, fit := 0, 0
	c, out := l.c, &survey{whole: gpus > 1, idle: map[int32]bool{}}
	now, empty := c.views[viewTrue].State, c.views[viewEmpty].State
	for node := range int32(empty.Len()) {
		row := empty.Row(node)
		healthy := bits.OnesCount64(row.GPUs)
		if row.Closed || healthy < gpus || !request.Verdicts.Eligible(int(node)) {
			continue
		}
		per := healthy / gpus
		all, fit = all+healthy, fit+per
		out.whole = out.whole && per == 1
		free := now.Row(node).GPUs
		out.pieces += bits.OnesCount64(free) % gpus
		if !c.foreign(node) {
			out.nodes = append(out.nodes, node)
			out.idle[node] = free == row.GPUs
		}
	}
	if fit > 0 {
		out.footprint = (all + fit - 1) / fit
	}
	if l.known == nil {
		l.known = map[*place.Request]*survey{}
	}
	l.known[request] = out
	return out
}

// add counts the places of a job that waits.
func (l *roomList) add(e *queue.Entry) {
	c, j := l.c, e.Job
	v := l.survey(c.catalog.Compile(j, &j.Groups[0]), e.GPUsPerMember)
	e.Footprint, e.Pieces = v.footprint, v.pieces
	if !v.whole || v.footprint == 0 {
		return
	}
	level := -1
	if t := j.Topology; t.Mode == model.TopologyRequire {
		level = c.tree.LevelIndex(t.Level)
	}
	if level < 0 {
		l.enter(e, queue.Room{Nodes: v.nodes}, maxRooms)
		return
	}
	rooms := l.narrow(e, level, v)
	l.enter(e, rooms[0], maxRooms)
	l.rest = append(l.rest, otherRooms{e, rooms[1:]})
}

// enterElse puts those into other rooms too who have one.
func (l *roomList) enterElse() {
	for _, o := range l.rest {
		for _, room := range o.rooms {
			if len(o.e.Rooms) > 0 {
				l.enter(o.e, room, 2*maxRooms)
			}
		}
	}
}

// foreign reports whether something holds GPUs of a node that is not managed.
func (c *cycle) foreign(node int32) bool {
	for _, h := range c.holders(node) {
		if c.jobs[h.job] == nil && h.gpus != 0 && !h.lost && (h.on == nil || !h.on.Stopping) {
			return true
		}
	}
	return false
}

// maxChoices bounds the domains that are tried for one gang.
const maxChoices = 4

// narrow chooses the domains for a gang that has to be in one: the one in which it was
// promised its deadline, then those where the most nodes are whole now, and of those
// alike where there are the most, but for what gangs before it are to have.
func (l *roomList) narrow(e *queue.Entry, level int, v *survey) (out []queue.Room) {
	c := l.c
	all, idle := map[int32]int{}, map[int32]int{}
	for _, node := range v.nodes {
		if d := c.tree.DomainAt(node, level); d >= 0 {
			if all[d]++; v.idle[node] {
				idle[d]++
			}
		}
	}
	score := func(d int32) []int {
		was := 0
		if p := e.Job.Promised; p.Holds(e.Job.Deadline) && p.Level == c.tree.Levels[level] && p.Domain == c.tree.Domains[d].Path {
			was = 1
		}
		return []int{was, min(idle[d]-l.taken[d], e.Count), all[d] - l.taken[d]}
	}
	var list []int32
	for _, d := range c.tree.ByLevel[level] {
		if all[d] > 0 {
			list = append(list, d)
		}
	}
	if len(list) == 0 {
		return []queue.Room{{Name: "one " + c.tree.Levels[level]}}
	}
	slices.SortStableFunc(list, func(a, b int32) int { return slices.Compare(score(b), score(a)) })
	for k, d := range list[:min(len(list), maxChoices)] {
		if k > 0 && all[d] < e.Count {
			continue
		}
		room := queue.Room{Name: domainName(c.tree.Levels[level], c.tree.Domains[d].Path), Domain: d}
		for _, node := range v.nodes {
			if c.tree.DomainAt(node, level) == d {
				room.Nodes = append(room.Nodes, node)
			}
		}
		out = append(out, room)
	}
	if l.taken == nil {
		l.taken = map[int32]int{}
	}
	l.taken[list[0]] += e.Count
	return out
}

// enter adds a room to those that a job may be in, if there are not too many.
func (l *roomList) enter(e *queue.Entry, room queue.Room, most int) {
	at := slices.IndexFunc(l.s.Rooms, func(r queue.Room) bool { return r.Name == room.Name && slices.Equal(r.Nodes, room.Nodes) })
	if at < 0 {
		if len(l.s.Rooms) >= most {
			return
		}
		at = len(l.s.Rooms)
		l.s.Rooms = append(l.s.Rooms, room)
		if l.any == nil {
			l.any = make([]bool, len(l.c.tree.Nodes))
		}
		for _, node := range room.Nodes {
			l.any[node] = true
		}
	}
	e.Rooms = append(e.Rooms, at)
}
