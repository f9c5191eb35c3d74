package feasible

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// The operands that need to see a job's other members; everything else is
// decided by one node or device group alone.
const (
	OperandDistinctHosts    = "distinct_hosts"
	OperandDistinctProperty = "distinct_property"
)

// Checker evaluates constraints and remembers compiled expressions. It is not
// safe for concurrent use. The zero value is ready.
type Checker struct {
	regexps map[string]*regexp.Regexp
	ranges  map[rangeKey][]versionRange
}

type rangeKey struct {
	text   string
	strict bool
}

// value is one resolved side of a constraint.
type value struct {
	text  string
	found bool
}

// check is (left operand right) on a node's strings.
func (c *Checker) check(operand string, left, right value) bool {
	switch operand {
	case OperandDistinctHosts, OperandDistinctProperty:
		return true
	case "!=", "not":
		// A missing value is the empty string here, so it differs from any other.
		return left.text != right.text
	case "is_set":
		return left.found
	case "is_not_set":
		return !left.found
	}
	if !left.found || !right.found {
		return false
	}
	switch operand {
	case "=", "==", "is":
		return left.text == right.text
	case "<", "<=", ">", ">=":
		order, ok := compareText(left.text, right.text)
		return inOrder(operand, order, ok)
	default:
		return c.checkText(operand, left.text, right.text)
	}
}

// compareText compares as integers if both are, else as floats if both are,
// else as text. The second result is false when a float is not a number: then
// no order holds.
func compareText(a, b string) (int, bool) {
	ai, aErr := strconv.ParseInt(a, 10, 64)
	bi, bErr := strconv.ParseInt(b, 10, 64)
	if aErr == nil && bErr == nil {
		return cmp.Compare(ai, bi), true
	}
	af, aErr := strconv.ParseFloat(a, 64)
	bf, bErr := strconv.ParseFloat(b, 64)
	if aErr == nil && bErr == nil {
		return cmp.Compare(af, bf), af == af && bf == bf
	}
	return strings.Compare(a, b), true
}

func inOrder(operand string, c int, comparable bool) bool {
	if !comparable {
		return false
	}
	switch operand {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	default:
		return c >= 0
	}
}

// checkText evaluates the operands that work on text, on nodes and devices
// alike.
func (c *Checker) checkText(operand, left, right string) bool {
	switch operand {
	case "version":
		return c.versionMatches(left, right, false)
	case "semver":
		return c.versionMatches(left, right, true)
	case "regexp":
		re := c.regexp(right)
		return re != nil && re.MatchString(left)
	case "set_contains", "set_contains_all":
		return setContains(left, right, true)
	case "set_contains_any":
		return setContains(left, right, false)
	default:
		return false
	}
}

func (c *Checker) versionMatches(text, ranges string, strict bool) bool {
	// The version itself is read by the lenient grammar even for semver.
	v, ok := parseVersion(text, false)
	if !ok {
		return false
	}
	parsed := c.versionRanges(ranges, strict)
	for _, r := range parsed {
		if !r.allows(v) {
			return false
		}
	}
	return len(parsed) > 0
}

// versionRanges reads ranges, none if they are malformed.
func (c *Checker) versionRanges(ranges string, strict bool) []versionRange {
	key := rangeKey{ranges, strict}
	parsed, known := c.ranges[key]
	if !known {
		parsed, _ = parseRanges(ranges, strict)
		if c.ranges == nil {
			c.ranges = map[rangeKey][]versionRange{}
		}
		c.ranges[key] = parsed
	}
	return parsed
}

// regexp compiles an expression, nil if it is malformed.
func (c *Checker) regexp(text string) *regexp.Regexp {
	if re, known := c.regexps[text]; known {
		return re
	}
	re, err := regexp.Compile(text)
	if err != nil {
		re = nil
	}
	if c.regexps == nil {
		c.regexps = map[string]*regexp.Regexp{}
	}
	c.regexps[text] = re
	return re
}

// setContains treats both as comma-separated sets: does the left one have all,
// or any, of the right one?
func setContains(left, right string, all bool) bool {
	have := map[string]bool{}
	for item := range strings.SplitSeq(left, ",") {
		have[strings.TrimSpace(item)] = true
	}
	for item := range strings.SplitSeq(right, ",") {
		if have[strings.TrimSpace(item)] != all {
			return !all
		}
	}
	return all
}

// checkDevice is (left operand right) on a device group's typed values.
func (c *Checker) checkDevice(operand string, left, right attribute, leftFound, rightFound bool) bool {
	switch operand {
	case OperandDistinctHosts, OperandDistinctProperty:
		return true
	case "is_set":
		return leftFound
	case "is_not_set":
		return !leftFound
	case "!=", "not":
		if !leftFound || !rightFound {
			return leftFound || rightFound
		}
		order, ok := left.compare(right)
		return ok && order != 0
	}
	if !leftFound || !rightFound {
		return false
	}
	switch operand {
	case "=", "==", "is":
		order, ok := left.compare(right)
		return ok && order == 0
	case "<", "<=", ">", ">=":
		order, ok := left.compare(right)
		return inOrder(operand, order, ok)
	case "version", "semver":
		// Integers count as versions ("12"), floats do not.
		if left.kind == kindInt {
			left = attribute{text: strconv.FormatInt(left.i, 10)}
		}
	}
	return left.kind == kindString && right.kind == kindString && c.checkText(operand, left.text, right.text)
}

// Describe is a constraint as people write it.
func Describe(c model.Constraint) string {
	switch {
	case c == AtHome():
		return "that it runs on no bought nodes"
	case c == InAnyPool():
		return "that it runs on bought nodes only"
	case c.Left == "${"+burstPool+"}":
		return "that it is in pool " + c.Right
	case c.Left == "":
		return strings.TrimSpace(c.Operand + " " + c.Right)
	case c.Right == "":
		return c.Left + " " + c.Operand
	default:
		return c.Left + " " + c.Operand + " " + c.Right
	}
}

// DistinctHosts reports whether constraints ask for distinct hosts. As in
// Nomad the first such constraint decides, and a right side that is no truth
// value means true.
func DistinctHosts(constraints []model.Constraint) bool {
	for _, c := range constraints {
		if c.Operand == OperandDistinctHosts {
			on, err := strconv.ParseBool(c.Right)
			return err != nil || on
		}
	}
	return false
}

// Property is a distinct_property constraint: at most Count of the members may
// share one value of Target.
type Property struct {
	Target string
	Count  int
}

// Properties lists the distinct_property constraints. A count that cannot be
// read is 0, so that nothing satisfies it, as in Nomad.
func Properties(constraints []model.Constraint) []Property {
	var out []Property
	for _, c := range constraints {
		if c.Operand != OperandDistinctProperty {
			continue
		}
		p := Property{Target: c.Left, Count: 1}
		if c.Right != "" {
			n, err := strconv.ParseUint(c.Right, 10, 31)
			if err != nil {
				n = 0
			}
			p.Count = int(n)
		}
		out = append(out, p)
	}
	return out
}
