package recording

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/feasible"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Scrub takes all names out of a recording: of jobs, groups, queues, users,
// nodes, domains, GPUs, and every attribute and text. What is left is what a
// decision depends on: shapes, numbers, times, the hardware's names, and which
// names are the same. Names sort as before, and a constraint becomes one on an
// attribute of its own, which the nodes have that met it, so the decisions are
// the same, by other names. The plan is left out; Reproduced says whether
// deciding again gave it.
func Scrub(r *Recording) (*Recording, error) {
	out, _, err := scrub(r)
	return out, err
}

func scrub(r *Recording) (*Recording, names, error) {
	out := &Recording{Recording: Version, Planner: r.Planner, Policy: r.Policy, Scrubbed: true, Reproduced: r.Reproduced}
	if r.Plan != nil {
		_, differences, err := Replay(r, r.Policy)
		if err != nil {
			return nil, nil, err
		}
		same := len(differences) == 0
		out.Reproduced = &same
	}
	data, err := json.Marshal(r.Snapshot)
	if err != nil {
		return nil, nil, fmt.Errorf("copy snapshot: %w", err)
	}
	if out.Snapshot, err = model.DecodeSnapshot(bytes.NewReader(data)); err != nil {
		return nil, nil, fmt.Errorf("copy snapshot: %w", err)
	}
	s := newScrubber(r.Snapshot, out.Snapshot)
	s.constraints()
	s.reservations()
	if out.Policy, err = copyPolicy(r.Policy); err != nil {
		return nil, nil, err
	}
	snapshot, policy := reflect.ValueOf(out.Snapshot).Elem(), reflect.ValueOf(&out.Policy).Elem()
	table := collect(snapshot, policy)
	walk(snapshot, "", table.rename)
	walk(policy, "", table.rename)
	s.uuids(table)
	return out, table, nil
}

// copyPolicy copies a policy with its lists.
func copyPolicy(p core.Policy) (out core.Policy, err error) {
	data, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return out, fmt.Errorf("copy policy: %w", err)
	}
	return out, nil
}

// scrubber makes the constraints of a copy anew, from the original's.
type scrubber struct {
	from, to *model.Snapshot
	// fromNodes and toNodes are the nodes of both, those that could be bought too.
	fromNodes, toNodes []*model.Node
	nodes              *feasible.Nodes
	// made are the attributes made so far, by what they stand for.
	made map[string]string
	// ids are constraints that list GPUs.
	ids []*model.Constraint
}

// nodesOf are a snapshot's nodes, and those that could be bought.
func nodesOf(s *model.Snapshot) []*model.Node {
	out := make([]*model.Node, 0, len(s.Nodes)+len(s.Burst.Pools))
	for i := range s.Nodes {
		out = append(out, &s.Nodes[i])
	}
	for i := range s.Burst.Pools {
		out = append(out, &s.Burst.Pools[i].Node)
	}
	return out
}

func newScrubber(from, to *model.Snapshot) *scrubber {
	s := &scrubber{from: from, to: to, made: map[string]string{}, fromNodes: nodesOf(from), toNodes: nodesOf(to)}
	for _, n := range s.toNodes {
		n.Attributes = nil
		for k := range n.GPUs {
			n.GPUs[k].Attributes = nil
		}
	}
	s.tellKinds()
	s.nodes = feasible.NewNodes(s.fromNodes)
	return s
}

// tellKinds keeps apart GPUs that are of two kinds: those whose attributes
// differ are two devices in Nomad, and one ask is not served by both.
func (s *scrubber) tellKinds() {
	of := func(g *model.GPU) string {
		shared := maps.Clone(g.Attributes)
		maps.DeleteFunc(shared, func(name, _ string) bool { return strings.HasPrefix(name, feasible.UniquePrefix) })
		return text(shared) // JSON sorts the keys
	}
	numbers := map[string]int{}
	for i := range s.fromNodes {
		for k := range s.fromNodes[i].GPUs {
			numbers[of(&s.fromNodes[i].GPUs[k])] = 0
		}
	}
	for i, one := range slices.Sorted(maps.Keys(numbers)) {
		numbers[one] = i + 1
	}
	for i := range s.fromNodes {
		for k := range s.fromNodes[i].GPUs {
			s.toNodes[i].GPUs[k].Attributes = map[string]string{"kind": fmt.Sprintf("k%d", numbers[of(&s.fromNodes[i].GPUs[k])])}
		}
	}
}

// reservations lists the nodes that patterns and domains stand for: their names
// are made anew.
func (s *scrubber) reservations() {
	levels := s.from.Levels
	if len(levels) == 0 {
		levels = model.DefaultLevels
	}
	for i := range s.to.Reservations {
		old, r := &s.from.Reservations[i], &s.to.Reservations[i]
		if len(old.Nodes) == 0 && old.Domain == "" {
			continue
		}
		r.Nodes, r.Domain = nil, ""
		if old.Domain != "" {
			r.Level = ""
		}
		for k := range s.from.Nodes {
			if n := &s.from.Nodes[k]; old.Covers(n, levels) {
				r.Nodes = append(r.Nodes, n.ID)
			}
		}
		if len(r.Nodes) == 0 {
			r.Nodes = []string{noNode}
		}
	}
}

// noNode is no node's ID.
const noNode = "none"

func (s *scrubber) constraints() {
	for i := range s.to.Jobs {
		j := &s.to.Jobs[i]
		j.Datacenters = s.datacenters(j.Datacenters)
		s.onNodes(j.Constraints)
		for k := range j.Groups {
			s.onNodes(j.Groups[k].Constraints)
			for d := range j.Groups[k].Devices {
				s.onDevices(j.Groups[k].Devices[d].Constraints)
			}
		}
	}
}

// datacenters writes patterns out.
func (s *scrubber) datacenters(patterns []string) []string {
	if len(patterns) == 0 {
		return nil
	}
	found := map[string]bool{}
	verdicts := s.nodes.Verdicts(feasible.Filter{Datacenters: patterns})
	for i := range s.fromNodes {
		if verdicts.Eligible(i) {
			found[s.fromNodes[i].Datacenter] = true
		}
	}
	if len(found) == 0 {
		return []string{"none"}
	}
	return slices.Sorted(maps.Keys(found))
}

// attribute is the attribute that stands for a thing, and whether it is new.
func (s *scrubber) attribute(of string) (name string, fresh bool) {
	if name, known := s.made[of]; known {
		return name, false
	}
	name = fmt.Sprintf("c%04d", len(s.made)+1)
	s.made[of] = name
	return name, true
}

const met = "yes"

func (s *scrubber) onNodes(list []model.Constraint) {
	for i := range list {
		c := list[i]
		switch {
		case c.Operand == feasible.OperandDistinctHosts:
			list[i] = model.Constraint{Operand: c.Operand, Right: c.Right}
		case c.Operand == feasible.OperandDistinctProperty:
			list[i].Left = s.property(c.Left)
		case s.nodes.Checker().Fault(c) != "":
			list[i] = model.Constraint{Left: "${meta.x}", Operand: "regexp", Right: "("}
		default:
			name, fresh := s.attribute("node " + c.Left + " " + c.Operand + " " + c.Right)
			list[i] = model.Constraint{Left: "${meta." + name + "}", Operand: "=", Right: met}
			if !fresh {
				continue
			}
			verdicts := s.nodes.Verdicts(feasible.Filter{Constraints: []model.Constraint{c}})
			for n := range s.toNodes {
				if verdicts.Eligible(n) {
					s.set(n, name, met)
				}
			}
		}
	}
}

// set gives a node an attribute.
func (s *scrubber) set(node int, name, value string) {
	n := s.toNodes[node]
	if n.Attributes == nil {
		n.Attributes = map[string]string{}
	}
	n.Attributes["meta."+name] = value
}

// property stands for what members are told apart by: its values are numbered.
func (s *scrubber) property(target string) string {
	name, fresh := s.attribute("property " + target)
	if !fresh {
		return "${meta." + name + "}"
	}
	values := map[string]bool{}
	for n := range s.fromNodes {
		if text, found := s.nodes.Value(target, n); found {
			values[text] = true
		}
	}
	numbers := map[string]string{}
	for i, text := range slices.Sorted(maps.Keys(values)) {
		numbers[text] = fmt.Sprintf("%06d", i+1)
	}
	for n := range s.fromNodes {
		if text, found := s.nodes.Value(target, n); found {
			s.set(n, name, numbers[text])
		}
	}
	return "${meta." + name + "}"
}

// deviceIDs lists the IDs of a device's instances.
const deviceIDs = "${device.ids}"

func (s *scrubber) onDevices(list []model.Constraint) {
	for i := range list {
		c := list[i]
		if c.Left == deviceIDs && strings.HasPrefix(c.Operand, "set_contains") {
			s.ids = append(s.ids, &list[i])
			continue
		}
		if s.nodes.Checker().Fault(c) != "" {
			list[i] = model.Constraint{Left: "${device.attr.x}", Operand: "regexp", Right: "("}
			continue
		}
		name, fresh := s.attribute("device " + c.Left + " " + c.Operand + " " + c.Right)
		list[i] = model.Constraint{Left: "${device.attr." + name + "}", Operand: "=", Right: met}
		if fresh {
			s.onGPUs(name, c)
		}
	}
}

// onGPUs gives an attribute to the GPUs that meet a constraint.
func (s *scrubber) onGPUs(name string, c model.Constraint) {
	ask := model.DeviceAsk{Name: "/", Count: 1, Shared: model.SharedAllow, Constraints: []model.Constraint{c}} // any device
	for n := range s.fromNodes {
		for k := range s.fromNodes[n].GPUs {
			from, to := &s.fromNodes[n].GPUs[k], &s.toNodes[n].GPUs[k]
			device := feasible.DeviceGroup{Vendor: from.Vendor, Type: from.Type, Model: from.Model, Attributes: from.Attributes, IDs: []string{from.UUID}, Shared: from.Slices > 0}
			if !s.nodes.Checker().MatchesDevice(ask, &device) {
				continue
			}
			to.Attributes[name] = met
		}
	}
}

// uuids renames the GPUs that constraints list.
func (s *scrubber) uuids(table names) {
	for _, c := range s.ids {
		var out []string
		for id := range strings.SplitSeq(c.Right, ",") {
			if to, known := table[gpu][strings.TrimSpace(id)]; known {
				out = append(out, to)
			} else {
				out = append(out, "GPU-none")
			}
		}
		c.Right = strings.Join(out, ",")
	}
}
