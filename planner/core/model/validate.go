package model

import (
	"math"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/beside"
)

// The most that a snapshot may say of one thing. They keep sums far from
// overflowing and are beyond any machine.
const (
	// MaxGPUsPerNode is the most GPUs that a node may have.
	MaxGPUsPerNode = 64
	// MaxQuantity bounds memory and disk in MiB; network file systems say that
	// they have 8 EiB.
	MaxQuantity = 1 << 50
	// MaxCPU bounds CPU in MHz and cores.
	MaxCPU = 1 << 31
	// MaxCount bounds a task group's count, and the GPUs of a device request.
	MaxCount = 1 << 20
	maxPort  = 1<<16 - 1
)

// Validate reports everything that is wrong with a snapshot, as one error for
// each fault, joined. Whether its jobs can be placed is another matter.
func (s *Snapshot) Validate() error { return s.ValidateAnd(nil) }

// ValidateAnd is Validate. Once it is known that every node is right by itself it
// calls meanwhile beside its own work, if that is not nil, and does not return
// before it has. Nodes may still be two of one name, and all else may be wrong.
func (s *Snapshot) ValidateAnd(meanwhile func()) error {
	var f faults
	s.validate(&f, meanwhile)
	return f.join()
}

// validate returns where each GPU is.
func (s *Snapshot) validate(f *faults, meanwhile func()) *owners {
	if s.Version != 0 && s.Version != SnapshotVersion {
		f.add("version: %d: want %d", s.Version, SnapshotVersion)
	}
	levels := s.validateLevels(f)
	owner := newOwners(s.Nodes)
	wrong := s.validateEachNode(f, levels, owner)
	if meanwhile != nil && len(f.told) == 0 && len(wrong) == 0 {
		defer beside.Do(meanwhile)()
	}
	var ofJobs faults
	ofJobs.silent = f.silent
	nodes := s.numberNodes()
	wait := beside.DoIf(len(s.Nodes) >= manyNodes, func() { s.validateJobs(&ofJobs, levels, nodes) })
	s.validateNames(f, nodes, owner, wrong)
	wait()
	f.take(&ofJobs)
	s.validateQueues(f)
	s.validateReservations(f)
	s.validateRegions(f)
	s.Burst.validate(f, levels)
	s.History.validate(f)
	s.validateAllocs(f, nodes, owner)
	return owner
}

func (s *Snapshot) validateLevels(f *faults) map[string]bool {
	levels := map[string]bool{}
	list := s.Levels
	if len(list) == 0 {
		list = DefaultLevels
	}
	for i, level := range list {
		switch {
		case level == "" || level == LevelNode || level == LevelIsland:
			f.add("levels[%d]: %q: want the name of a level above the node", i, level)
		case levels[level]:
			f.add("levels[%d]: %q: is listed before; want each once", i, level)
		}
		levels[level] = true
	}
	return levels
}

func (r Resources) possible() bool {
	return min(r.CPUMHz, r.Cores, r.MemoryMiB, r.DiskMiB) >= 0 && max(r.CPUMHz, r.Cores) <= MaxCPU && max(r.MemoryMiB, r.DiskMiB) <= MaxQuantity
}

// faults reports what makes it impossible.
func (r Resources) faults(f *faults, where string, args ...any) {
	for _, q := range []struct {
		name       string
		value, max int
	}{{"cpu_mhz", r.CPUMHz, MaxCPU}, {"cores", r.Cores, MaxCPU}, {"memory_mib", r.MemoryMiB, MaxQuantity}, {"disk_mib", r.DiskMiB, MaxQuantity}} {
		if q.value < 0 || q.value > q.max {
			f.add(where+".%s: %d: want 0 to %d", append(args, q.name, q.value, q.max)...)
		}
	}
}

type jobKey struct{ namespace, id string }

func (s *Snapshot) validateJobs(f *faults, levels map[string]bool, nodes map[string]int) {
	seen := make(map[jobKey]int, len(s.Jobs))
	for i := range s.Jobs {
		j := &s.Jobs[i]
		key := jobKey{j.Namespace, j.ID}
		if first, dup := seen[key]; !dup {
			seen[key] = i
		} else if j.ID != "" {
			f.add("jobs[%d].id: %q in namespace %q: is jobs[%d]'s too; want unique IDs", i, j.ID, j.Namespace, first)
		}
		j.validate(f, i, levels)
		for k := range j.Members {
			m := &j.Members[k]
			if _, known := nodes[m.Node]; !known {
				f.add("jobs[%d] (%s).members[%d].node: %q: is no node of the snapshot", i, j.ID, k, m.Node)
			}
		}
	}
}

// validate checks one job by itself.
func (j *Job) validate(f *faults, i int, levels map[string]bool) {
	if j.ID == "" {
		f.add("jobs[%d].id: empty: want the job's ID", i)
	}
	switch j.State {
	case StateQueued, StateAdmitted, StateRunning, StateStopping:
	default:
		f.add("jobs[%d] (%s).state: %q: want %q, %q, %q or %q", i, j.ID, j.State, StateQueued, StateAdmitted, StateRunning, StateStopping)
	}
	switch j.Gang {
	case "", GangJob, GangGroup, GangNone:
	default:
		f.add("jobs[%d] (%s).gang: %q: want %q, %q or %q", i, j.ID, j.Gang, GangJob, GangGroup, GangNone)
	}
	switch j.Topology.Mode {
	case "", TopologyRequire, TopologyPrefer:
	default:
		f.add("jobs[%d] (%s).topology.mode: %q: want %q or %q", i, j.ID, j.Topology.Mode, TopologyRequire, TopologyPrefer)
	}
	switch j.Preempt {
	case "", PreemptCheckpoint, PreemptAlways, PreemptNever:
	default:
		f.add("jobs[%d] (%s).preempt: %q: want %q, %q or %q", i, j.ID, j.Preempt, PreemptCheckpoint, PreemptAlways, PreemptNever)
	}
	j.validateService(f, i)
	j.validateEstimate(f, i)
	if p := j.Promised; p != nil && (p.GPUs < 0 || p.GPUs > MaxQuantity) {
		f.add("jobs[%d] (%s).promised.gpus: %d: want 0 (unknown) to %d", i, j.ID, p.GPUs, MaxQuantity)
	}
	if j.CheckpointGiB < 0 || j.CheckpointGiB > MaxQuantity {
		f.add("jobs[%d] (%s).checkpoint_gib: %d: want 0 (unknown) to %d", i, j.ID, j.CheckpointGiB, MaxQuantity)
	}
	switch j.Collective {
	case "", CollectiveRing, CollectiveAllToAll:
	default:
		f.add("jobs[%d] (%s).collective: %q: want %q or %q", i, j.ID, j.Collective, CollectiveRing, CollectiveAllToAll)
	}
	level := j.Topology.Level
	if level != "" && level != LevelNode && level != LevelIsland && !levels[level] {
		f.add("jobs[%d] (%s).topology.level: %q: want %q, %q or one of the snapshot's levels", i, j.ID, level, LevelIsland, LevelNode)
	}
	if level == "" && j.Topology.Mode == TopologyRequire {
		f.add("jobs[%d] (%s).topology.level: empty: want the level that is required", i, j.ID)
	}
	j.validateModels(f, i)
	j.validateSpeed(f, i)
	j.validateUsage(f, i)
	groups := make(map[string]*TaskGroup, len(j.Groups))
	for k := range j.Groups {
		g := &j.Groups[k]
		if groups[g.Name] != nil {
			f.add("jobs[%d] (%s).groups[%d].name: %q: is another group's too; want unique names", i, j.ID, k, g.Name)
		}
		groups[g.Name] = g
		g.validate(f, i, k, j.ID, levels)
	}
	j.validateMembers(f, i, groups)
	j.validateMoving(f, i, groups)
	j.validateBurst(f, i)
}

func (j *Job) validateModels(f *faults, i int) {
	if len(j.Models) > MaxModels {
		f.add("jobs[%d] (%s).models: %d models: want at most %d", i, j.ID, len(j.Models), MaxModels)
	}
	seen := make(map[string]bool, len(j.Models))
	for k, m := range j.Models {
		switch {
		case m.Name == "":
			f.add("jobs[%d] (%s).models[%d].name: empty: want a GPU's model", i, j.ID, k)
		case seen[m.Name]:
			f.add("jobs[%d] (%s).models[%d].name: %q: is listed before; want each once", i, j.ID, k, m.Name)
		}
		seen[m.Name] = true
		if !(m.Speed > 0 && m.Speed <= math.MaxFloat32) { // NaN too
			f.add("jobs[%d] (%s).models[%d].speed: %g: want above 0, at most 3.4e38", i, j.ID, k, m.Speed)
		}
	}
}

func (g *TaskGroup) validate(f *faults, i, at int, job string, levels map[string]bool) {
	for _, q := range []struct {
		name  string
		value int
	}{{"count", g.Count}, {"min", g.Min}, {"max", g.Max}} {
		if q.value < 0 || q.value > MaxCount {
			f.add("jobs[%d] (%s).groups[%d] (%s).%s: %d: want 0 to %d", i, job, at, g.Name, q.name, q.value, MaxCount)
		}
	}
	if !g.Resources.possible() {
		g.Resources.faults(f, "jobs[%d] (%s).groups[%d] (%s).resources", i, job, at, g.Name)
	}
	if s := g.Slice; s != (Slice{}) {
		if s.Size < 2 || s.Size > MaxCount || g.Count%s.Size != 0 {
			f.add("jobs[%d] (%s).groups[%d] (%s).slice.size: %d: want 2 or more that divides the count, %d", i, job, at, g.Name, s.Size, g.Count)
		}
		if s.Level == LevelIsland || s.Level != LevelNode && !levels[s.Level] {
			f.add("jobs[%d] (%s).groups[%d] (%s).slice.level: %q: want %q or one of the snapshot's levels", i, job, at, g.Name, s.Level, LevelNode)
		}
	}
	for k, p := range g.Ports {
		if p < 1 || p > maxPort {
			f.add("jobs[%d] (%s).groups[%d] (%s).ports[%d]: %d: want 1 to %d", i, job, at, g.Name, k, p, maxPort)
		}
	}
	for k, d := range g.Devices {
		switch d.Shared {
		case "", SharedAllow, SharedOnly:
		default:
			f.add("jobs[%d] (%s).groups[%d] (%s).devices[%d].shared: %q: want %q or %q", i, job, at, g.Name, k, d.Shared, SharedAllow, SharedOnly)
		}
		if d.Count < 0 || d.Count > MaxCount {
			f.add("jobs[%d] (%s).groups[%d] (%s).devices[%d].count: %d: want 0 to %d", i, job, at, g.Name, k, d.Count, MaxCount)
		}
		if strings.TrimSpace(d.Name) == "" {
			f.add("jobs[%d] (%s).groups[%d] (%s).devices[%d].name: empty: want TYPE, VENDOR/TYPE or VENDOR/TYPE/MODEL", i, job, at, g.Name, k)
		}
	}
}

func (j *Job) validateMembers(f *faults, i int, groups map[string]*TaskGroup) {
	type place struct {
		group string
		index int
	}
	seen := make(map[place]bool, len(j.Members))
	for k := range j.Members {
		m := &j.Members[k]
		if groups[m.Group] == nil {
			f.add("jobs[%d] (%s).members[%d].group: %q: is none of the job's groups", i, j.ID, k, m.Group)
		}
		if m.Index < 0 || m.Index > MaxCount {
			f.add("jobs[%d] (%s).members[%d].index: %d: want 0 to %d", i, j.ID, k, m.Index, MaxCount)
		}
		for _, n := range []struct {
			name  string
			value *int64
		}{{"since_checkpoint_s", m.SinceCheckpoint}, {"checkpoint_step", m.CheckpointStep}, {"step", m.Step}} {
			if n.value != nil && *n.value < 0 {
				f.add("jobs[%d] (%s).members[%d].%s: %d: want 0 or more", i, j.ID, k, n.name, *n.value)
			}
		}
		if seen[place{m.Group, m.Index}] {
			f.add("jobs[%d] (%s).members[%d]: group %q index %d: is listed before; want each once", i, j.ID, k, m.Group, m.Index)
		}
		seen[place{m.Group, m.Index}] = true
	}
}

func (s *Snapshot) validateAllocs(f *faults, nodes map[string]int, owner *owners) {
	seen := make(map[string]int, len(s.Allocs))
	holder := make([]int32, owner.len()) // by GPU number: the alloc's index + 1
	for i := range s.Allocs {
		a := &s.Allocs[i]
		if first, dup := seen[a.ID]; !dup {
			seen[a.ID] = i
		} else if a.ID != "" {
			f.add("allocs[%d].id: %q: is allocs[%d]'s too; want unique IDs", i, a.ID, first)
		}
		a.validate(f, i)
		at, known := nodes[a.Node]
		if !known {
			f.add("allocs[%d] (%s).node: %q: is no node of the snapshot", i, a.ID, a.Node)
			continue
		}
		for k, uuid := range a.GPUs {
			// A GPU that its node no longer lists may still be held: it is gone
			// and cannot be given to anyone.
			on, listed := owner.findNear(at, uuid)
			if !listed {
				continue
			}
			if int(on.node) != at {
				f.add("allocs[%d] (%s).gpus[%d]: %q: is on node %q, not on %q", i, a.ID, k, uuid, s.Nodes[on.node].ID, a.Node)
			}
			if a.Stopping || a.Lost {
				continue
			}
			if first := holder[on.number]; first != 0 {
				f.add("allocs[%d] (%s).gpus[%d]: %q: is held by alloc %q too; want one holder", i, a.ID, k, uuid, s.Allocs[first-1].ID)
			}
			holder[on.number] = int32(i + 1)
		}
	}
}

func (a *Alloc) validate(f *faults, i int) {
	if a.ID == "" {
		f.add("allocs[%d].id: empty: want the allocation's ID", i)
	}
	if a.Index < 0 || a.Index > MaxCount {
		f.add("allocs[%d] (%s).index: %d: want 0 to %d", i, a.ID, a.Index, MaxCount)
	}
	if !a.Resources.possible() {
		a.Resources.faults(f, "allocs[%d] (%s).resources", i, a.ID)
	}
	for k, p := range a.Ports {
		if p < 1 || p > maxPort {
			f.add("allocs[%d] (%s).ports[%d]: %d: want 1 to %d", i, a.ID, k, p, maxPort)
		}
	}
}
