package model

import "math"

func (s *Snapshot) validateRegions(f *faults) {
	seen := map[string]bool{}
	for i := range s.Regions {
		r := &s.Regions[i]
		switch {
		case r.Name == "":
			f.add("regions[%d].name: empty: want the region's name", i)
		case seen[r.Name]:
			f.add("regions[%d].name: %q: is listed before; want each once", i, r.Name)
		}
		seen[r.Name] = true
		if !possible(r.Carbon) {
			f.add("regions[%d] (%s).carbon: %g: want 0 (unknown) to 3.4e38", i, r.Name, r.Carbon)
		}
		for _, name := range sortedKeys(r.Price) {
			if price := r.Price[name]; name == "" || !possible(price) {
				f.add("regions[%d] (%s).price[%q]: %g: want a model, and 0 to 3.4e38", i, r.Name, name, price)
			}
		}
	}
}

func possible(x float64) bool { return x >= 0 && x <= math.MaxFloat32 } // no NaN
