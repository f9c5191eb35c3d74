package rewrite

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
)

// ErrPlacement is wrapped by every refusal of Pin: the members do not make a
// placement of this job on this cluster.
var ErrPlacement = errors.New("not a placement of this job")

// Place names a member of a job.
type Place struct {
	Group string
	Index int
}

// Pin returns the user's job rewritten so that Nomad places exactly these
// members. It is made from the original, never from the job as it is in
// Nomad: a gate of the user's own goes, everything else of the user's stays.
//
// A job whose gang is the whole job must be placed whole, one whose gangs are
// its groups group by group; what has no place yet keeps a gate of its own.
// done are members of a batch job that have ended: they are left out, since
// Nomad would run them again.
func Pin(orig *api.Job, members []model.Member, c *Cluster, done ...Place) (*api.Job, error) {
	return Repin(nil, orig, members, c, done...)
}

// Repin is Pin for a job of which members run already in the form that cur
// has: where cur lists a group's GPUs they are listed again, and where it does
// not they are not, whatever the nodes show at this moment. Devices vanish
// while a plugin restarts, and a member whose list comes or goes is restarted.
func Repin(cur, orig *api.Job, members []model.Member, c *Cluster, done ...Place) (*api.Job, error) {
	return repin(cur, orig, members, nil, c, done)
}

// repin is Repin with canaries beside the members.
func repin(cur, orig *api.Job, members, canaries []model.Member, c *Cluster, done []Place) (*api.Job, error) {
	job, err := Strip(orig, nil)
	if err != nil {
		return nil, err
	}
	// Faults elsewhere in the contract do not matter here.
	spec, _ := gangspec.Parse(orig)
	p := &pinner{job: job, cluster: c, gang: spec.Gang, bounds: spec.Groups, listed: listed(cur), forms: forms(cur)}
	if err := p.sort(members, done); err != nil {
		return nil, err
	}
	if err := p.sortCanaries(members, canaries); err != nil {
		return nil, err
	}
	if level := c.levelConstraint(p.nodes); level != nil {
		job.Constraints = append(job.Constraints, marker(), level)
	}
	var groups []*api.TaskGroup
	for _, g := range job.TaskGroups {
		beside, err := p.canaryGroups(g)
		if err != nil {
			return nil, err
		}
		pinned, err := p.group(g)
		if err != nil {
			return nil, err
		}
		groups = append(append(groups, pinned...), beside...)
	}
	job.TaskGroups = groups
	identify(groups, mayRun(cur))
	if p.gang == model.GangJob {
		// A plan that another scheduler's work has made partly impossible is
		// then refused whole.
		job.AllAtOnce = new(true)
	}
	watchHealth(orig, job)
	calmUpdates(job)
	return job, nil
}

// maxFaults is how many faults of a placement Pin names.
const maxFaults = 12

type pinner struct {
	job     *api.Job
	cluster *Cluster
	gang    model.Gang
	bounds  []gangspec.Bounds
	members map[string][]model.Member
	done    map[string][]int
	nodes   []string
	// beside pins the canaries.
	beside *pinner
	// listed says of the groups that are pinned already whether their GPUs are
	// listed.
	listed map[string]bool
	// forms are the groups that are pinned already.
	forms map[string]*api.TaskGroup
}

func listed(cur *api.Job) map[string]bool {
	if cur == nil {
		return nil
	}
	out := map[string]bool{}
	for _, g := range cur.TaskGroups {
		if g == nil || !hasMarker(g.Constraints) {
			continue
		}
		out[nameOf(g)] = slices.ContainsFunc(asks(g), func(ask *api.RequestedDevice) bool {
			return ask != nil && slices.ContainsFunc(ask.Constraints, isDevicePin)
		})
	}
	return out
}

func isDevicePin(c *api.Constraint) bool {
	return c != nil && c.LTarget == deviceIDAttribute && strings.HasPrefix(c.RTarget, deviceMarker)
}

// sort puts the members to their groups, by index, and finds every fault.
func (p *pinner) sort(members []model.Member, done []Place) error {
	p.members, p.done = map[string][]model.Member{}, map[string][]int{}
	var faults []string
	taken, gpus := map[Place]bool{}, map[string]Place{}
	place := func(at Place) {
		switch g := lookup(p.job, at.Group); {
		case g == nil:
			faults = append(faults, fmt.Sprintf("there is no group %q", at.Group))
		case at.Index < 0 || at.Index >= p.limit(g):
			faults = append(faults, fmt.Sprintf("group %q has %d members, index %d is not one of them", at.Group, p.limit(g), at.Index))
		case taken[at]:
			faults = append(faults, fmt.Sprintf("member %d of group %q is named twice", at.Index, at.Group))
		}
		taken[at] = true
	}
	for _, m := range members {
		at := Place{m.Group, m.Index}
		place(at)
		if p.cluster.byID[m.Node] == nil {
			faults = append(faults, fmt.Sprintf("member %d of group %q: there is no node %q", m.Index, m.Group, m.Node))
		}
		for _, gpu := range m.GPUs {
			if other, ok := gpus[gpu]; ok {
				faults = append(faults, fmt.Sprintf("GPU %s is given to member %d of group %q and to member %d of group %q", gpu, other.Index, other.Group, m.Index, m.Group))
			}
			gpus[gpu] = at
		}
		if g := lookup(p.job, m.Group); g != nil {
			faults = append(faults, lists(g, m)...)
		}
		p.members[m.Group] = append(p.members[m.Group], m)
		p.nodes = append(p.nodes, m.Node)
	}
	for _, d := range done {
		place(d)
		p.done[d.Group] = append(p.done[d.Group], d.Index)
	}
	faults = append(faults, p.incomplete()...)
	if len(faults) > 0 {
		if more := len(faults) - maxFaults; more > 0 {
			faults = append(faults[:maxFaults], fmt.Sprintf("and %d more", more))
		}
		return fmt.Errorf("pin job %q: %w: %s", orEmpty(p.job.ID), ErrPlacement, strings.Join(faults, "; "))
	}
	for _, list := range p.members {
		slices.SortFunc(list, func(a, b model.Member) int { return a.Index - b.Index })
	}
	return nil
}

// incomplete finds gangs of which only a part is placed.
func (p *pinner) incomplete() []string {
	var faults []string
	for _, g := range p.job.TaskGroups {
		name := nameOf(g)
		placed, done, want := len(p.members[name]), len(p.done[name]), gangspec.Count(g)
		switch {
		case p.gang == model.GangNone || placed+done == want && (placed == 0 || done == 0):
		case done == 0 && p.resized(g, p.members[name]):
		case p.gang == model.GangGroup && placed+done == 0:
		case done > 0:
			faults = append(faults, fmt.Sprintf("%d of the %d members of group %q have ended, and a gang cannot be placed in part", done, want, name))
		default:
			faults = append(faults, fmt.Sprintf("%d of the %d members of group %q are placed, and a gang is placed whole", placed, want, name))
		}
	}
	return faults
}

// group returns what becomes of one of the user's groups.
func (p *pinner) group(g *api.TaskGroup) ([]*api.TaskGroup, error) {
	name := nameOf(g)
	members, done := p.members[name], p.done[name]
	switch {
	case len(members)+len(done) == 0:
		g.Constraints = append(g.Constraints, gate())
		return []*api.TaskGroup{g}, nil
	case p.gang != model.GangNone && len(members) > 0 && !p.shares(members) && inOneSlot(members):
		inSlot(p.job, g, members[0].Slot)
		p.pin(g, members)
		return []*api.TaskGroup{g}, nil
	}
	var out []*api.TaskGroup
	alone := p.alone(g)
	for _, m := range members {
		own, err := p.ownGroup(g, m, alone && m.Index == 0)
		if err != nil {
			return nil, err
		}
		out = append(out, own)
	}
	if rest := gangspec.Count(g) - len(members) - len(done); rest > 0 || len(members) == 0 {
		if lookup(&api.Job{TaskGroups: out}, name) != nil {
			g.Name = new(restName(p.job, name))
			setMeta(g, gangspec.KeyGroup, name)
		}
		setMeta(g, gangspec.KeyCount, strconv.Itoa(gangspec.Count(g)))
		g.Count, g.Scaling = new(max(rest, 0)), nil
		g.Constraints = append(g.Constraints, gate())
		out = append(out, g)
	}
	return out, nil
}

// ownGroup is the group of one member: one that is split off, where members
// are placed, and end, one by one; or where two are on one node, where Nomad
// would hand out the union of their GPUs at random.
func (p *pinner) ownGroup(g *api.TaskGroup, m model.Member, alone bool) (*api.TaskGroup, error) {
	if alone {
		own, err := copyGroup(g)
		if err == nil {
			inSlot(p.job, own, m.Slot)
			p.pin(own, []model.Member{m})
		}
		return own, err
	}
	own, err := splitOff(p.job, g, m.Index)
	if err != nil {
		return nil, err
	}
	inSlot(p.job, own, m.Slot)
	total := gangspec.Count(g)
	placed := p.metaCount(nameOf(own), total)
	setMeta(own, gangspec.KeyCount, placed)
	p.pin(own, []model.Member{m})
	if placed != strconv.Itoa(total) {
		own.Constraints = append(own.Constraints, countIs(total))
	}
	return own, nil
}

// pin appends Caravan's constraints to a group whose members have a node of
// their own each.
func (p *pinner) pin(g *api.TaskGroup, members []model.Member) {
	g.Constraints = append(g.Constraints, marker())
	if len(members) > 1 {
		g.Constraints = append(g.Constraints, api.NewConstraint("", api.ConstraintDistinctHosts, "true"))
	}
	var nodes []string
	for _, m := range members {
		nodes = append(nodes, m.Node)
	}
	g.Constraints = append(g.Constraints, p.cluster.nodeConstraint(nodes))
	p.size(g, len(members))
	if !p.lists(nameOf(g), members) {
		return
	}
	for k, ask := range asks(g) {
		var ids []string
		for _, m := range members {
			ids = append(ids, ofAsk(m, k)...)
		}
		if len(ids) > 0 {
			ask.Constraints = append(ask.Constraints, api.NewConstraint(deviceIDAttribute,
				api.ConstraintSetContainsAny, deviceMarker+strings.Join(ids, ",")))
		}
	}
}

// whole says whether a member needs no list of GPUs: it takes all that its
// node has, for one request.
func (p *pinner) whole(m model.Member) bool {
	requests := 0
	for _, ids := range m.Tasks {
		if len(ids) > 0 {
			requests++
		}
	}
	return len(m.GPUs) == 0 || len(m.GPUs) == p.cluster.byID[m.Node].GPUs && requests <= 1
}

// asks are a group's device requests in the order of model.TaskGroup.Devices.
func asks(g *api.TaskGroup) []*api.RequestedDevice {
	var out []*api.RequestedDevice
	for _, t := range g.Tasks {
		if t.Resources != nil {
			out = append(out, t.Resources.Devices...)
		}
	}
	return out
}

// ofAsk are the GPUs that a member has for its k-th request.
func ofAsk(m model.Member, k int) []string {
	switch {
	case k < len(m.Tasks):
		return m.Tasks[k]
	case len(m.Tasks) == 0 && k == 0:
		return m.GPUs
	}
	return nil
}

// lists finds GPUs that do not go with the group's device requests.
func lists(g *api.TaskGroup, m model.Member) []string {
	n := len(asks(g))
	switch {
	case len(m.Tasks) > n || len(m.GPUs) > 0 && n == 0:
		return []string{fmt.Sprintf("member %d of group %q has GPUs for more device requests than the group's %d", m.Index, m.Group, n)}
	case len(m.Tasks) == 0 && len(m.GPUs) > 0 && n > 1:
		return []string{fmt.Sprintf("member %d of group %q has GPUs, but not which are for which of the group's %d device requests", m.Index, m.Group, n)}
	}
	return nil
}
