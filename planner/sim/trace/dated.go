package trace

import "time"

// clocks are how logs write a time, and offsets what stands behind it where they say how
// far their clock is from UTC. A fraction of a second may stand between the two.
var (
	clocks  = [...]string{"2006-01-02T15:04:05", "2006-01-02 15:04:05"}
	offsets = [...]string{"", "Z07:00", "Z0700", "Z07", " Z0700"}
)

// dated reads a time of day, in seconds since 1970. One that does not say how far its
// clock is from UTC counts as if it were UTC: only differences matter in a trace.
func dated(text string) (seconds float64, known bool) {
	for _, offset := range offsets {
		for _, clock := range clocks {
			if at, err := time.Parse(clock+offset, text); err == nil {
				return float64(at.Unix()) + float64(at.Nanosecond())/1e9, true
			}
		}
	}
	return 0, false
}
