package barrier

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/planner/observe"
)

// maxMissing bounds how many missing members an answer names.
const maxMissing = 16

// summary is how many have joined. It is kept for a moment, since thousands
// may ask at once.
type summary struct {
	at           time.Time
	joined, size int
	missing      []gangapi.Missing
	reason       string
}

const summaryLife = 100 * time.Millisecond

func (g *Gang) sum(now time.Time) *summary {
	if s := g.summary; s != nil && now.Sub(s.at) < summaryLife && !now.Before(s.at) {
		return s
	}
	s := &summary{at: now}
	var names []string
	if g.plan != nil {
		for i := range g.plan.Members {
			m := &g.plan.Members[i]
			s.size++
			why := g.missing(m, now)
			if why == "" {
				s.joined++
				continue
			}
			if len(s.missing) < maxMissing {
				s.missing = append(s.missing, gangapi.Missing{Group: m.Group, Index: m.Index, NodeName: m.NodeName, Why: why})
				names = append(names, m.NodeName)
			}
		}
	}
	s.reason = waiting(s, names)
	g.summary = s
	return s
}

// waiting is "waiting for gang: 3 of 4 joined, node-7 missing".
func waiting(s *summary, names []string) string {
	const named = 3
	text := fmt.Sprintf("waiting for gang: %d of %d joined", s.joined, s.size)
	names = slices.Compact(names)
	absent := s.size - s.joined
	switch {
	case absent == 0:
		return text
	case len(names) <= named && len(s.missing) == absent:
		text += ", " + strings.Join(names, ", ") + " missing"
	default:
		text += fmt.Sprintf(", %s and %d more missing", strings.Join(names[:min(named, len(names))], ", "), absent-min(named, len(names)))
	}
	if why := s.missing[0].Why; why != whyAbsent {
		text += " (" + s.missing[0].NodeName + ": " + why + ")"
	}
	return text
}

const whyAbsent = "has not joined yet"

// missing says why the others wait for a member; "" if they do not.
func (g *Gang) missing(m *Planned, now time.Time) string {
	j := g.joins[m.Alloc]
	switch {
	case m.ended():
		return "has completed, and the gang cannot start without it"
	case m.Alloc == "":
		return "is not placed yet"
	case m.State != observe.AllocPlaced:
		return fmt.Sprintf("its allocation is %s", m.State)
	case g.stays(m.Alloc):
		return ""
	case j != nil && j.req.Fault != nil:
		return "its node is unfit: " + faultText(*j.req.Fault)
	case j != nil && j.wrong != "":
		return j.wrong
	case g.waits(m.Alloc, now):
		return ""
	}
	return whyAbsent
}

// stays says whether the allocation's member is in the epoch in force, and has
// not come back to the barrier since.
func (g *Gang) stays(alloc string) bool {
	at, ok := g.inEpoch[alloc]
	if !ok || !g.running() {
		return false
	}
	j := g.joins[alloc]
	return j == nil || j.begun(g.state.Runs[at])
}
