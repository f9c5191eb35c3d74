package mig

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestOf(t *testing.T) {
	tests := map[string]string{
		"NVIDIA A100-SXM4-40GB": "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
		"NVIDIA A100 80GB PCIe": "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
		"NVIDIA H100 80GB HBM3": "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
		"NVIDIA H100 NVL":       "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb",
		"NVIDIA GH200 480GB":    "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
		"NVIDIA H200":           "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
		"NVIDIA B200":           "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb",
		"NVIDIA A30":            "1g.6gb 2g.12gb 4g.24gb",
		"NVIDIA L40S":           "",
		"AMD Instinct MI300X":   "",
		// An instance is not divided further.
		"NVIDIA H100 80GB HBM3 MIG 3g.40gb": "",
	}
	for model, want := range tests {
		g, ok := Of(model)
		var got []string
		for _, p := range g.Profiles {
			got = append(got, p.Name)
		}
		if ok != (want != "") || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %q", model, got, want)
		}
	}
}

// The combinations are those of the guide's figure of an A100, and some that are
// not in it.
func TestFits(t *testing.T) {
	g, _ := Of("NVIDIA A100-SXM4-40GB")
	tests := map[string]bool{
		"":                               true,
		"7g.40gb":                        true,
		"4g.20gb 3g.20gb":                true,
		"4g.20gb 2g.10gb 1g.5gb":         true,
		"4g.20gb 1g.5gb 1g.5gb 1g.5gb":   true,
		"3g.20gb 3g.20gb":                true,
		"3g.20gb 2g.10gb 2g.10gb":        true,
		"2g.10gb 2g.10gb 3g.20gb":        true,
		"3g.20gb 2g.10gb 1g.5gb 1g.5gb":  true,
		"2g.10gb 2g.10gb 2g.10gb 1g.5gb": true,
		"1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb":        true,
		"1g.10gb 1g.10gb 1g.10gb 1g.10gb":                         true,
		"4g.20gb 4g.20gb":                                         false,
		"3g.20gb 3g.20gb 1g.5gb":                                  false, // seven of seven computes, but no memory
		"2g.10gb 2g.10gb 2g.10gb 2g.10gb":                         false,
		"1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb": false,
		"7g.40gb 1g.5gb":                                          false,
		"9g.40gb":                                                 false,
	}
	for list, want := range tests {
		names := strings.Fields(list)
		if got := g.Fits(names); got != want {
			t.Errorf("%q fits: %v, want %v", list, got, want)
		}
		slices.Reverse(names)
		if got := g.Fits(names); got != want {
			t.Errorf("%q in another order fits: %v, want %v", list, got, want)
		}
	}
	for _, test := range []struct {
		beside, name string
		want         int
	}{{"", "1g.5gb", 7}, {"3g.20gb", "1g.5gb", 4}, {"3g.20gb", "2g.10gb", 2}, {"", "3g.20gb", 2}, {"4g.20gb", "3g.20gb", 1}, {"", "1g.10gb", 4}} {
		if got := g.Most(strings.Fields(test.beside), test.name); got != test.want {
			t.Errorf("%d × %s fit beside %q, want %d", got, test.name, test.beside, test.want)
		}
	}
}

// What fits does so without any of its parts, and takes no more than there is.
func TestFitsIsMonotone(t *testing.T) {
	g, _ := Of("NVIDIA H100 80GB HBM3")
	rapid.Check(t, func(t *rapid.T) {
		var names []string
		for range rapid.IntRange(0, 8).Draw(t, "instances") {
			names = append(names, g.Profiles[rapid.IntRange(0, len(g.Profiles)-1).Draw(t, "profile")].Name)
		}
		if !g.Fits(names) {
			return
		}
		compute, memory := 0, 0
		for i, name := range names {
			p, _ := g.Profile(name)
			compute, memory = compute+p.Compute, memory+p.Memory
			if less := slices.Delete(slices.Clone(names), i, i+1); !g.Fits(less) {
				t.Errorf("%v fits, and %v does not", names, less)
			}
		}
		if compute > g.Compute || memory > g.Memory {
			t.Errorf("%v takes %d and %d slices", names, compute, memory)
		}
		if !g.Fits(g.In(names)) || len(g.In(names)) != len(names) {
			t.Errorf("%v in order is %v", names, g.In(names))
		}
	})
}

func TestTell(t *testing.T) {
	for list, want := range map[string]string{"": "one", "1g.10gb 1g.10gb": "2 × 1g.10gb", "3g.40gb 2g.20gb 2g.20gb": "3g.40gb, 2 × 2g.20gb"} {
		if got := Tell(strings.Fields(list)); got != want {
			t.Errorf("%q is told as %q, want %q", list, got, want)
		}
	}
}
