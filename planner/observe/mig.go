package observe

import (
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// instances notes of a device group's MIG instances which GPU each is a part of.
// To Nomad an instance is a device like any other, of the same vendor and type
// as whole GPUs, and so it is to the planner: only names and constraints tell
// them apart.
func (r *nodeReader) instances(d *api.NodeDeviceResource, e *nodeEntry, byID map[string]model.GPU) {
	raw := d.Attributes[topology.AttrInstances]
	if raw == nil || raw.StringVal == nil {
		return
	}
	list, err := topology.DecodeInstances(*raw.StringVal)
	if err != nil {
		e.warn("which GPUs its %s devices are parts of is not known: %v; check the device plugin's version with nomad-device-caravan check", d.ID(), err)
		return
	}
	for _, instance := range list {
		if g, ok := byID[instance.UUID]; ok {
			g.Parent = instance.Parent
			byID[instance.UUID] = g
		}
	}
}

// divided gives MIG instances and time slices the NUMA node of their GPU. Where the
// GPU is listed as a device too, which it may be for a moment while it is divided or
// made whole, one of the two does not exist: neither is given away.
func divided(byID map[string]model.GPU, matrix topology.Matrix, e *nodeEntry) {
	numa := map[string]int{}
	for _, g := range matrix.GPUs {
		if len(g.NUMA) > 0 {
			numa[g.UUID] = g.NUMA[0]
		}
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		g := byID[id]
		if g.Parent == "" {
			continue
		}
		if at, known := numa[g.Parent]; known {
			g.NUMA = at
		}
		if whole, listed := byID[g.Parent]; listed {
			e.warn("GPU %s is listed whole, and its MIG instance or slice %s too; neither is given away until the device plugin lists one of them alone", g.Parent, id)
			for _, both := range []*model.GPU{&g, &whole} {
				if both.Unhealthy == "" {
					both.Unhealthy = "the GPU is listed whole and in parts"
				}
			}
			byID[g.Parent] = whole
		}
		byID[id] = g
	}
}

// divisions notes that the node's plugin divides GPUs, and what became of that. It
// is told on each of its device groups.
func (r *nodeReader) divisions(d *api.NodeDeviceResource, e *nodeEntry) {
	raw := d.Attributes[topology.AttrDivisions]
	if raw == nil || raw.StringVal == nil || e.model.Divides {
		return
	}
	list, err := topology.DecodeDivisions(*raw.StringVal)
	if err != nil {
		e.warn("what became of its divided GPUs is not known, so that none is divided: %v; check the device plugin's version with nomad-device-caravan check", err)
		return
	}
	e.model.Divides = true
	for _, v := range list {
		out := model.Division{GPU: v.GPU, Profiles: v.Profiles, At: v.At, State: model.DivisionDone}
		if v.Refused != "" {
			out.State, out.Why = model.DivisionRefused, v.Refused
			if v.Again.After(v.At) {
				out.Again = v.Again
			}
		}
		e.model.Divisions = append(e.model.Divisions, out)
	}
}
