package feasible

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Fault says what is wrong with a constraint whatever the nodes are; empty if
// nothing is. A side that is looked up on each node is not judged.
func (c *Checker) Fault(con model.Constraint) string {
	open := strings.HasPrefix(con.Right, "${")
	switch con.Operand {
	case "=", "is_set": // most are
		return ""
	case "regexp":
		if !open && c.regexp(con.Right) == nil {
			return fmt.Sprintf("%q is no regular expression", con.Right)
		}
	case "version", "semver":
		if !open && !c.isRange(con.Right, con.Operand == "semver") {
			return fmt.Sprintf("%q is no range of versions: want one like \">= 1.2, < 2\"", con.Right)
		}
	case OperandDistinctProperty:
		if n, err := strconv.ParseUint(con.Right, 10, 31); con.Right != "" && (err != nil || n == 0) {
			return fmt.Sprintf("%q is no count: want 1 or more, or nothing for 1", con.Right)
		}
	default:
		if !slices.Contains(model.Operands, con.Operand) {
			return fmt.Sprintf("%q is no operand: want one of %s", con.Operand, strings.Join(model.Operands, " "))
		}
	}
	return ""
}

func (c *Checker) isRange(text string, strict bool) bool {
	return len(c.versionRanges(text, strict)) > 0
}
