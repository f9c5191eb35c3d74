package queue

import (
	"fmt"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/share"
)

// takeRooms says what the tasks take of the Situation's rooms, and returns how many
// nodes each room has. Of a node that several of those hold that run, the last that
// ends keeps it from being whole.
func (s *Situation) takeRooms(tasks []share.Task, of []int) []int {
	if len(s.Rooms) == 0 {
		return nil
	}
	holder := map[int32]int{}
	for k := range tasks {
		if tasks[k].Running || tasks[k].Firm {
			for _, node := range s.Jobs[of[k]].Nodes {
				if other, held := holder[node]; !held || tasks[k].Work > tasks[other].Work {
					holder[node] = k
				}
			}
		}
	}
	sizes := make([]int, len(s.Rooms))
	for r := range s.Rooms {
		sizes[r] = len(s.Rooms[r].Nodes)
		held := map[int]int{}
		for _, node := range s.Rooms[r].Nodes {
			if k, is := holder[node]; is {
				held[k]++
			}
		}
		for k, n := range held {
			members := max(1, tasks[k].Members)
			tasks[k].Needs = append(tasks[k].Needs, share.Need{Room: r, Places: (n + members - 1) / members})
		}
	}
	beside := s.besides()
	for k := range tasks {
		e := &s.Jobs[of[k]]
		if tasks[k].Running || tasks[k].Firm {
			continue
		}
		places := 1
		if !e.elastic() {
			places = e.Count
		}
		for _, own := range e.Rooms {
			choice := []share.Need{{Room: own, Places: places}}
			for _, need := range beside[own] {
				need.Places = places
				choice = append(choice, need)
			}
			tasks[k].Choices = append(tasks[k].Choices, choice)
		}
	}
	return sizes
}

// besides are, by room, the others in which who is in it takes places too: all of them
// in those around it, and in those within it no more than these have, since nobody
// knows where in the wider one he will be.
func (s *Situation) besides() [][]share.Need {
	out := make([][]share.Need, len(s.Rooms))
	for own := range s.Rooms {
		for r := range s.Rooms {
			switch {
			case r == own:
			case s.Rooms[own].Within(&s.Rooms[r]):
				out[own] = append(out[own], share.Need{Room: r})
			case s.Rooms[r].meets(&s.Rooms[own]):
				out[own] = append(out[own], share.Need{Room: r, Most: len(s.Rooms[r].Nodes)})
			}
		}
	}
	return out
}

// placesWords says how places are counted for a job that waits, of whose rooms it is
// the one chosen.
func (s *Situation) placesWords(e *Entry, choice int) string {
	switch {
	case e.Running:
		return ""
	case len(e.Rooms) > 0 && s.Rooms[e.Rooms[choice]].Name != "":
		return fmt.Sprintf("; counted in whole nodes of %s", s.Rooms[e.Rooms[choice]].Name)
	case len(e.Rooms) > 0:
		return "; counted in whole nodes"
	case e.Pieces > 0:
		return fmt.Sprintf("; %d of the GPUs that are free now are in pieces too small for its members, so it may begin later", e.Pieces)
	}
	return ""
}

// meets reports whether two rooms have nodes in common.
func (r *Room) meets(o *Room) bool {
	return slices.ContainsFunc(r.Nodes, func(node int32) bool {
		_, in := slices.BinarySearch(o.Nodes, node)
		return in
	})
}

// Within reports whether all nodes of a room are in another one.
func (r *Room) Within(o *Room) bool {
	if len(r.Nodes) > len(o.Nodes) {
		return false
	}
	for _, node := range r.Nodes {
		if _, in := slices.BinarySearch(o.Nodes, node); !in {
			return false
		}
	}
	return true
}
