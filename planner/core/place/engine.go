// Package place finds nodes and GPUs for gangs: the tightest domain that
// fits, and in it the choice that strands the least.
package place

import (
	"math/bits"

	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Engine places gangs on a state. It keeps summaries of the state for the
// requests that it meets. Not safe for concurrent use.
type Engine struct {
	Catalog  *Catalog
	State    *topo.State
	profiles map[*Request]*profile
	uses     int
	wants    []Want
	// wanted are the wants' profiles, as of a version of the state.
	wanted   []*profile
	wantedAt int
	// kids and parts are lists that one search after the other uses.
	kids  []child
	parts []share
}

// profile is a summary of the state for one request.
type profile struct {
	request *Request
	summary *topo.Summary
	version int // of the state
	built   bool
	used    int
	// filtered is Filtered's answer as long as the summary says why.
	filtered map[string]int
	why      [256]int
}

// NewEngine makes an engine that places on state.
func NewEngine(c *Catalog, state *topo.State) *Engine {
	return &Engine{Catalog: c, State: state, profiles: map[*Request]*profile{}}
}

// The summaries kept are bounded by their nodes, all together: each costs about
// 100 bytes a node.
const (
	minProfiles     = 64
	maxProfileNodes = 1 << 20
)

// profile returns the up-to-date summary for a request. It is that of the
// request without CPU, memory and disk wherever these do not matter, since GPUs
// run out first on every node.
func (e *Engine) profile(r *Request) *profile {
	if r.plain != nil {
		if p := e.profile(r.plain); p.summary.HasRoom(topo.RoomOf(r.Resources.CPUMHz, r.Resources.MemoryMiB, r.Resources.DiskMiB)) {
			return p
		}
	}
	p := e.profiles[r]
	if p == nil {
		p = e.newProfile(r)
	}
	e.uses++
	p.used = e.uses
	e.refresh(p)
	return p
}

// newProfile makes a profile, out of the one unused for longest if there are
// many.
func (e *Engine) newProfile(r *Request) *profile {
	p := &profile{}
	if len(e.profiles) >= max(minProfiles, maxProfileNodes/max(1, e.State.Len())) {
		var oldest *profile
		for _, q := range e.profiles {
			if oldest == nil || q.used < oldest.used {
				oldest = q
			}
		}
		delete(e.profiles, oldest.request)
		e.wanted = e.wanted[:0] // it may have been one of them
		p.summary = oldest.summary
	} else {
		p.summary = topo.NewSummary(e.Catalog.Tree)
	}
	p.request = r
	e.profiles[r] = p
	return p
}

func (e *Engine) refresh(p *profile) {
	if !p.built {
		p.summary.SetAll(func(node int32) topo.Fit { return e.Catalog.fit(p.request, node, e.State.Row(node)) })
		p.built, p.version = true, e.State.Version()
		return
	}
	p.version = e.State.EachChanged(p.version, func(node int32) {
		p.summary.Set(node, e.Catalog.fit(p.request, node, e.State.Row(node)))
	})
}

// Summary sums up what the state has for a request. It is valid until the
// next change of the state or the next use of the engine.
func (e *Engine) Summary(r *Request) *topo.Summary { return e.profile(r).summary }

// Filtered counts the nodes that take no member now, by reason. The answer must
// not be changed: it is given again.
func (e *Engine) Filtered(r *Request) map[string]int {
	p := e.profile(r)
	why := p.summary.Why()
	if p.filtered != nil && *why == p.why {
		return p.filtered // a request that shares its summary shares its verdicts
	}
	out := map[string]int{}
	for code, text := range whyText {
		if text != "" && why[code] > 0 {
			out[text] = why[code]
		}
	}
	for i, reason := range r.Verdicts.Reasons {
		if i > 0 && r.Verdicts.Count[i] > 0 {
			out[reason] += r.Verdicts.Count[i]
		}
	}
	p.filtered, p.why = out, *why
	return out
}

// AnyAllowed reports whether some node passes the request's constraints and
// has its devices, however few: then what it lacks is size.
func (e *Engine) AnyAllowed(r *Request) bool {
	why := e.profile(r).summary.Why()
	return e.State.Len() > why[whyRefused]+why[whyDevice]
}

// FreeGPUs counts the free GPUs that some of the requests could use.
func (e *Engine) FreeGPUs(requests []*Request) int {
	total := 0
	for node := range int32(e.State.Len()) {
		row := e.State.Row(node)
		if row.Closed || row.Owner != 0 || row.GPUs == 0 {
			continue
		}
		var usable uint64
		for _, r := range requests {
			if r.Verdicts.Eligible(int(node)) {
				if ok, mask := e.Catalog.usable(r, node); ok {
					usable |= mask
				}
			}
		}
		total += bits.OnesCount64(usable & row.GPUs)
	}
	return total
}
