// Package mig knows into which parts NVIDIA GPUs can be divided (Multi-Instance
// GPU), and which of them fit on one GPU together.
package mig

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Mark stands in the model of an instance between the GPU's model and the
// profile: "NVIDIA H100 80GB HBM3 MIG 1g.10gb".
const Mark = " MIG "

// Profile is a kind of instance of one model of GPU.
type Profile struct {
	// Name is NVIDIA's, "1g.10gb".
	Name string
	// Compute is how many of the GPU's compute slices it takes, Memory how many
	// of its memory slices.
	Compute, Memory int
	// Starts are the memory slices at which it may begin.
	Starts []int
}

// Geometry is what one model can be divided into.
type Geometry struct {
	// Compute and Memory are the slices of the whole GPU.
	Compute, Memory int
	// Profiles are in the order of their size.
	Profiles []Profile
}

// sevenths are the profiles of the GPUs with seven compute and eight memory
// slices, with the names for memory of one, two, four and eight of those. The
// placements are those of NVIDIA's MIG User Guide, R580, "Supported MIG Profiles"
// and "GPU Instance Placements" (nvidia-smi mig -lgipp), which are the same for
// A100, H100, H200 and B200. The profiles with media extensions (+me, +gfx) and
// those that share compute (1c.…) are left out: they are made by hand.
func sevenths(one, two, half, whole string) Geometry {
	return Geometry{Compute: 7, Memory: 8, Profiles: []Profile{
		{"1g." + one, 1, 1, []int{0, 1, 2, 3, 4, 5, 6}},
		{"1g." + two, 1, 2, []int{0, 2, 4, 6}},
		{"2g." + two, 2, 2, []int{0, 2, 4}},
		{"3g." + half, 3, 4, []int{0, 4}},
		{"4g." + half, 4, 4, []int{0}},
		{"7g." + whole, 7, 8, []int{0}},
	}}
}

// fourths are the profiles of the A30, which has four slices of both.
var fourths = Geometry{Compute: 4, Memory: 4, Profiles: []Profile{
	{"1g.6gb", 1, 1, []int{0, 1, 2, 3}},
	{"2g.12gb", 2, 2, []int{0, 2}},
	{"4g.24gb", 4, 4, []int{0}},
}}

// models are the geometries by what a model's name says. The first that matches
// counts.
var models = []struct {
	name     *regexp.Regexp
	geometry Geometry
}{
	{regexp.MustCompile(`\bA30\b`), fourths},
	{regexp.MustCompile(`\bA100\b.*\b40GB\b`), sevenths("5gb", "10gb", "20gb", "40gb")},
	{regexp.MustCompile(`\bA100\b.*\b80GB\b`), sevenths("10gb", "20gb", "40gb", "80gb")},
	{regexp.MustCompile(`\bH100\b.*\b80GB\b`), sevenths("10gb", "20gb", "40gb", "80gb")},
	{regexp.MustCompile(`\bH100 NVL\b`), sevenths("12gb", "24gb", "47gb", "94gb")},
	{regexp.MustCompile(`\bGH200\b.*\b480GB\b`), sevenths("12gb", "24gb", "48gb", "96gb")},
	{regexp.MustCompile(`\bH200\b`), sevenths("18gb", "35gb", "71gb", "141gb")},
	{regexp.MustCompile(`\bB200\b`), sevenths("23gb", "45gb", "90gb", "180gb")},
}

// Of is what GPUs of a model can be divided into; false if that is not known, or
// they cannot be.
func Of(model string) (Geometry, bool) {
	if strings.Contains(model, Mark) {
		return Geometry{}, false
	}
	for _, m := range models {
		if m.name.MatchString(model) {
			return m.geometry, true
		}
	}
	return Geometry{}, false
}

// Profile is one of a geometry's profiles.
func (g Geometry) Profile(name string) (Profile, bool) {
	at := slices.IndexFunc(g.Profiles, func(p Profile) bool { return p.Name == name })
	if at < 0 {
		return Profile{}, false
	}
	return g.Profiles[at], true
}

// Fits reports whether a GPU can be divided into just these instances at once.
// What it has too little of is a matter of slices, but also of where instances
// may begin: 3g, 2g and 2g fit, 2g, 2g and 3g in another order of places do not.
func (g Geometry) Fits(names []string) bool {
	if len(names) > g.Compute {
		return false
	}
	compute := 0
	list := make([]Profile, len(names))
	for i, name := range names {
		p, known := g.Profile(name)
		if !known {
			return false
		}
		list[i], compute = p, compute+p.Compute
	}
	if compute > g.Compute {
		return false
	}
	// The largest first: those have the fewest places.
	slices.SortStableFunc(list, func(a, b Profile) int { return len(a.Starts) - len(b.Starts) })
	return place(list, 0)
}

// place tries to put instances beside those that take the memory slices in used.
func place(list []Profile, used uint64) bool {
	if len(list) == 0 {
		return true
	}
	p := list[0]
	for _, start := range p.Starts {
		mask := (uint64(1)<<p.Memory - 1) << start
		if used&mask == 0 && place(list[1:], used|mask) {
			return true
		}
	}
	return false
}

// Most is how many instances of a profile fit beside others.
func (g Geometry) Most(beside []string, name string) int {
	n := 0
	for list := append(slices.Clone(beside), name); g.Fits(list); list = append(list, name) {
		n++
	}
	return n
}

// In puts the instances of a GPU into the order in which they are to be made, the
// largest first: the driver puts each where it leaves most room, and an instance
// that was made before may be in the way of a larger one.
func (g Geometry) In(names []string) []string {
	out := slices.Clone(names)
	slices.SortStableFunc(out, func(a, b string) int {
		p, _ := g.Profile(a)
		q, _ := g.Profile(b)
		if p.Memory != q.Memory {
			return q.Memory - p.Memory
		}
		if p.Compute != q.Compute {
			return q.Compute - p.Compute
		}
		return strings.Compare(a, b)
	})
	return out
}

// Tell says a division in words: "7 × 1g.10gb", "3g.40gb, 2 × 2g.20gb"; a whole
// GPU is "one".
func Tell(names []string) string {
	if len(names) == 0 {
		return "one"
	}
	var parts []string
	for i := 0; i < len(names); {
		n := 1
		for i+n < len(names) && names[i+n] == names[i] {
			n++
		}
		if n == 1 {
			parts = append(parts, names[i])
		} else {
			parts = append(parts, strconv.Itoa(n)+" × "+names[i])
		}
		i += n
	}
	return strings.Join(parts, ", ")
}
