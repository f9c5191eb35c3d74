package devrun

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
)

// sighting is one change that the event stream showed: of an allocation or of
// a job.
type sighting struct {
	// at is the time since the run began, index the Raft index. Changes with
	// one index happened at once.
	at    time.Duration
	index uint64
	alloc *allocState
	job   *jobState
}

// allocState is an allocation at one moment.
type allocState struct {
	id, name        string
	namespace, job  string
	group           string
	node            string
	gpus            []string // sorted
	desired, client string
	// previous is the allocation that this one takes the place of.
	previous string
}

// jobState is a job at one moment.
type jobState struct {
	namespace, id string
	version       uint64
	// modify is the index of its last registration.
	modify uint64
	gated  bool
	pinned bool
	stop   bool
}

// holds says whether the allocation holds its GPUs: until its client says that
// it has ended. A lost one holds nothing that could be given away twice by
// Nomad, and is judged by the scenario that loses nodes.
func (a *allocState) holds() bool {
	switch a.client {
	case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return false
	}
	return true
}

// awaits says whether the allocation has not begun because it takes the place
// of the other one: Nomad's clients start it when that one has ended.
func (a *allocState) awaits(other *allocState) bool {
	return a.client == api.AllocClientStatusPending && a.previous == other.id
}

// placed says whether the allocation counts as a member of its gang: it is to
// run and has not ended, or it ended as it should.
func (a *allocState) placed() bool {
	return a.desired == api.AllocDesiredStatusRun && a.holds() || a.completed()
}

func (a *allocState) completed() bool {
	return a.desired == api.AllocDesiredStatusRun && a.client == api.AllocClientStatusComplete
}

func (a *allocState) running() bool {
	return a.desired == api.AllocDesiredStatusRun && a.client == api.AllocClientStatusRunning
}

// timeline is everything that was seen, in order.
type timeline []sighting

// moments replays the timeline: visit is called once per index, with every
// allocation as it was then. The map is the same one each time.
func (t timeline) moments(visit func(at time.Duration, index uint64, allocs map[string]*allocState)) {
	allocs := map[string]*allocState{}
	for i, s := range t {
		if s.alloc != nil {
			allocs[s.alloc.id] = s.alloc
		}
		if i == len(t)-1 || t[i+1].index != s.index {
			visit(s.at, s.index, allocs)
		}
	}
}

// last returns the job's allocations as they are at the end, by name and then
// ID.
func (t timeline) last(job string) []*allocState {
	allocs := map[string]*allocState{}
	for _, s := range t {
		if s.alloc != nil && s.alloc.job == job {
			allocs[s.alloc.id] = s.alloc
		}
	}
	out := make([]*allocState, 0, len(allocs))
	for _, a := range allocs {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *allocState) int {
		return slices.Compare([]string{a.name, a.id}, []string{b.name, b.id})
	})
	return out
}

// members returns those of last that count as members of the gang.
func (t timeline) members(job string) []*allocState {
	return slices.DeleteFunc(t.last(job), func(a *allocState) bool { return !a.placed() })
}

// runningMembers counts the members that run or have completed.
func (t timeline) runningMembers(job string) int {
	n := 0
	for _, a := range t.last(job) {
		if a.running() || a.completed() {
			n++
		}
	}
	return n
}

// versions returns the job's registrations in order.
func (t timeline) versions(job string) []sighting {
	var out []sighting
	for _, s := range t {
		if s.job == nil || s.job.id != job {
			continue
		}
		if n := len(out); n == 0 || out[n-1].job.version != s.job.version || out[n-1].job.modify != s.job.modify {
			out = append(out, s)
		}
	}
	return out
}

// firstPlaced returns when the job's first allocation was made.
func (t timeline) firstPlaced(job string) (time.Duration, bool) {
	for _, s := range t {
		if s.alloc != nil && s.alloc.job == job {
			return s.at, true
		}
	}
	return 0, false
}

// index returns the newest index that was seen; 0 before anything was.
func (t timeline) index() uint64 {
	if len(t) == 0 {
		return 0
	}
	return t[len(t)-1].index
}

// heldUntil returns the last index at which the job still held everything that
// it had: before the first of its allocations ended.
func (t timeline) heldUntil(job string) uint64 {
	var last uint64
	for _, s := range t {
		if s.alloc != nil && s.alloc.job == job && !s.alloc.holds() {
			return last
		}
		last = s.index
	}
	return last
}
