package sim

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/caravan-sched/caravan/planner/core/mig"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// unit is how many parts a GPU is counted in, so that thousandths, sevenths and
// fourths of it are whole numbers of them.
const unit = 7000

// gpuMode is how a GPU is offered. The zero gpuMode is as a whole.
type gpuMode struct {
	// slices is by how many tasks it is shared, each with a time slice; 0: it is not.
	slices int
	// profiles are its MIG instances, auto that it may be divided otherwise.
	profiles []string
	auto     bool
}

// mayBeWhole reports whether who asks for whole GPUs can ever have it.
func (m *gpuMode) mayBeWhole() bool { return m.slices == 0 && (len(m.profiles) == 0 || m.auto) }

// isWhole reports whether it is whole now.
func (m *gpuMode) isWhole() bool { return m.slices == 0 && len(m.profiles) == 0 }

// modesOf are how a node's GPUs are offered at the start.
func (c *Cluster) modesOf(node int) []gpuMode {
	if node < len(c.modes) && c.modes[node] != nil {
		return c.modes[node]
	}
	return make([]gpuMode, len(c.Nodes[node].GPUs))
}

// wholes counts the GPUs of a node that can be had whole.
func (c *Cluster) wholes(node int) int {
	if node >= len(c.modes) || c.modes[node] == nil {
		return len(c.Nodes[node].GPUs)
	}
	n := 0
	for _, m := range c.modesOf(node) {
		if m.mayBeWhole() {
			n++
		}
	}
	return n
}

// InParts reports whether any of its GPUs are offered in parts.
func (c *Cluster) InParts() bool { return len(c.modes) > 0 }

// PartsOf says of each GPU of a node by how many tasks it is shared, and into which
// MIG instances it is divided at the start; and whether the node divides its GPUs
// otherwise. nil: all are whole.
func (c *Cluster) PartsOf(node int) (shared []int, instances [][]string, divides bool) {
	if node >= len(c.modes) {
		return nil, nil, false
	}
	for _, m := range c.modes[node] {
		shared, instances, divides = append(shared, m.slices), append(instances, m.profiles), divides || m.auto
	}
	return shared, instances, divides
}

// Plain is the cluster with all of its GPUs offered as a whole, as the baselines have
// it that give nobody a part of one.
func (c Cluster) Plain() Cluster {
	c.modes = nil
	c.PerNode = 0
	for i := range c.Nodes {
		c.PerNode = max(c.PerNode, len(c.Nodes[i].GPUs))
	}
	return c
}

// HoldsJob reports whether a job has a place while nothing else runs: Holds, or for
// a part of a GPU a GPU that is offered so. Who needs a part of one takes a whole one
// too, but not who asks for a MIG instance.
func (c *Cluster) HoldsJob(j *trace.Job) bool {
	if models := allowed(j.GPUModels); models != nil {
		plain, perNode := *j, c.largest(models)
		plain.GPUModels = ""
		return slices.ContainsFunc(models, func(name string) bool {
			on := c.only([]string{name})
			on.PerNode = perNode
			return on.HoldsJob(&plain)
		})
	}
	if j.Profile != "" {
		_, known := c.profile(j.Profile)
		return known
	}
	if j.Share > 0 && c.InParts() {
		return slices.ContainsFunc(slices.Concat(c.modes...), func(m gpuMode) bool { return m.slices > 0 }) || c.Holds(1)
	}
	return c.Holds(j.GPUs)
}

// holder is HoldsJob, which remembers what it has found.
func (c *Cluster) holder() func(*trace.Job) bool {
	type shape struct {
		gpus            int
		shared          bool
		profile, models string
	}
	known := map[shape]bool{}
	return func(j *trace.Job) bool {
		s := shape{j.GPUs, j.Share > 0, j.Profile, j.GPUModels}
		fits, seen := known[s]
		if !seen {
			fits = c.HoldsJob(j)
			known[s] = fits
		}
		return fits
	}
}

// most is the cluster with all nodes that can be bought.
func (c *Comparison) most() Cluster {
	if len(c.Pools.Pools) > 0 {
		return c.Cluster.WithPools(c.Pools)
	}
	return c.Cluster
}

// FitModels is what is made of the GPU models that the jobs of the trace name.
func (c *Comparison) FitModels() Fitting {
	all := c.most()
	_, f := all.FitModels(c.Jobs)
	return f
}

// holds says which gangs can run, whichever the policy: on the cluster, and, where
// nodes can be bought, as they are cut for the larger ones.
func (c *Comparison) holds() func(*trace.Job) bool {
	all := c.most()
	own, most := c.Cluster.holder(), all.holder()
	return func(j *trace.Job) bool { return own(j) && most(j) }
}

// profile is what part of a GPU an instance is, by its compute slices; false if no
// GPU of the cluster has it, or can be given it.
func (c *Cluster) profile(name string) (part float64, known bool) {
	for node, modes := range c.modes {
		for i, m := range modes {
			if !m.auto && !slices.Contains(m.profiles, name) {
				continue
			}
			if g, divisible := mig.Of(c.Nodes[node].GPUs[i].Model); divisible {
				if p, there := g.Profile(name); there {
					return float64(p.Compute) / float64(g.Compute), true
				}
			}
		}
	}
	return 0, false
}

// InTheirParts are jobs as a cluster gives them GPUs: what an instance is a part of is
// filled in, and where no GPU is shared who needs a part of one has all of it.
func (c *Cluster) InTheirParts(jobs []trace.Job) []trace.Job {
	out, known := slices.Clone(jobs), map[string]float64{}
	for i := range out {
		j := &out[i]
		switch {
		case j.Profile != "":
			if known[j.Profile] == 0 {
				known[j.Profile], _ = c.profile(j.Profile)
			}
			j.Share = known[j.Profile]
		case !c.InParts():
			j.Share = 0
		}
	}
	return out
}

// asWhole are jobs as a scheduler sees them that gives nobody a part of a GPU.
func asWhole(jobs []trace.Job) []trace.Job {
	out := slices.Clone(jobs)
	for i := range out {
		out[i].Profile = ""
	}
	return out
}

// asPlanner is a node as the planner sees it: its instances and slices in place of
// the GPUs that they are parts of. turns count how often each was divided.
func asPlanner(n model.Node, modes []gpuMode, turns []int) (node model.Node, at map[string]device) {
	at = map[string]device{}
	gpus := n.GPUs
	n.GPUs = nil
	for i, g := range gpus {
		m := &modes[i]
		add := func(d model.GPU, part int) {
			d.Island = g.Island
			n.GPUs = append(n.GPUs, d)
			at[d.UUID] = device{gpu: int8(i), part: part}
		}
		for k := range m.slices {
			d := g
			d.UUID, d.Parent, d.Slices = fmt.Sprintf("%s::%d", g.UUID, k), g.UUID, m.slices
			d.Model = fmt.Sprintf("%s SHARED 1of%d", g.Model, m.slices)
			add(d, k+1)
		}
		for k, name := range m.profiles {
			d := g
			d.UUID, d.Parent, d.Model = instanceID(g.UUID, turns[i], k), g.UUID, g.Model+mig.Mark+name
			geometry, _ := mig.Of(g.Model)
			p, _ := geometry.Profile(name)
			d.Attributes = map[string]string{attrProfile: name, attrSlices: strconv.Itoa(p.Compute)}
			add(d, k+1)
		}
		if m.isWhole() {
			add(g, 0)
		}
		n.Divides = n.Divides || m.auto
	}
	return n, at
}

// instanceID is of an instance of a GPU that was divided so often.
func instanceID(gpu string, turn, k int) string { return fmt.Sprintf("%s/%d.%d", gpu, turn, k) }

// The attributes of instances, as the device plugin tells them.
const (
	attrProfile = "mig_profile"
	attrSlices  = "mig_slices"
)

// device is where a device of the planner is: part is 0 for a whole GPU, else the
// number of an instance or a slice, from 1.
type device struct {
	gpu  int8
	part int
}

// askFor is what one member of a job asks a node for.
func (c *Cluster) askFor(ask *Ask, gpus int) model.DeviceAsk {
	d := model.DeviceAsk{Name: "nvidia/gpu", Count: gpus}
	if !c.InParts() {
		return d
	}
	profile := model.Constraint{Left: "${device.attr." + attrProfile + "}", Operand: "is_not_set"}
	switch {
	case ask.Profile != "":
		profile.Operand, profile.Right = "=", ask.Profile
	case ask.Share > 0:
		d.Shared = model.SharedAllow
	}
	d.Constraints = []model.Constraint{profile}
	return d
}

// usageOf is what a job that needs a part of a GPU is expected to use of it.
func usageOf(ask *Ask) *model.Usage {
	if ask.Share <= 0 || ask.Profile != "" {
		return nil
	}
	return &model.Usage{Busy: int(math.Ceil(ask.Share*100 - 1e-9)), Samples: 1}
}
