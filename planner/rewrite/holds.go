package rewrite

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

// PinsHold says whether a job as it is in Nomad lets every group only onto the
// nodes and GPUs that the pinned job names. How that is written may differ:
// prefixes grow with the cluster, and the level that narrows the nodes first
// may be another one. Which groups are held (Hold) does not matter.
func PinsHold(cur, pinned *api.Job, c *Cluster) bool {
	x, errX := c.bare(cur, pinned)
	y, errY := c.bare(pinned, pinned)
	return errX == nil && errY == nil && gangspec.Hash(x) == gangspec.Hash(y)
}

// bare is a copy of the job in which a pin is its nodes' IDs, in order.
func (c *Cluster) bare(job, pinned *api.Job) (*api.Job, error) {
	out, err := unheld(job)
	if err != nil {
		return nil, err
	}
	c.dropLevels(out, c.nodesOf(pinned))
	for _, g := range out.TaskGroups {
		at := indexOf(g.Constraints, isMarker)
		if at < 0 {
			continue
		}
		for i, con := range g.Constraints[at:] {
			if ids, ok := c.pinnedTo(con); ok {
				g.Constraints[at+i] = api.NewConstraint(nodeIDAttribute, api.ConstraintSetContainsAny, strings.Join(ids, ","))
			}
		}
		for _, ask := range asks(g) {
			for _, con := range ask.Constraints {
				if isDevicePin(con) {
					ids := strings.Split(con.RTarget, ",")
					slices.Sort(ids)
					con.RTarget = deviceMarker + strings.Join(ids, ",")
				}
			}
		}
	}
	return out, nil
}

// nodesOf are all nodes that a pinned job names.
func (c *Cluster) nodesOf(pinned *api.Job) []string {
	var out []string
	for _, g := range pinned.TaskGroups {
		if g == nil {
			continue
		}
		if at := indexOf(g.Constraints, isMarker); at >= 0 {
			for _, con := range g.Constraints[at:] {
				ids, _ := c.pinnedTo(con)
				out = append(out, ids...)
			}
		}
	}
	return out
}

// dropLevels takes out the constraints that only narrow the nodes to those of
// a level in which all of ids are.
func (c *Cluster) dropLevels(job *api.Job, ids []string) {
	at := indexOf(job.Constraints, isMarker)
	if at < 0 {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(job.Constraints[at+1:]), func(con *api.Constraint) bool {
		key, ok := strings.CutPrefix(con.LTarget, "${meta.")
		key = strings.TrimSuffix(key, "}")
		if !ok || !slices.Contains(c.LevelKeys, key) || con.Operand != "=" && con.Operand != api.ConstraintSetContainsAny {
			return false
		}
		values := strings.Split(con.RTarget, ",")
		return !slices.ContainsFunc(ids, func(id string) bool {
			n := c.byID[id]
			return n == nil || !slices.Contains(values, n.Meta[key])
		})
	})
	// Without its marker, too: where no level helps there is none.
	job.Constraints = append(job.Constraints[:at:at], rest...)
}

// pinnedTo lists the nodes that a constraint of nodeConstraint's form allows.
func (c *Cluster) pinnedTo(con *api.Constraint) (ids []string, ok bool) {
	if con == nil || con.LTarget != nodeIDAttribute || con.Operand != api.ConstraintRegex {
		return nil, false
	}
	list, ok := strings.CutPrefix(con.RTarget, "^(")
	if list, ok = cut(list, ok); !ok {
		return nil, false
	}
	for alternative := range strings.SplitSeq(list, "|") {
		prefix, err := unquote(strings.TrimSuffix(alternative, "$"))
		if err != nil {
			return nil, false
		}
		at, _ := slices.BinarySearch(c.sorted, prefix)
		for ; at < len(c.sorted) && strings.HasPrefix(c.sorted[at], prefix); at++ {
			ids = append(ids, c.sorted[at])
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), true
}

func cut(list string, ok bool) (string, bool) {
	rest, closed := strings.CutSuffix(list, ")")
	return rest, ok && closed
}

// unquote undoes regexp.QuoteMeta; what means more than itself is an error.
func unquote(quoted string) (string, error) {
	plain := strings.ReplaceAll(quoted, `\`, "")
	if regexp.QuoteMeta(plain) != quoted {
		return "", fmt.Errorf("%q is more than a prefix", quoted)
	}
	return plain, nil
}
