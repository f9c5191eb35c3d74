package device

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Validate says everything that Nomad, or its scheduler, would trip over in a
// fingerprint. One invalid group or attribute makes Nomad drop all devices of
// the plugin until the agent restarts.
func Validate(groups []Group) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	seenGroup, seenID := map[[3]string]bool{}, map[string]string{}
	for i, g := range groups {
		name := fmt.Sprintf("device group %d (%s/%s/%s)", i, g.Vendor, g.Type, g.Name)
		if g.Vendor == "" || g.Type == "" || g.Name == "" {
			fail("%s: vendor, type and name must all be set", name)
		}
		// Nomad keeps one group per vendor, type and name and drops the other.
		if key := [3]string{g.Vendor, g.Type, g.Name}; seenGroup[key] {
			fail("%s: listed twice; put its devices into one group", name)
		} else {
			seenGroup[key] = true
		}
		for j, d := range g.Devices {
			switch other, dup := seenID[d.ID]; {
			case d.ID == "":
				fail("%s: device %d: the ID must be set", name, j)
			case dup:
				fail("%s: device %q is also in %s", name, d.ID, other)
			default:
				seenID[d.ID] = name
			}
		}
		for _, key := range slices.Sorted(maps.Keys(g.Attributes)) {
			if err := g.Attributes[key].Validate(); err != nil {
				fail("%s: attribute %q: %w", name, key, err)
			}
		}
	}
	return errors.Join(errs...)
}
