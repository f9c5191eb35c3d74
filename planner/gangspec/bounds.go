package gangspec

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// bounds reads the groups' counts and elastic bounds. caravan_min and
// caravan_max in the job's meta are for a job with one group only: with
// several it would be a guess which one they mean.
func (p *parser) bounds() []Bounds {
	if len(p.job.TaskGroups) == 0 {
		p.fault("job", "group", "", "it has no task group, so there is nothing to place")
	}
	if len(p.job.TaskGroups) > 1 {
		for _, key := range []string{KeyMin, KeyMax, KeySlice} {
			if v, ok := p.job.Meta[key]; ok {
				p.fault("job", key, v, "the job has several groups; write it in the meta of the group that it is for")
			}
		}
	}
	var out []Bounds
	for _, g := range p.job.TaskGroups {
		if g != nil {
			out = append(out, p.groupBounds(g))
		}
	}
	return out
}

func (p *parser) groupBounds(g *api.TaskGroup) Bounds {
	b := Bounds{Group: deref(g.Name), Count: Count(g)}
	b.Min, b.Max = b.Count, b.Count
	if b.Count < 1 {
		p.fault(inGroup(g), "count", strconv.Itoa(b.Count), "allowed is 1 or more; to pause the job stop it, to drop the group leave it out")
		return b
	}
	if b.Count > MaxCount {
		p.fault(inGroup(g), "count", strconv.Itoa(b.Count), fmt.Sprintf("allowed is at most %d", MaxCount))
		return b
	}
	minWhere, minSet := p.bound(g, KeyMin, &b.Min)
	maxWhere, maxSet := p.bound(g, KeyMax, &b.Max)
	if minSet && b.Min > b.Count {
		p.fault(minWhere, KeyMin, strconv.Itoa(b.Min), fmt.Sprintf("allowed is at most the group's count, %d", b.Count))
	}
	if maxSet && b.Max < b.Count {
		p.fault(maxWhere, KeyMax, strconv.Itoa(b.Max), fmt.Sprintf("allowed is at least the group's count, %d", b.Count))
	}
	p.slice(g, &b)
	return b
}

// bound reads one elastic bound of a group into n, if it is set and readable.
func (p *parser) bound(g *api.TaskGroup, key string, n *int) (where string, ok bool) {
	where = inGroup(g)
	v, ok := g.Meta[key]
	if !ok && len(p.job.TaskGroups) == 1 {
		where = "job"
		v, ok = p.job.Meta[key]
	}
	if !ok {
		return where, false
	}
	v = strings.TrimSpace(v)
	parsed, err := strconv.Atoi(v)
	if err != nil || parsed < 1 || parsed > MaxCount {
		p.fault(where, key, v, fmt.Sprintf("allowed is a whole number from 1 to %d", MaxCount))
		return where, false
	}
	*n = parsed
	return where, true
}
