package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// The federation's form in the file; the doc of each key is in docs/regions.md.
type fileFederation struct {
	Regions *[]string `hcl:"regions,optional"`
}

// regionName is what jobs may write in caravan_regions.
var regionName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// checkFederation finds what is wrong with the regions that are planned for.
func (l *loader) checkFederation(c *Config) {
	if !l.federated {
		return
	}
	const key = "federation.regions"
	if len(c.Federation) < 2 {
		l.fault(key, strings.Join(c.Federation, ", "), "want two or more of Nomad's regions; leave the federation block out to plan for one")
	}
	for i, name := range c.Federation {
		switch {
		case !regionName.MatchString(name):
			l.fault(key, name, "want the name of a Nomad region: letters, digits, and . _ -, at most 64")
		case slices.Index(c.Federation, name) < i:
			l.fault(key, name, "the region is there twice; keep one")
		}
	}
	if !slices.Contains(c.Federation, c.Nomad.Region) {
		l.fault("nomad.region", c.Nomad.Region, "with a federation, say here which of its regions nomad.address is in: "+strings.Join(c.Federation, ", "), key)
	}
	if len(c.Levels) > 0 && c.Levels[0].Name != model.LevelRegion {
		l.fault("levels", c.Levels[0].Name, `with a federation the outermost level is "`+model.LevelRegion+`"`)
	}
}
