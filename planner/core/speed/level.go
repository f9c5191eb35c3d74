package speed

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

var levelNames = [...]string{"island", "node", "domain", "rack", "block", "wider"}

func (l Level) String() string { return levelNames[min(l, Wider)] }

// ParseLevel is the level of that name; Wider for all others (zone, region, …),
// which is the slowest that it may be.
func ParseLevel(name string) Level {
	for i, n := range levelNames {
		if n == name {
			return Level(i)
		}
	}
	return Wider
}
