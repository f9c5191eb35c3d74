package gangspec

import (
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// The values of caravan_share.
const (
	ShareNever = "never"
	ShareAllow = "allow"
	ShareOnly  = "only"
)

// sharedMark is in the model's name of shared GPUs, before the share, as the device
// plugin has it: "NVIDIA H100 80GB HBM3 SHARED 1of4".
const sharedMark = " SHARED 1of"

// share reads whether the job's device requests may be served by time slices of
// GPUs that others use too.
func (p *parser) share() string {
	out := p.word(KeyShare, ShareNever, []string{ShareNever, ShareAllow, ShareOnly})
	where, _ := p.setting(KeyShare)
	asked, one := false, false
	for _, g := range p.job.TaskGroups {
		if g == nil {
			continue
		}
		for _, t := range g.Tasks {
			if t == nil || t.Resources == nil {
				continue
			}
			for _, d := range t.Resources.Devices {
				if d == nil {
					continue
				}
				asked, one = true, one || deviceCount(d) == 1
				if n := deviceCount(d); n > 1 && (out == ShareOnly || namesShared(d)) {
					p.fault(fmt.Sprintf("task %q of %s", t.Name, inGroup(g)), fmt.Sprintf("count of device %q", d.Name), fmt.Sprint(n),
						"allowed is 1 for a slice of a shared GPU; several slices are not several GPUs")
				}
			}
		}
	}
	switch {
	case out == ShareNever:
	case !asked:
		p.fault(where, KeyShare, out, "no task asks for a device; add a device block, or leave it out")
	case out == ShareAllow && !one:
		p.fault(where, KeyShare, out, "every device block asks for several GPUs, and slices are given to those that ask for one; leave it out, or ask for one")
	}
	return out
}

func deviceCount(d *api.RequestedDevice) int {
	if d.Count == nil {
		return 1
	}
	return int(*d.Count)
}

// namesShared reports whether a request says by itself that it is for slices: by
// the device's name, or by a constraint on what only shared GPUs have.
func namesShared(d *api.RequestedDevice) bool {
	if _, _, name := splitDevice(d.Name); strings.Contains(name, sharedMark) {
		return true
	}
	for _, c := range d.Constraints {
		if c == nil || c.Operand == api.ConstraintAttributeIsNotSet {
			continue
		}
		for _, side := range []string{c.LTarget, c.RTarget} {
			if side == "${device.attr.shared_slices}" || side == "${device.attr.shared_memory}" {
				return true
			}
		}
	}
	return false
}

// sharedOf says for the decision core whether slices may serve a request.
func sharedOf(d *api.RequestedDevice, share string) string {
	switch {
	case deviceCount(d) != 1 && share != ShareOnly:
		return ""
	case share == ShareOnly || namesShared(d):
		return model.SharedOnly
	case share == ShareAllow:
		return model.SharedAllow
	}
	return ""
}
