package sched

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
)

// deviceMatches says whether a device group satisfies a request's name and
// constraints, as a group: whether enough instances are free is another
// question.
func deviceMatches(re regexps, d *api.NodeDeviceResource, ask *api.RequestedDevice) bool {
	if !nameMatches(d, ask.Name) {
		return false
	}
	for _, c := range ask.Constraints {
		l, lOK := resolveDevice(c.LTarget, d)
		r, rOK := resolveDevice(c.RTarget, d)
		if !checkAttribute(re, c.Operand, l, r, lOK, rOK) {
			return false
		}
	}
	return true
}

// nameMatches compares with "type", "vendor/type" or "vendor/type/name"; the
// name may hold slashes itself.
func nameMatches(d *api.NodeDeviceResource, name string) bool {
	parts := strings.SplitN(name, "/", 3)
	switch len(parts) {
	case 1:
		return d.Type == parts[0]
	case 2:
		return d.Vendor == parts[0] && d.Type == parts[1]
	}
	return d.Vendor == parts[0] && d.Type == parts[1] && d.Name == parts[2]
}

func resolveDevice(target string, d *api.NodeDeviceResource) (attr.Value, bool) {
	if !strings.HasPrefix(target, "${") {
		return attr.Parse(target), true
	}
	text := func(s string) (attr.Value, bool) { return attr.String(s), true }
	switch target {
	case "${device.ids}":
		ids := make([]string, len(d.Instances))
		for i, x := range d.Instances {
			ids[i] = x.ID
		}
		return text(strings.Join(ids, ","))
	case "${device.model}":
		return text(d.Name)
	case "${device.vendor}":
		return text(d.Vendor)
	case "${device.type}":
		return text(d.Type)
	}
	if key, ok := strings.CutPrefix(target, "${device.attr."); ok {
		a, ok := d.Attributes[strings.TrimSuffix(key, "}")]
		return deviceValue(a), ok
	}
	return attr.Value{}, false
}

// deviceValue is an attribute as plugins and constraints have it.
func deviceValue(a *api.Attribute) attr.Value {
	switch {
	case a == nil:
	case a.IntVal != nil:
		return attr.IntUnit(*a.IntVal, a.Unit)
	case a.FloatVal != nil:
		return attr.FloatUnit(*a.FloatVal, a.Unit)
	case a.BoolVal != nil:
		return attr.Bool(*a.BoolVal)
	case a.StringVal != nil:
		return attr.String(*a.StringVal)
	}
	return attr.Value{}
}

// checkAttribute decides a device constraint; numbers compare across units of
// one base.
func checkAttribute(re regexps, op string, l, r attr.Value, lOK, rOK bool) bool {
	both := lOK && rOK
	switch op {
	case "=", "==", "is", "<", "<=", ">", ">=":
		if !both {
			return false
		}
		c, ok := l.Compare(r)
		if !ok {
			return false
		}
		if strings.HasPrefix(op, "=") || op == "is" {
			return c == 0
		}
		return holds(op, c)
	case "!=", "not":
		if !lOK && !rOK {
			return false
		}
		if lOK != rOK {
			return true
		}
		c, ok := l.Compare(r)
		return ok && c != 0
	case api.ConstraintAttributeIsSet:
		return lOK
	case api.ConstraintAttributeIsNotSet:
		return !lOK
	}
	if op == api.ConstraintVersion || op == api.ConstraintSemver {
		return both && check(re, op, l.Text(), r.Text(), true, true)
	}
	x, xText := l.AsString()
	y, yText := r.AsString()
	return both && xText && yText && check(re, op, x, y, true, true)
}

// hasDevices says whether a node has healthy devices for all requests, taken
// or free.
func hasDevices(re regexps, devices []*api.NodeDeviceResource, asks []*api.RequestedDevice) bool {
	left := make([]int, len(devices))
	for i, d := range devices {
		for _, x := range d.Instances {
			if x.Healthy {
				left[i]++
			}
		}
	}
	for _, ask := range asks {
		want := int(deref(ask.Count))
		for i, d := range devices {
			if left[i] > 0 && deviceMatches(re, d, ask) {
				take := min(want, left[i])
				left[i] -= take
				want -= take
			}
		}
		if want > 0 {
			return false
		}
	}
	return true
}

// deviceUse counts the uses of each healthy instance of a node.
type deviceUse struct {
	re      regexps
	devices []*api.NodeDeviceResource
	used    map[string]int // by group and ID
}

func newDeviceUse(re regexps, devices []*api.NodeDeviceResource, allocs map[string]*api.Allocation) *deviceUse {
	u := &deviceUse{re: re, devices: devices, used: map[string]int{}}
	for _, a := range allocs {
		if a.AllocatedResources == nil {
			continue
		}
		for _, t := range a.AllocatedResources.Tasks {
			for _, d := range t.Devices {
				u.take(d)
			}
		}
	}
	return u
}

func instanceKey(vendor, typ, name, id string) string {
	return vendor + "\x00" + typ + "\x00" + name + "\x00" + id
}

func (u *deviceUse) take(d *api.AllocatedDeviceResource) {
	for _, id := range d.DeviceIDs {
		u.used[instanceKey(d.Vendor, d.Type, d.Name, id)]++
	}
}

// offer picks instances for a request: free healthy ones of one group, at
// random as Nomad does. The second result says why there are none.
func (u *deviceUse) offer(ask *api.RequestedDevice, rng *rand.Rand) (*api.AllocatedDeviceResource, string) {
	if len(u.devices) == 0 {
		return nil, "no devices available"
	}
	var best *api.AllocatedDeviceResource
	bestScore := 0.0
	for _, d := range u.devices {
		if !deviceMatches(u.re, d, ask) {
			continue
		}
		var free []string
		for _, x := range d.Instances {
			if x.Healthy && u.used[instanceKey(d.Vendor, d.Type, d.Name, x.ID)] == 0 && idAllowed(u.re, x.ID, d, ask.Constraints) {
				free = append(free, x.ID)
			}
		}
		if want := int(deref(ask.Count)); len(free) >= want {
			rng.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
			score := affinityScore(u.re, d, ask)
			if best != nil && score < bestScore {
				continue
			}
			bestScore = score
			best = &api.AllocatedDeviceResource{Vendor: d.Vendor, Type: d.Type, Name: d.Name, DeviceIDs: slices.Clone(free[:want])}
		}
	}
	if best == nil {
		return nil, "no devices match request"
	}
	return best, ""
}

func affinityScore(re regexps, d *api.NodeDeviceResource, ask *api.RequestedDevice) float64 {
	score := 0.0
	for _, a := range ask.Affinities {
		l, lOK := resolveDevice(a.LTarget, d)
		r, rOK := resolveDevice(a.RTarget, d)
		if checkAttribute(re, a.Operand, l, r, lOK, rOK) {
			score += float64(deref(a.Weight))
		}
	}
	return score
}

// idAllowed narrows a ${device.ids} constraint down to one instance: the
// constraint's other side must contain it.
func idAllowed(re regexps, id string, d *api.NodeDeviceResource, cs []*api.Constraint) bool {
	for _, c := range cs {
		other := ""
		switch "${device.ids}" {
		case c.LTarget:
			other = c.RTarget
		case c.RTarget:
			other = c.LTarget
		default:
			continue
		}
		target, ok := resolveDevice(other, d)
		if !ok || !checkAttribute(re, c.Operand, target, attr.String(id), true, true) {
			return false
		}
	}
	return true
}
