package speed

import "github.com/caravan-sched/caravan/planner/core/model"

// Level is how far a gang's members are apart: the tightest level that they
// share.
type Level uint8

// The levels, nearest first.
const (
	Island Level = iota // all GPUs joined by NVLink
	Node
	Domain // an NVLink domain of several nodes
	Rack
	Block
	Wider // nothing below the zone in common, or a level that is not known here
)

func (l Level) String() string { return model.SpeedLevels[min(l, Wider)] }

// ParseLevel is the level of that name; Wider for all others (zone, region, …),
// which is the slowest that it may be.
func ParseLevel(name string) Level {
	for i, n := range model.SpeedLevels {
		if n == name {
			return Level(i)
		}
	}
	return Wider
}
