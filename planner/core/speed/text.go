package speed

import (
	"fmt"
	"math"
)

// Sentence says how fast a gang is now, how fast it would be with another size, how
// sure that is, and what keeps it from getting faster.
func (c *Curve) Sentence(now, next Config) string {
	if c == nil {
		return "nothing is known of its speed"
	}
	out := c.say(now)
	if c.learned == nil {
		out += ", as declared"
	}
	if next.width() != now.width() {
		out += "; " + c.say(next)
	}
	if limit := c.Limit(); limit.Why != "" {
		out += "; " + limit.Why
	}
	return out
}

// say is "128 samples/s with 16 GPUs, give or take 2 % (12 measurements)".
func (c *Curve) say(at Config) string {
	e := c.At(at)
	out := fmt.Sprintf("%s %s with %s, give or take %s", short(e.Rate), c.per(), gpus(at), Percent(e.Error))
	if c.learned == nil {
		return out
	}
	if e.Seen == 0 {
		return out + " (not measured)"
	}
	return out + fmt.Sprintf(" (%s)", count(e.Seen, "measurement"))
}

// Percent is a standard error of a logarithm as people read it.
func Percent(wrong float64) string {
	percent := 100 * math.Expm1(wrong)
	switch {
	case percent > 100:
		return "100 % and more"
	case percent < 1:
		return "1 %"
	}
	return fmt.Sprintf("%.0f %%", percent)
}
