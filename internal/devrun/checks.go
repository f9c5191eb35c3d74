package devrun

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// result makes a check's result: ok if there are no faults.
func result(name string, faults []string, ok string) Check {
	if len(faults) == 0 {
		return Check{Name: name, OK: true, Detail: ok}
	}
	const shown = 5
	if more := len(faults) - shown; more > 0 {
		faults = append(faults[:shown:shown], fmt.Sprintf("and %d more", more))
	}
	return Check{Name: name, Detail: strings.Join(faults, "; ")}
}

// checkGPUsHeldOnce: at no moment do two live allocations hold one GPU.
func checkGPUsHeldOnce(t timeline) Check {
	var faults []string
	seen, moments := map[[2]string]bool{}, 0
	t.moments(func(at time.Duration, _ uint64, allocs map[string]*allocState) {
		moments++
		holder := map[string]*allocState{}
		for _, id := range slices.Sorted(maps.Keys(allocs)) {
			a := allocs[id]
			if !a.holds() {
				continue
			}
			for _, gpu := range a.gpus {
				b := holder[gpu]
				if b != nil && a.awaits(b) {
					continue
				}
				if b != nil && !b.awaits(a) && !seen[[2]string{b.id, a.id}] {
					seen[[2]string{b.id, a.id}] = true
					faults = append(faults, fmt.Sprintf("%v: %s is held by %s and by %s", round(at), gpu, b.name, a.name))
				}
				holder[gpu] = a
			}
		}
	})
	return result("gpus-held-once", faults, "at each of "+count(moments, "moment"))
}

// checkNeverPartial: the gang has no member or all of them, or more up to most,
// except while it is being admitted or rolled back, which must not last longer
// than the window.
func checkNeverPartial(t timeline, job string, members, most int, window time.Duration, end time.Duration) Check {
	var faults []string
	partial, since, longest := 0, time.Duration(0), time.Duration(0)
	leave := func(at time.Duration) {
		if partial == 0 {
			return
		}
		longest = max(longest, at-since)
		if at-since > window {
			faults = append(faults, fmt.Sprintf("%d of %d members from %v to %v, longer than %v", partial, members, round(since), round(at), window))
		}
		partial = 0
	}
	t.moments(func(at time.Duration, _ uint64, allocs map[string]*allocState) {
		placed := 0
		for _, a := range allocs {
			if a.job == job && a.placed() {
				placed++
			}
		}
		switch {
		case placed > most:
			faults = append(faults, fmt.Sprintf("%v: %d members, more than %d", round(at), placed, most))
			leave(at)
		case placed == 0 || placed >= members:
			leave(at)
		case partial == 0:
			partial, since = placed, at
		default:
			partial = max(partial, placed)
		}
	})
	leave(end)
	return result("never-partial:"+job, faults, fmt.Sprintf("all %d members or none; partial for %v at most while being admitted", members, round(longest)))
}

// checkAsPlanned: Nomad gave the members exactly the nodes and GPUs that were
// decided.
func checkAsPlanned(t timeline, job string, planned []model.Member) Check {
	place := func(node string, gpus []string) string {
		return node + " " + strings.Join(slices.Sorted(slices.Values(gpus)), ",")
	}
	var want, got []string
	for _, m := range planned {
		want = append(want, place(m.Node, m.GPUs))
	}
	for _, a := range t.members(job) {
		got = append(got, place(a.node, a.gpus))
	}
	slices.Sort(want)
	slices.Sort(got)
	var faults []string
	if !slices.Equal(want, got) {
		for _, w := range want {
			if !slices.Contains(got, w) {
				faults = append(faults, "planned and not placed: "+w)
			}
		}
		for _, g := range got {
			if !slices.Contains(want, g) {
				faults = append(faults, "placed and not planned: "+g)
			}
		}
		if len(faults) == 0 {
			faults = append(faults, fmt.Sprintf("planned %v, placed %v", want, got))
		}
	}
	if len(want) == 0 {
		faults = append(faults, "nothing was planned")
	}
	return result("as-planned:"+job, faults, count(len(want), "member")+" on exactly the GPUs that were decided")
}

// islandMap maps each GPU of the cluster to its island, named by node and
// number, and each island to its size.
type islandMap struct {
	of   map[string]string
	size map[string]int
}

// add notes a node's islands.
func (m islandMap) add(node string, t topology.Matrix) {
	for i, gpus := range t.Islands() {
		island := fmt.Sprintf("%s/%d", node, i)
		for _, g := range gpus {
			m.of[t.GPUs[g].UUID] = island
			m.size[island]++
		}
	}
}

// split divides GPUs by island, keeping their order.
func (m islandMap) split(gpus []string) [][]string {
	var out [][]string
	at := map[string]int{}
	for _, g := range gpus {
		island, known := m.of[g]
		if !known {
			island = g
		}
		i, seen := at[island]
		if !seen {
			i = len(out)
			at[island] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], g)
	}
	return out
}

// isPart tells the ID of a MIG instance or of a slice from that of a whole GPU.
func isPart(id string) bool {
	_, _, slice := topology.ParseSliceID(id)
	return slice || strings.HasPrefix(id, "MIG-")
}

// checkWholeIslands: a member has its GPUs within one island, or has islands
// whole. MIG instances and slices of shared GPUs have no NVLink, and are in none.
func checkWholeIslands(t timeline, job string, islands islandMap) Check {
	var faults []string
	members := t.members(job)
	for _, a := range members {
		whole := slices.DeleteFunc(slices.Clone(a.gpus), isPart)
		parts := islands.split(whole)
		for _, part := range parts {
			island, known := islands.of[part[0]]
			switch {
			case !known:
				faults = append(faults, fmt.Sprintf("%s has %s, which no node reports", a.name, part[0]))
			case len(parts) > 1 && len(part) != islands.size[island]:
				faults = append(faults, fmt.Sprintf("%s has %d of the %d GPUs of island %s", a.name, len(part), islands.size[island], island))
			}
		}
	}
	if len(members) == 0 {
		faults = append(faults, "it has no members")
	}
	return result("whole-islands:"+job, faults, count(len(members), "member"))
}

// checkGatedFirst: the job was gated when Nomad first saw it, and no member was
// placed without pins.
func checkGatedFirst(t timeline, job string) Check {
	versions := t.versions(job)
	var faults []string
	if len(versions) == 0 {
		faults = append(faults, "it was never seen")
	} else if !versions[0].job.gated {
		faults = append(faults, "its first version was not gated")
	}
	// The stream does not say which version placed an allocation; it is the
	// newest one registered before.
	var version *jobState
	seen := map[string]bool{}
	for _, s := range t {
		switch {
		case s.job != nil && s.job.id == job:
			version = s.job
		case s.alloc != nil && s.alloc.job == job && !seen[s.alloc.id]:
			seen[s.alloc.id] = true
			if version == nil || !version.pinned {
				faults = append(faults, fmt.Sprintf("%v: %s was placed without pins", round(s.at), s.alloc.name))
			}
		}
	}
	return result("gated-first:"+job, faults, count(len(versions), "version")+", "+count(len(seen), "allocation"))
}

// checkWaitedWhole: no allocation of the job was made up to that index.
func checkWaitedWhole(t timeline, job string, until uint64) Check {
	var faults []string
	seen := map[string]bool{}
	for _, s := range t {
		if s.alloc != nil && s.alloc.job == job && s.index <= until && !seen[s.alloc.id] {
			seen[s.alloc.id] = true
			faults = append(faults, fmt.Sprintf("%v: %s was placed before all could be", round(s.at), s.alloc.name))
		}
	}
	return result("waited-whole:"+job, faults, "no member was placed before all could be")
}

// checkPacked: the jobs' GPUs are on as few nodes and islands as can be.
func checkPacked(t timeline, jobs []string, nodeSize int, islands islandMap) []Check {
	nodes, held, total := map[string]bool{}, map[string]int{}, 0
	for _, job := range jobs {
		for _, a := range t.members(job) {
			nodes[a.node] = true
			for _, g := range a.gpus {
				held[islands.of[g]]++
				total++
			}
		}
	}
	var packed, split []string
	if want := (total + nodeSize - 1) / nodeSize; len(nodes) != want {
		packed = append(packed, fmt.Sprintf("%d GPUs are on %d nodes; %d is enough", total, len(nodes), want))
	}
	var broken []string
	size := 0
	for _, island := range slices.Sorted(maps.Keys(held)) {
		size = max(size, islands.size[island])
		if held[island] != islands.size[island] {
			broken = append(broken, fmt.Sprintf("%s (%d of %d)", island, held[island], islands.size[island]))
		}
	}
	// GPUs that do not fill their islands must break one, and need not break two.
	if size > 0 && len(broken) > min(1, total%size) {
		split = append(split, fmt.Sprintf("%d GPUs leave islands %s broken", total, strings.Join(broken, ", ")))
	}
	if total == 0 {
		packed = append(packed, "nothing was placed")
	}
	return []Check{
		result("packed", packed, count(total, "GPU")+" on "+count(len(nodes), "node")),
		result("no-pair-split", split, count(total, "GPU")+", "+count(len(broken), "island")+" in part use"),
	}
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
