package sched

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	version "github.com/hashicorp/go-version"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// constraintText is how Nomad prints a constraint as a reason.
func constraintText(c *api.Constraint) string {
	return fmt.Sprintf("%s %s %s", c.LTarget, c.Operand, c.RTarget)
}

// escapes says whether a target is not covered by the computed node class.
func escapes(target string) bool {
	for _, prefix := range []string{"${unique.", "${node.unique.", "${attr.unique.", "${meta.unique."} {
		if strings.HasPrefix(target, prefix) {
			return true
		}
	}
	return false
}

func anyEscapes(cs []*api.Constraint) bool {
	for _, c := range cs {
		if escapes(c.LTarget) || escapes(c.RTarget) {
			return true
		}
	}
	return false
}

// resolve interpolates one side of a constraint for a node.
func resolve(target string, n *state.Node) (string, bool) {
	if !strings.HasPrefix(target, "${") {
		return target, true
	}
	switch target {
	case "${node.unique.id}":
		return n.ID, true
	case "${node.unique.name}":
		return n.Name, true
	case "${node.datacenter}":
		return n.Datacenter, true
	case "${node.class}":
		return n.NodeClass, true
	case "${node.pool}":
		return n.NodePool, true
	}
	inner := strings.TrimSuffix(target, "}")
	if key, ok := strings.CutPrefix(inner, "${attr."); ok {
		v, ok := n.Attributes[key]
		return v, ok
	}
	if key, ok := strings.CutPrefix(inner, "${meta."); ok {
		v, ok := n.Meta[key]
		return v, ok
	}
	return "", false
}

// regexps are compiled patterns: a pin is one long pattern that is asked for
// every node and member.
type regexps map[string]*regexp.Regexp

// match says whether s matches; a pattern that does not compile matches
// nothing.
func (re regexps) match(pattern, s string) bool {
	c, known := re[pattern]
	if !known {
		c, _ = regexp.Compile(pattern) // nil when it is not valid
		re[pattern] = c
	}
	return c != nil && c.MatchString(s)
}

// meets says whether a node satisfies a constraint by itself; distinct_hosts
// and distinct_property are decided elsewhere.
func meets(re regexps, c *api.Constraint, n *state.Node) bool {
	l, lOK := resolve(c.LTarget, n)
	r, rOK := resolve(c.RTarget, n)
	return check(re, c.Operand, l, r, lOK, rOK)
}

// check decides a constraint on strings.
func check(re regexps, op, l, r string, lOK, rOK bool) bool {
	both := lOK && rOK
	switch op {
	case api.ConstraintDistinctHosts, api.ConstraintDistinctProperty:
		return true
	case "=", "==", "is":
		return both && l == r
	case "!=", "not":
		return lOK != rOK || l != r
	case "<", "<=", ">", ">=":
		return both && ordered(op, l, r)
	case api.ConstraintAttributeIsSet:
		return lOK
	case api.ConstraintAttributeIsNotSet:
		return !lOK
	case api.ConstraintVersion, api.ConstraintSemver:
		return both && versionMatches(op, l, r)
	case api.ConstraintRegex:
		return both && re.match(r, l)
	case api.ConstraintSetContains, api.ConstraintSetContainsAll:
		return both && setContains(l, r, true)
	case api.ConstraintSetContainsAny:
		return both && setContains(l, r, false)
	}
	return false
}

// ordered compares as integers, else as floats, else as text.
func ordered(op, l, r string) bool {
	if a, err := strconv.ParseInt(l, 10, 64); err == nil {
		if b, err := strconv.ParseInt(r, 10, 64); err == nil {
			return holds(op, cmp.Compare(a, b))
		}
	}
	if a, err := strconv.ParseFloat(l, 64); err == nil {
		if b, err := strconv.ParseFloat(r, 64); err == nil {
			return holds(op, cmp.Compare(a, b))
		}
	}
	return holds(op, cmp.Compare(l, r))
}

func holds(op string, c int) bool {
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	case ">=":
		return c >= 0
	}
	return false
}

func versionMatches(op, l, r string) bool {
	v, err := version.NewVersion(l)
	if op == api.ConstraintSemver {
		v, err = version.NewSemver(l)
	}
	if err != nil {
		return false
	}
	cs, err := version.NewConstraint(r)
	return err == nil && cs.Check(v)
}

func setContains(l, r string, all bool) bool {
	have := map[string]bool{}
	for s := range strings.SplitSeq(l, ",") {
		have[strings.TrimSpace(s)] = true
	}
	for s := range strings.SplitSeq(r, ",") {
		if have[strings.TrimSpace(s)] != all {
			return !all
		}
	}
	return all
}
