// Package health judges from a GPU's readings whether it can be used. It is
// pure: what was seen before is in a Tracker, and time is counted in looks.
package health

import (
	"fmt"
	"maps"
	"slices"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
)

// Kind is what can be wrong with a GPU. The words are those of the
// configuration's ignored_faults.
type Kind string

// The kinds.
const (
	// Driver: the driver does not answer at all.
	Driver Kind = "driver"
	// Lost: the GPU has fallen off the bus, needs a reset, or is not found.
	Lost Kind = "lost"
	// Silent: the driver gives errors instead of the GPU's name or memory.
	Silent Kind = "silent"
	// XID: NVIDIA's number of an error that is not the application's.
	XID Kind = "xid"
	// ECC: uncorrectable memory errors since the driver was loaded.
	ECC Kind = "ecc"
	// SRAM: too many uncorrectable errors in the on-chip memories.
	SRAM Kind = "sram"
	// RemapPending and RemapFailed: rows of memory to be replaced.
	RemapPending Kind = "remap_pending"
	RemapFailed  Kind = "remap_failed"
	// RetiredPending: pages of memory to be retired.
	RetiredPending Kind = "retired_pending"
	// NVLink: fewer links are active than there were, or than its siblings have.
	NVLink Kind = "nvlink"
	// Fabric: the GPU has not joined the NVLink fabric.
	Fabric Kind = "fabric"
	// MIGPending: a change of the MIG mode waits for a reset.
	MIGPending Kind = "mig_pending"
)

// rule says when a fault counts and when it is over.
type rule struct {
	// after is how many looks in a row have to see it. On the first look at a
	// GPU one is enough: it is not offered before it is known to be well.
	after int
	// ends is how many looks in a row must not see it; 0 means that it stays.
	ends int
}

// calm is after how many good looks in a row a GPU is trusted again.
const calm = 3

var rules = map[Kind]rule{
	Driver:         {after: 3, ends: 1},
	Lost:           {after: 1, ends: calm},
	Silent:         {after: 2, ends: calm},
	XID:            {after: 1},
	ECC:            {after: 1, ends: calm},
	SRAM:           {after: 1, ends: calm},
	RemapPending:   {after: 1, ends: calm},
	RemapFailed:    {after: 1, ends: calm},
	RetiredPending: {after: 1, ends: calm},
	NVLink:         {after: 2, ends: calm},
	Fabric:         {after: 2, ends: calm},
	MIGPending:     {after: 1, ends: calm},
}

// Kinds lists all kinds, sorted.
func Kinds() []Kind { return slices.Sorted(maps.Keys(rules)) }

// Ignorable lists the kinds that an operator may pass over, sorted. A GPU that
// does not answer is of no use whatever the operator thinks.
func Ignorable() []Kind {
	return slices.DeleteFunc(Kinds(), func(k Kind) bool { return k == Driver || k == Lost || k == Silent })
}

// finding is what one look says of one kind: a text, or "" for no fault.
type finding struct {
	kind Kind
	text string
}

// finder collects what a look says. Of kinds that it does not hold nothing is
// known, because the GPU did not report them.
type finder []finding

func (f *finder) flag(kind Kind, reading *bool, text string) {
	switch {
	case reading == nil:
	case *reading:
		*f = append(*f, finding{kind, text})
	default:
		*f = append(*f, finding{kind, ""})
	}
}

func (f *finder) text(kind Kind, bad bool, format string, args ...any) {
	text := ""
	if bad {
		text = fmt.Sprintf(format, args...)
	}
	*f = append(*f, finding{kind, text})
}

// find judges the readings of a GPU. Links is how many NVLinks it should have.
func find(g nvml.GPU, links int) finder {
	h := g.Health
	var f finder
	f.text(Lost, h.Lost != "", "%s", h.Lost)
	f.text(Silent, h.Silent != "", "the driver does not answer for it: %s", h.Silent)
	if n := h.UncorrectedVolatile; n != nil {
		f.text(ECC, *n > 0, "%d uncorrectable memory errors since the driver was loaded: reset the GPU", *n)
	}
	f.flag(SRAM, h.SRAMThreshold, "too many uncorrectable errors in its on-chip memories: have the GPU replaced")
	f.flag(RemapPending, h.RemapPending, "memory rows are to be replaced: reset the GPU")
	f.flag(RemapFailed, h.RemapFailed, "memory rows could not be replaced: have the GPU replaced")
	f.flag(RetiredPending, h.RetiredPending, "memory pages are to be retired: reset the GPU")
	f.flag(MIGPending, h.MIGPending, "a change of the MIG mode waits for a reset of the GPU")
	if h.LinksActive+h.LinksInactive+links > 0 && !g.Divided() {
		f.text(NVLink, h.LinksActive < links, "%d of %d NVLinks are active", h.LinksActive, links)
	}
	if h.Fabric != "" {
		failed := h.FabricError != ""
		f.text(Fabric, failed || h.Fabric != nvml.FabricCompleted, "it has not joined the NVLink fabric: %s", either(failed, h.FabricError, h.Fabric))
	}
	return f
}

func either(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// answers reports whether a look says anything about the GPU itself.
func answers(g nvml.GPU) bool { return g.Health.Lost == "" && g.Health.Silent == "" }

// ApplicationXIDs are the errors by which a program's fault shows, and not the
// GPU's: those that NVIDIA's k8s-device-plugin passes over, too. They are 13
// (graphics engine exception), 31 (memory page fault), 43 (stopped
// processing), 45 (preemptive cleanup), 68 (video processor exception) and 109
// (context switch timeout).
//
// Source: NVIDIA's "XID Errors", and k8s-device-plugin internal/rm/health.go.
func ApplicationXIDs() []uint64 { return []uint64{13, 31, 43, 45, 68, 109} }
