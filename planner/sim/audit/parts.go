package audit

import "slices"

// form is how a GPU is offered now.
type form struct {
	slices   int
	profiles []string
	divides  bool
	// changing: it is being divided otherwise.
	changing bool
	// parts are who has which part, from 1.
	parts map[int]*tracked
}

func formOf(n *Node, gpu int) form {
	f := form{parts: map[int]*tracked{}, divides: n.Divides}
	if gpu < len(n.Slices) {
		f.slices = n.Slices[gpu]
	}
	if gpu < len(n.Profiles) {
		f.profiles = n.Profiles[gpu]
	}
	return f
}

// whole reports whether it can be had as a whole now.
func (f *form) whole() bool { return f.slices == 0 && len(f.profiles) == 0 && !f.changing }

// taken is what part of it somebody has.
func (f *form) taken() (sum float64) {
	for k := range f.slices + len(f.profiles) {
		if j := f.parts[k+1]; j != nil {
			sum += j.asks.width()
		}
	}
	return sum
}

// wholes counts the GPUs of a node that can ever be had as a whole, and those that
// are at the start.
func (n *Node) wholes() (able, now int) {
	for g := range n.GPUs {
		switch f := formOf(n, g); {
		case f.whole():
			able, now = able+1, now+1
		case f.slices == 0 && n.Divides:
			able++
		}
	}
	return able, now
}

func (n *Node) able() int {
	able, _ := n.wholes()
	return able
}

// user is somebody who has a GPU, or a part of it.
func (c *checker) user(gpu int) *tracked {
	if c.owner[gpu] != nil {
		return c.owner[gpu]
	}
	f := &c.forms[gpu]
	for k := range f.slices + len(f.profiles) {
		if f.parts[k+1] != nil {
			return f.parts[k+1]
		}
	}
	return nil
}

// take gives a job exactly these GPUs.
func (c *checker) take(j *tracked, gpus []int, part int) {
	c.clock.idle(j)
	for _, g := range j.gpus {
		if j.part > 0 {
			delete(c.forms[g].parts, j.part)
			c.clock.hold(-j.asks.width())
			continue
		}
		c.owner[g] = nil
		c.clock.free(c.at[g], 1)
	}
	j.gpus, j.part = nil, part
	for _, g := range gpus {
		if part > 0 {
			c.takePart(j, g, part)
			continue
		}
		switch {
		case c.owner[g] != nil:
			c.fault("%q gets GPU %d of node %s, which %q has", j.id, g-slices.Index(c.at, c.at[g]), c.nodes[c.at[g]].Name, c.owner[g].id)
			continue
		case !c.forms[g].whole() || j.Profile != "":
			c.fault("%q gets all of GPU %d of node %s, which is offered in parts, or asks for one", j.id, g-slices.Index(c.at, c.at[g]), c.nodes[c.at[g]].Name)
			continue
		case c.down[c.at[g]]:
			c.fault("%q gets a GPU of node %s, which is down", j.id, c.nodes[c.at[g]].Name)
		}
		c.owner[g] = j
		c.clock.free(c.at[g], -1)
		j.gpus = append(j.gpus, g)
	}
}

// has is how many GPUs a job has, which may be a part of one.
func (j *tracked) has() float64 {
	if j.part > 0 {
		return float64(len(j.gpus)) * j.asks.width()
	}
	return float64(len(j.gpus))
}

// takePart gives a job a part of a GPU.
func (c *checker) takePart(j *tracked, gpu, part int) {
	f, node := &c.forms[gpu], c.nodes[c.at[gpu]].Name
	number := gpu - slices.Index(c.at, c.at[gpu])
	switch {
	case f.changing || part > f.slices+len(f.profiles):
		c.fault("%q gets part %d of GPU %d of node %s: it has %d now", j.id, part, number, node, f.slices+len(f.profiles))
		return
	case f.parts[part] != nil:
		c.fault("%q gets part %d of GPU %d of node %s, which %q has", j.id, part, number, node, f.parts[part].id)
		return
	case j.Share == 0:
		c.fault("%q gets a part of GPU %d of node %s, and asks for all of one", j.id, number, node)
		return
	case j.Profile != "" && (f.slices > 0 || f.profiles[part-1] != j.Profile), j.Profile == "" && f.slices == 0:
		c.fault("%q gets part %d of GPU %d of node %s, which is none that it asks for, %q", j.id, part, number, node, j.Profile)
	case c.down[c.at[gpu]]:
		c.fault("%q gets a part of a GPU of node %s, which is down", j.id, node)
	}
	f.parts[part] = j
	if sum := f.taken(); sum > 1+1e-3 {
		c.fault("GPU %d of node %s is used to %g of it once %q is there: want at most all of it", number, node, sum, j.id)
	}
	c.clock.hold(j.asks.width())
	j.gpus = append(j.gpus, gpu)
}

// divide takes an event of a GPU that is divided otherwise.
func (c *checker) divide(l *line) {
	gpus, part := c.find(l)
	if len(gpus) != 1 || part > 0 {
		c.fault("%s of %d GPUs: want one, and all of it", l.Event, len(gpus))
		return
	}
	g := gpus[0]
	f, node := &c.forms[g], c.at[g]
	switch {
	case !f.divides:
		c.fault("%s of %s: that node does not divide its GPUs", l.Event, l.GPUs[0])
		return
	case (l.Event == "divide") == f.changing:
		c.fault("%s of %s, and it was so before", l.Event, l.GPUs[0])
		return
	case l.Event == "divide" && c.user(g) != nil:
		c.fault("%s is divided, and %q uses it", l.GPUs[0], c.user(g).id)
	}
	before := f.whole()
	if f.changing = l.Event == "divide"; !f.changing {
		f.profiles = l.Profiles
	}
	change := 0
	switch {
	case before && !f.whole():
		change = -1
	case !before && f.whole():
		change = 1
	}
	c.clock.wholes[node] += change
	if now := c.clock.unused[node] + change; change != 0 && !c.down[node] && now >= 0 && now < len(c.clock.histogram) {
		c.clock.set(node, now)
	}
}

// rests is what is free of the GPUs that are in parts.
func (k *clock) rests() (sum float64) {
	for g := range k.forms {
		if f := &k.forms[g]; !f.whole() && !f.changing && !k.down[k.at[g]] {
			sum += 1 - f.taken()
		}
	}
	return sum
}

// couldJob is could for a job that may ask for a part of a GPU. Of an instance that no
// GPU has at the start it is not known here whether one could be divided so.
func couldJob(nodes []Node, t *Job) bool {
	if t.GPUModels != "" {
		return couldOnModels(nodes, t)
	}
	if t.Profile == "" && t.Share == 0 {
		return could(nodes, t.GPUs)
	}
	for i := range nodes {
		for g := range nodes[i].GPUs {
			f := formOf(&nodes[i], g)
			if t.Profile != "" && slices.Contains(f.profiles, t.Profile) || t.Profile == "" && f.slices > 0 {
				return true
			}
		}
	}
	return t.Profile == "" && could(nodes, 1)
}
