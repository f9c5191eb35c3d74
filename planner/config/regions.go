package config

import (
	"fmt"
	"math"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// The regions' form in the file; the doc of each key is in docs/regions.md.
type fileRegion struct {
	Name   string              `hcl:"name,label"`
	Price  *map[string]float64 `hcl:"price,optional"`
	Carbon *float64            `hcl:"carbon,optional"`
	Data   *[]string           `hcl:"data,optional"`
}

// mergeRegions takes over what is said of regions.
func (l *loader) mergeRegions(c *Config, list []fileRegion) {
	for i := range list {
		f := &list[i]
		key, place := "region["+f.Name+"]", fmt.Sprintf("region[#%d]", i)
		r := model.Region{Name: f.Name}
		set(&r.Price, f.Price)
		set(&r.Carbon, f.Carbon)
		set(&r.Data, f.Data)
		if f.Name == "" {
			l.faultText(place, `region is "": the block's label is the region's name`)
		}
		if slices.ContainsFunc(c.Regions, func(o model.Region) bool { return o.Name == f.Name }) {
			l.faultText(place, key+" is there twice: keep one")
			continue
		}
		for name, price := range r.Price {
			if name == "" || !(price >= 0 && price <= math.MaxFloat32) {
				l.fault(key+".price", price, "want for each model what a GPU costs in an hour, 0 or more")
				break
			}
		}
		if !(r.Carbon >= 0 && r.Carbon <= math.MaxFloat32) {
			l.fault(key+".carbon", r.Carbon, "want grams of CO2 per kWh, 0 or more")
		}
		if slices.Contains(r.Data, "") {
			l.fault(key+".data", "", "want names of data sets, as jobs write them in caravan_data")
		}
		c.Regions = append(c.Regions, r)
	}
}
