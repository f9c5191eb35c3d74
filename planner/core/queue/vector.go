package queue

import (
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Vector is an amount of every resource that a Tree counts, in its order.
type Vector []int64

// The resources that are always counted; GPU models follow.
const (
	dimGPU = iota
	dimCPU
	dimMemory
	fixedDims
)

// dims are the resources of a tree, by number.
type dims struct {
	names []string
	at    map[string]int
	// free is memory for amounts to come.
	free []int64
}

// newDims counts GPUs, CPU and memory, and, if any queue names a model, every
// model in the cluster by itself.
func newDims(queues []model.Queue, models []string) dims {
	d := dims{names: []string{model.ResourceGPU, model.ResourceCPU, model.ResourceMemory}, at: map[string]int{}}
	var named []string
	for i := range queues {
		for _, quota := range []map[string]int{queues[i].Guarantee, queues[i].Borrow, queues[i].PerUser} {
			for name := range quota {
				if strings.HasPrefix(name, model.ResourceModel) {
					named = append(named, name)
				}
			}
		}
	}
	if len(named) > 0 {
		for _, m := range models {
			named = append(named, model.ResourceModel+m)
		}
	}
	slices.Sort(named)
	d.names = append(d.names, slices.Compact(named)...)
	for i, name := range d.names {
		d.at[name] = i
	}
	return d
}

func (d *dims) zero() Vector {
	n := len(d.names)
	if len(d.free) < n {
		d.free = make([]int64, n*vectorsAtOnce)
	}
	v := Vector(d.free[:n:n])
	d.free = d.free[n:]
	return v
}

// vectorsAtOnce is for how many amounts memory is taken at once: there are many,
// and they are small.
const vectorsAtOnce = 32

// Amount is an amount without heed of models.
func (d *dims) Amount(gpus, cpuMHz, memoryMiB int) Vector {
	v := d.zero()
	v[dimGPU], v[dimCPU], v[dimMemory] = int64(gpus), int64(cpuMHz), int64(memoryMiB)
	return v
}

// AddModel notes that some of an amount's GPUs are of a model.
func (d *dims) AddModel(v Vector, name string, gpus int) {
	if len(d.names) == fixedDims {
		return // no model is counted
	}
	if i, counted := d.at[model.ResourceModel+name]; counted {
		v[i] += int64(gpus)
	}
}

// Models are the models in an amount, as far as they are counted.
func (d *dims) Models(v Vector) (out []string) {
	for i := fixedDims; i < len(v); i++ {
		if v[i] > 0 {
			out = append(out, strings.TrimPrefix(d.names[i], model.ResourceModel))
		}
	}
	return out
}

// GPUs is the amount's GPUs.
func (v Vector) GPUs() int { return int(v[dimGPU]) }

// Zero reports whether it is nothing.
func (v Vector) Zero() bool { return !slices.ContainsFunc(v, func(n int64) bool { return n != 0 }) }

// Add adds another amount of the same tree.
func (v Vector) Add(o Vector) {
	for i, n := range o {
		v[i] += n
	}
}

// Sub takes another amount of the same tree away.
func (v Vector) Sub(o Vector) {
	for i, n := range o {
		v[i] -= n
	}
}

// resourceName is a resource in words.
func resourceName(name string) string {
	switch name {
	case model.ResourceGPU:
		return "GPUs"
	case model.ResourceCPU:
		return "MHz"
	case model.ResourceMemory:
		return "MiB of memory"
	}
	return strings.TrimPrefix(name, model.ResourceModel) + " GPUs"
}
