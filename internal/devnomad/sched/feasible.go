package sched

import (
	"fmt"
	"path"
	"strconv"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// candidates are the nodes that a job may use at all, and how many of them
// there are by datacenter.
func (r *run) candidates(job *api.Job) ([]*state.Node, map[string]int) {
	var out []*state.Node
	byDC := map[string]int{}
	for _, n := range r.st.Nodes() {
		if n.Ready() && inDatacenters(n, job.Datacenters) && inPool(n, deref(job.NodePool)) {
			out = append(out, n)
			byDC[n.Datacenter]++
		}
	}
	return out, byDC
}

func inDatacenters(n *state.Node, globs []string) bool {
	for _, g := range globs {
		if ok, err := path.Match(g, n.Datacenter); err == nil && ok {
			return true
		}
	}
	return false
}

func inPool(n *state.Node, pool string) bool {
	return pool == "" || pool == api.NodePoolAll || pool == n.NodePool
}

// feasible says whether a node may run a group, whatever else it runs. It
// goes through the cache of computed classes.
func (r *run) feasible(job *api.Job, tg *api.TaskGroup, n *state.Node, m *metrics) bool {
	e := r.eligible
	if e.jobVerdict(n.ComputedClass) == ineligible {
		filter(m, n, "computed class ineligible")
		return false
	}
	if !satisfies(r.re, job.Constraints, n, m) {
		e.setJob(n.ComputedClass, ineligible)
		return false
	}
	e.setJob(n.ComputedClass, eligible)
	switch e.groupVerdict(*tg.Name, n.ComputedClass) {
	case ineligible:
		filter(m, n, "computed class ineligible")
		return false
	case eligible:
		return r.distinct(job, tg, n, m)
	}
	if !groupFeasible(r.re, tg, n, m) {
		e.setGroup(*tg.Name, n.ComputedClass, ineligible)
		return false
	}
	e.setGroup(*tg.Name, n.ComputedClass, eligible)
	return r.distinct(job, tg, n, m)
}

// groupFeasible runs the checks that are cached by class.
func groupFeasible(re regexps, tg *api.TaskGroup, n *state.Node, m *metrics) bool {
	for _, t := range tg.Tasks {
		if d := n.Drivers[t.Driver]; d == nil || !d.Detected || !d.Healthy {
			filter(m, n, "missing drivers")
			return false
		}
	}
	if !satisfies(re, groupConstraints(tg), n, m) {
		return false
	}
	var asks []*api.RequestedDevice
	for _, t := range tg.Tasks {
		asks = append(asks, t.Resources.Devices...)
	}
	if len(asks) > 0 && !hasDevices(re, n.NodeResources.Devices, asks) {
		filter(m, n, "missing devices")
		return false
	}
	if len(tg.Networks) > 0 && !hasNetwork(n, tg.Networks[0].Mode) {
		filter(m, n, "missing network")
		return false
	}
	return true
}

func hasNetwork(n *state.Node, mode string) bool {
	if mode == "none" {
		return true
	}
	if mode == "" {
		mode = "host"
	}
	for _, nw := range n.NodeResources.Networks {
		if nw.Mode == mode {
			return true
		}
	}
	return false
}

func satisfies(re regexps, cs []*api.Constraint, n *state.Node, m *metrics) bool {
	for _, c := range cs {
		if !meets(re, c, n) {
			filter(m, n, constraintText(c))
			return false
		}
	}
	return true
}

// distinct decides distinct_hosts and distinct_property, which look at the
// other allocations of the job and are never cached.
func (r *run) distinct(job *api.Job, tg *api.TaskGroup, n *state.Node, m *metrics) bool {
	jobWide, groupWide := distinctHosts(job.Constraints), distinctHosts(tg.Constraints)
	eachNode := r.eval.Type == api.JobTypeSystem || r.eval.Type == api.JobTypeSysbatch
	if (jobWide || groupWide) && !eachNode { // those that go to every node do not look at it
		for _, a := range r.proposed.on(n.ID) {
			same := a.JobID == *job.ID && a.Namespace == *job.Namespace
			if same && (jobWide || a.TaskGroup == *tg.Name) {
				filter(m, n, api.ConstraintDistinctHosts)
				return false
			}
		}
	}
	for _, c := range job.Constraints {
		if c.Operand == api.ConstraintDistinctProperty && !r.distinctProperty(c, "", n, m) {
			return false
		}
	}
	for _, c := range tg.Constraints {
		if c.Operand == api.ConstraintDistinctProperty && !r.distinctProperty(c, *tg.Name, n, m) {
			return false
		}
	}
	return true
}

func distinctHosts(cs []*api.Constraint) bool {
	for _, c := range cs {
		if c.Operand == api.ConstraintDistinctHosts {
			on, err := strconv.ParseBool(c.RTarget)
			return c.RTarget == "" || err != nil || on
		}
	}
	return false
}

func (r *run) distinctProperty(c *api.Constraint, group string, n *state.Node, m *metrics) bool {
	value, ok := resolve(c.LTarget, n)
	if !ok {
		filter(m, n, fmt.Sprintf("missing property %q", c.LTarget))
		return false
	}
	allowed := 1
	if c.RTarget != "" {
		v, err := strconv.Atoi(c.RTarget)
		if err != nil {
			filter(m, n, fmt.Sprintf("failed to convert RTarget %q to uint64", c.RTarget))
			return false
		}
		allowed = v
	}
	used := 0
	for _, other := range r.st.Nodes() {
		if v, ok := resolve(c.LTarget, other); !ok || v != value {
			continue
		}
		for _, a := range r.proposed.on(other.ID) {
			if a.JobID == r.key.ID && a.Namespace == r.key.Namespace && (group == "" || a.TaskGroup == group) {
				used++
			}
		}
	}
	if used >= allowed {
		filter(m, n, fmt.Sprintf("distinct_property: %s=%s used by %d allocs", c.LTarget, value, used))
		return false
	}
	return true
}
