package feasible

import (
	"slices"
	"strconv"
	"strings"
)

// version is a version number as hashicorp/go-version reads it: any number of
// numeric segments, an optional pre-release and build metadata. Metadata takes
// part in no comparison, so it is checked and dropped.
type version struct {
	segments []int64 // at least three, padded with zeros
	given    int     // segments that were written
	pre      string
}

// parseVersion reads a version. In a strict one (semver) the pre-release must
// be set off by a hyphen; otherwise "1.0beta2" is one too.
func parseVersion(s string, strict bool) (version, bool) {
	s = strings.TrimPrefix(s, "v")
	end := 0
	for end < len(s) && (isDigit(s[end]) || s[end] == '.') {
		end++
	}
	core, rest := s[:end], s[end:]
	var v version
	for part := range strings.SplitSeq(core, ".") {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			return version{}, false
		}
		v.segments = append(v.segments, n)
	}
	v.given = len(v.segments)
	for len(v.segments) < 3 {
		v.segments = append(v.segments, 0)
	}
	pre, meta, hasMeta := strings.Cut(rest, "+")
	if hasMeta && !dotted(meta) {
		return version{}, false
	}
	if pre == "" {
		return v, true
	}
	hyphen := pre[0] == '-'
	switch {
	case !strict && (pre == "-" || strings.HasPrefix(pre, "-.")):
		// The grammar lets a lone hyphen be an identifier of that name.
	case hyphen:
		pre = pre[1:]
	case strict:
		return version{}, false
	}
	if !dotted(pre) {
		return version{}, false
	}
	v.pre = pre
	return v, true
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// dotted reports whether s is a dot-separated list of identifiers, none empty.
func dotted(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if part == "" {
			return false
		}
		for i := range len(part) {
			b := part[i]
			if !isDigit(b) && (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && b != '-' && b != '~' {
				return false
			}
		}
	}
	return true
}

func (v version) compare(o version) int {
	if slices.Equal(v.segments, o.segments) {
		return comparePre(v.pre, o.pre)
	}
	for i := range max(len(v.segments), len(o.segments)) {
		if a, b := v.segment(i), o.segment(i); a < b {
			return -1
		} else if a > b {
			return 1
		}
	}
	// 1.0.0-a and 1.0.0.0: with different precision the pre-release is ignored.
	return 0
}

func (v version) segment(i int) int64 {
	if i < len(v.segments) {
		return v.segments[i]
	}
	return 0
}

// comparePre orders pre-releases: none is newest.
func comparePre(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == "":
		return 1
	case b == "":
		return -1
	}
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		var pa, pb string
		if i < len(as) {
			pa = as[i]
		}
		if i < len(bs) {
			pb = bs[i]
		}
		if c := comparePart(pa, pb); c != 0 {
			return c
		}
	}
	return 0
}

// comparePart orders one identifier of a pre-release. A missing one is older
// than a number and newer than a word.
func comparePart(a, b string) int {
	if a == b {
		return 0
	}
	an, aErr := strconv.ParseInt(a, 10, 64)
	bn, bErr := strconv.ParseInt(b, 10, 64)
	aNum, bNum := aErr == nil, bErr == nil
	switch {
	case a == "":
		return sign(!bNum)
	case b == "":
		return sign(aNum)
	case aNum != bNum:
		return sign(bNum)
	case !aNum && a > b:
		return 1
	default:
		// Words too: a number too large to be one counts as the largest.
		return sign(an > bn)
	}
}

func sign(greater bool) int {
	if greater {
		return 1
	}
	return -1
}

// versionRange is one of the comma-separated conditions of a version or semver
// constraint.
type versionRange struct {
	op     string
	bound  version
	strict bool
}

// parseRanges reads a constraint's right side; false if any part is malformed.
func parseRanges(s string, strict bool) ([]versionRange, bool) {
	var out []versionRange
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		op := "="
		for _, candidate := range []string{"<=", ">=", "!=", "~>", "<", ">", "="} {
			if rest, ok := strings.CutPrefix(part, candidate); ok {
				op, part = candidate, strings.TrimSpace(rest)
				break
			}
		}
		if strict && op == "~>" {
			return nil, false
		}
		bound, ok := parseVersion(part, strict)
		if !ok {
			return nil, false
		}
		out = append(out, versionRange{op: op, bound: bound, strict: strict})
	}
	return out, true
}

func (r versionRange) allows(v version) bool {
	c := v.compare(r.bound)
	switch r.op {
	case "=":
		return c == 0
	case "!=":
		return c != 0
	}
	if !r.strict && !r.preReleaseOK(v) {
		return false
	}
	switch r.op {
	case ">":
		return c > 0
	case "<":
		return c < 0
	case ">=":
		return c >= 0
	case "<=":
		return c <= 0
	default:
		return r.pessimistic(v, c)
	}
}

// preReleaseOK says whether a pre-release may be compared at all: outside of
// semver it matches only bounds that are pre-releases of the same version.
func (r versionRange) preReleaseOK(v version) bool {
	if v.pre == "" {
		return true
	}
	return r.bound.pre != "" && slices.Equal(v.segments, r.bound.segments)
}

// pessimistic is "~>": every segment but the last one written is fixed.
func (r versionRange) pessimistic(v version, c int) bool {
	b := r.bound
	if b.pre != "" && v.pre == "" || c < 0 || len(b.segments) > len(v.segments) {
		return false
	}
	last := len(b.segments) - 1
	return slices.Equal(v.segments[:b.given-1], b.segments[:b.given-1]) && v.segments[last] >= b.segments[last]
}
