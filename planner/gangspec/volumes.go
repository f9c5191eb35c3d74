package gangspec

import (
	"maps"
	"regexp"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// What a node has of volumes is among its attributes in the model, under these
// names. Nomad filters nodes by volumes beside its constraints; the planner does
// it by constraints, so that it decides for no node that Nomad would refuse.
const (
	// AttrHostVolume and a host volume's name is what the node has of it, a list
	// of VolumeRead, VolumeWrite and VolumeDynamic.
	AttrHostVolume = "volume.host."
	// AttrHostVolumes are the names of all of them.
	AttrHostVolumes = "volume.hosts"
	// AttrCSI are the CSI plugins whose node part is healthy there.
	AttrCSI = "volume.csi"
)

// The ways in which a node has a host volume.
const (
	VolumeRead    = "read"
	VolumeWrite   = "write"
	VolumeDynamic = "dynamic"
)

// volumeConstraints are what a group's volumes demand of a node, as far as the
// node alone tells: which plugin a CSI volume needs, and who has claimed a
// volume, only Nomad knows.
func volumeConstraints(volumes map[string]*api.VolumeRequest) []model.Constraint {
	var out []model.Constraint
	for _, name := range slices.Sorted(maps.Keys(volumes)) {
		v := volumes[name]
		switch {
		case v == nil:
		case v.Type == api.CSIVolumeTypeCSI:
			out = append(out, model.Constraint{Left: "${" + AttrCSI + "}", Operand: api.ConstraintAttributeIsSet})
		case v.Type != api.CSIVolumeTypeHost && v.Type != "":
		case v.PerAlloc:
			// Each member's own, SOURCE[INDEX]; which member is where, Nomad decides
			// among the group's nodes.
			out = append(out, model.Constraint{Left: "${" + AttrHostVolumes + "}", Operand: api.ConstraintRegex,
				Right: `(^|,)` + regexp.QuoteMeta(v.Source) + `\[[0-9]+\](,|$)`})
		default:
			want := VolumeWrite
			switch {
			case v.Sticky:
				want = VolumeDynamic
			case v.ReadOnly:
				want = VolumeRead
			}
			out = append(out, model.Constraint{Left: "${" + AttrHostVolume + v.Source + "}", Operand: api.ConstraintSetContains, Right: want})
		}
	}
	return out
}
