package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
)

// Tracker remembers what was wrong with each GPU. It is not safe for use by
// several goroutines at once.
type Tracker struct {
	passXIDs   map[uint64]bool
	passFaults map[Kind]bool
	gpus       map[string]*patient
}

// patient is a GPU's or MIG instance's record.
type patient struct {
	faults map[Kind]*fault
	// links are the most NVLinks that were active.
	links int
	// looked is set after the first look that got an answer.
	looked bool
	// xids are those that count, ascending.
	xids []uint64
	// instances are the XIDs of its MIG instances.
	instances map[[2]int][]uint64
	// divided is set when it is in MIG mode.
	divided bool
}

// fault is one kind at one GPU.
type fault struct {
	text string
	// seen and unseen count looks in a row; counts is set while the GPU is not
	// to be used because of it.
	seen, unseen int
	counts       bool
}

// New makes a tracker that passes over some XIDs, beside the application's own,
// and some kinds of faults.
func New(passXIDs []uint64, passFaults []Kind) *Tracker {
	t := &Tracker{passXIDs: map[uint64]bool{}, passFaults: map[Kind]bool{}, gpus: map[string]*patient{}}
	for _, x := range slices.Concat(ApplicationXIDs(), passXIDs) {
		t.passXIDs[x] = true
	}
	for _, k := range passFaults {
		t.passFaults[k] = true
	}
	return t
}

func (t *Tracker) patient(uuid string) *patient {
	p := t.gpus[uuid]
	if p == nil {
		p = &patient{faults: map[Kind]*fault{}, instances: map[[2]int][]uint64{}}
		t.gpus[uuid] = p
	}
	return p
}

// see takes in one finding.
func (p *patient) see(f finding) {
	r := rules[f.kind]
	now := p.faults[f.kind]
	if f.text == "" {
		if now == nil {
			return
		}
		now.seen = 0
		if now.unseen++; !now.counts || r.ends > 0 && now.unseen >= r.ends {
			delete(p.faults, f.kind)
		}
		return
	}
	if now == nil {
		now = &fault{}
		p.faults[f.kind] = now
	}
	now.text, now.unseen = f.text, 0
	now.seen++
	now.counts = now.counts || now.seen >= r.after || !p.looked
}

// Look takes in one look at all GPUs. A GPU that was there and is not found any
// more is lost.
func (t *Tracker) Look(inv nvml.Inventory) {
	expected := t.expectLinks(inv)
	found := map[string]bool{}
	for i, g := range inv.GPUs {
		uuid := inv.Matrix.GPUs[i].UUID
		found[uuid] = true
		p := t.patient(uuid)
		p.divided = g.Divided() || g.MIG == nil && p.divided
		lost := p.faults[Lost] != nil && p.faults[Lost].counts
		for _, f := range append(find(g, expected[i]), finding{kind: Driver}) {
			if f.kind != Lost && f.kind != Silent && f.kind != Driver && !answers(g) {
				continue
			}
			if !t.passFaults[f.kind] {
				p.see(f)
			}
		}
		if lost && p.faults[Lost] == nil {
			// It was reset, or put back: what it reported before is over.
			p.xids, p.instances = nil, map[[2]int][]uint64{}
		}
		p.looked = p.looked || answers(g)
	}
	for _, uuid := range slices.Sorted(maps.Keys(t.gpus)) {
		if !found[uuid] {
			t.gpus[uuid].see(finding{Lost, "the GPU was there before and is not found any more"})
		}
	}
}

// expectLinks says how many NVLinks each GPU should have: as many as it had,
// and with NVSwitches, as many as its siblings of the same model have. Which
// GPUs are joined by bridges, and by how many, is up to who built the machine.
func (t *Tracker) expectLinks(inv nvml.Inventory) []int {
	switched := map[string]int{}
	for i, g := range inv.GPUs {
		if !g.Divided() {
			model := inv.Matrix.GPUs[i].Model
			switched[model] = max(switched[model], g.Health.LinksToSwitches)
		}
	}
	expected := make([]int, len(inv.GPUs))
	for i, g := range inv.GPUs {
		p := t.patient(inv.Matrix.GPUs[i].UUID)
		if !g.Divided() {
			p.links = max(p.links, g.Health.LinksActive)
		}
		expected[i] = max(p.links, switched[inv.Matrix.GPUs[i].Model])
	}
	return expected
}

// Fail takes in a look that failed because the driver did not answer.
func (t *Tracker) Fail(reason string) {
	for _, p := range t.gpus {
		p.see(finding{Driver, reason})
	}
}

// Event takes in an event of the driver, and reports whether it is a fault. A
// fault of an unknown GPU counts for all of them.
func (t *Tracker) Event(e nvml.Event) bool {
	if e.XID == 0 || t.passXIDs[e.XID] || t.passFaults[XID] {
		return false
	}
	of := t.gpus
	if e.UUID != "" {
		of = map[string]*patient{e.UUID: t.patient(e.UUID)}
	}
	for _, p := range of {
		if p.divided && e.GPUInstance != nil && e.ComputeInstance != nil {
			at := [2]int{*e.GPUInstance, *e.ComputeInstance}
			p.instances[at] = insert(p.instances[at], e.XID)
			continue
		}
		p.xids = insert(p.xids, e.XID)
	}
	return true
}

// insert keeps the list ascending and bounded.
func insert(xids []uint64, x uint64) []uint64 {
	if !slices.Contains(xids, x) && len(xids) < maxXIDs {
		xids = append(slices.Clone(xids), x)
		slices.Sort(xids)
	}
	return xids
}

// maxXIDs is how many different errors are remembered of one GPU.
const maxXIDs = 16

// Reason says why the GPU cannot be used; "" if it can.
func (t *Tracker) Reason(uuid string) string {
	p := t.gpus[uuid]
	if p == nil {
		return ""
	}
	var reasons []string
	for _, k := range Kinds() {
		f := p.faults[k]
		switch {
		case f == nil || !f.counts:
		case f.unseen > 0:
			reasons = append(reasons, fmt.Sprintf("%s (over: trusted again after %d good looks)", f.text, rules[k].ends))
		default:
			reasons = append(reasons, f.text)
		}
	}
	return strings.Join(append(reasons, xidText(p.xids)...), "; ")
}

// InstanceReason says why a MIG instance cannot be used, whatever its GPU is
// like.
func (t *Tracker) InstanceReason(gpu string, gpuInstance, computeInstance int) string {
	p := t.gpus[gpu]
	if p == nil {
		return ""
	}
	return strings.Join(xidText(p.instances[[2]int{gpuInstance, computeInstance}]), "; ")
}

func xidText(xids []uint64) []string {
	var out []string
	for _, x := range xids {
		out = append(out, fmt.Sprintf("XID %d: reset the GPU and restart the agent", x))
	}
	return out
}
