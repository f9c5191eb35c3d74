package attr

import (
	"maps"
	"math/big"
	"slices"
	"strings"
)

type dimension int

const (
	bytes dimension = iota + 1
	byteRate
	hertz
	watts
)

// unit is a unit's factor over its dimension's base: byte, byte/s, Hz, W.
type unit struct {
	dimension dimension
	factor    *big.Rat
}

// units are those that Nomad accepts. "kB" and "KB" are the same.
var units = func() map[string]unit {
	all := map[string]unit{}
	add := func(d dimension, name string, base, power int64) {
		f := new(big.Int).Exp(big.NewInt(base), big.NewInt(power), nil)
		all[name] = unit{dimension: d, factor: new(big.Rat).SetInt(f)}
	}
	for i, p := range []string{"K", "M", "G", "T", "P", "E"} {
		power := int64(i + 1)
		for suffix, d := range map[string]dimension{"": bytes, "/s": byteRate} {
			add(d, p+"iB"+suffix, 1024, power)
			add(d, p+"B"+suffix, 1000, power)
		}
	}
	add(bytes, "kB", 1000, 1)
	add(byteRate, "kB/s", 1000, 1)
	add(hertz, "MHz", 1000, 2)
	add(hertz, "GHz", 1000, 3)
	all["mW"] = unit{dimension: watts, factor: big.NewRat(1, 1000)}
	add(watts, "W", 1000, 0)
	add(watts, "kW", 1000, 1)
	add(watts, "MW", 1000, 2)
	add(watts, "GW", 1000, 3)
	return all
}()

// unitNames are sorted, longest first, so that "MiB/s" is not read as "s".
var unitNames = func() []string {
	return slices.SortedFunc(maps.Keys(units), func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
}()

// Units returns the names of the units that Nomad accepts, sorted.
func Units() []string { return slices.Sorted(maps.Keys(units)) }

// splitUnit takes a known unit off the end of s.
func splitUnit(s string) (number, unit string) {
	for _, name := range unitNames {
		if rest, ok := strings.CutSuffix(s, name); ok {
			return strings.TrimSpace(rest), name
		}
	}
	return s, ""
}
