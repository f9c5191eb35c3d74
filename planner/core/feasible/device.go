package feasible

import (
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// DeviceGroup is what Nomad calls a device: all instances of one vendor, type
// and model on a node, which share their attributes.
type DeviceGroup struct {
	Vendor, Type, Model string
	Attributes          map[string]string
	IDs                 []string
	// Shared: its devices are time slices of GPUs that others use too.
	Shared bool
}

// UniquePrefix starts the keys of attributes that differ from node to node.
const UniquePrefix = "unique."

// PerNode reports whether an ask's constraints may tell apart two device
// groups of different nodes that are alike in everything but instance IDs and
// unique attributes.
func PerNode(ask model.DeviceAsk) bool {
	for _, c := range ask.Constraints {
		for _, side := range []string{c.Left, c.Right} {
			if side == deviceIDs || strings.HasPrefix(side, deviceAttr+UniquePrefix) {
				return true
			}
		}
	}
	return false
}

const (
	deviceIDs  = "${device.ids}"
	deviceAttr = "${device.attr."
)

// MatchesDevice reports whether a device group has the ask's name and meets
// its constraints. Count matters for shared GPUs only: several time slices are not
// several GPUs.
func (c *Checker) MatchesDevice(ask model.DeviceAsk, g *DeviceGroup) bool {
	if !nameMatches(ask.Name, g) || !sharingMatches(ask, g) {
		return false
	}
	for _, con := range ask.Constraints {
		left, leftFound := resolveDevice(con.Left, g)
		right, rightFound := resolveDevice(con.Right, g)
		if !c.checkDevice(con.Operand, left, right, leftFound, rightFound) {
			return false
		}
	}
	return true
}

// sharingMatches reports whether the ask may be served by what is shared, or not.
func sharingMatches(ask model.DeviceAsk, g *DeviceGroup) bool {
	if g.Shared {
		return ask.Shared != "" && ask.Count == 1
	}
	return ask.Shared != model.SharedOnly
}

// MatchesID reports whether one instance of a matching group may be given out:
// constraints on ${device.ids} choose among the instances too.
func (c *Checker) MatchesID(ask model.DeviceAsk, g *DeviceGroup, id string) bool {
	for _, con := range ask.Constraints {
		var other string
		switch deviceIDs {
		case con.Left:
			other = con.Right
		case con.Right:
			other = con.Left
		default:
			continue
		}
		target, found := resolveDevice(other, g)
		if !found || !c.checkDevice(con.Operand, target, attribute{text: id}, true, true) {
			return false
		}
	}
	return true
}

// nameMatches compares an ask's name, TYPE, VENDOR/TYPE or VENDOR/TYPE/MODEL,
// where an empty part matches everything.
func nameMatches(name string, g *DeviceGroup) bool {
	parts := strings.SplitN(name, "/", 3)
	vendor, typ, device := "", "", ""
	switch len(parts) {
	case 1:
		typ = parts[0]
	case 2:
		vendor, typ = parts[0], parts[1]
	default:
		vendor, typ, device = parts[0], parts[1], parts[2]
	}
	return name != "" && (vendor == "" || vendor == g.Vendor) && (typ == "" || typ == g.Type) && (device == "" || device == g.Model)
}

func resolveDevice(target string, g *DeviceGroup) (attribute, bool) {
	switch {
	case !strings.HasPrefix(target, "${"):
		return parseLiteral(target), true
	case target == deviceIDs:
		return attribute{text: strings.Join(g.IDs, ",")}, true
	case target == "${device.model}":
		return attribute{text: g.Model}, true
	case target == "${device.vendor}":
		return attribute{text: g.Vendor}, true
	case target == "${device.type}":
		return attribute{text: g.Type}, true
	case strings.HasPrefix(target, deviceAttr):
		text, found := g.Attributes[strings.TrimSuffix(target[len(deviceAttr):], "}")]
		return parseAttribute(text), found
	default:
		return attribute{}, false
	}
}
