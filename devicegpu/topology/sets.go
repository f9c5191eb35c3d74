package topology

// sets is a union-find over 0…n-1.
type sets []int

func newSets(n int) sets {
	s := make(sets, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func (s sets) find(i int) int {
	for s[i] != i {
		s[i] = s[s[i]]
		i = s[i]
	}
	return i
}

// join keeps the smallest member as the set's root.
func (s sets) join(i, j int) {
	i, j = s.find(i), s.find(j)
	s[max(i, j)] = min(i, j)
}

// groups returns the sets, ordered by their smallest member.
func (s sets) groups() [][]int {
	place := make(map[int]int, len(s))
	var out [][]int
	for i := range s {
		root := s.find(i)
		at, ok := place[root]
		if !ok {
			at = len(out)
			place[root] = at
			out = append(out, nil)
		}
		out[at] = append(out[at], i)
	}
	return out
}

// GroupSwitches sets the switch groups from the links between GPUs and the
// paths to NICs; NVLinks are to be added after it where the PCIe paths between
// GPUs are known.
func (m *Matrix) GroupSwitches() { m.groupSwitches(nil) }

// groupSwitches numbers the sets of GPUs and NICs that reach one another
// below the host bridge. NICs count too: where NVLink hides the PCIe path
// between two GPUs, a NIC near both of them shows it.
func (m *Matrix) groupSwitches(nicLinks [][]Kind) {
	n := len(m.GPUs)
	s := newSets(n + len(m.NICs))
	for i, row := range m.Links {
		for j, l := range row {
			if l.Kind.sharesSwitch() {
				s.join(i, j)
			}
		}
	}
	for i, row := range m.NICPaths {
		for j, k := range row {
			if k.sharesSwitch() {
				s.join(i, n+j)
			}
		}
	}
	for i, row := range nicLinks {
		for j, k := range row {
			if k.sharesSwitch() {
				s.join(n+i, n+j)
			}
		}
	}
	next := 0
	for _, group := range s.groups() {
		// Numbers go to groups with a GPU: NICs alone concern no GPU.
		if len(group) < 2 || group[0] >= n {
			continue
		}
		for _, i := range group {
			if i < n {
				m.GPUs[i].Switch = next
			} else {
				m.NICs[i-n].Switch = next
			}
		}
		next++
	}
}
