package gangspec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

var regionName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// maxListed bounds the entries of a list in meta, maxListedName each of them.
const (
	maxListed     = 64
	maxListedName = 256
)

// regions reads the regions that a job may run in, and the data that it reads.
func (p *parser) regions() (regions, data []string) {
	regions = p.list(KeyRegions, `"eu, us"`, regionName.MatchString)
	data = p.list(KeyData, `"imagenet, laion"`, func(name string) bool {
		return len(name) <= maxListedName && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
	})
	return regions, data
}

// list reads names with commas between them.
func (p *parser) list(key, example string, ok func(string) bool) []string {
	where, v := p.setting(key)
	if where == "" {
		return nil
	}
	var out []string
	for name := range strings.SplitSeq(v, ",") {
		name = strings.TrimSpace(name)
		if name != "" && slices.Contains(out, name) {
			p.fault(where, key, v, fmt.Sprintf("%q is there twice; want each name once", name))
			return nil
		}
		if name == "" || !ok(name) || len(out) == maxListed {
			p.fault(where, key, v, fmt.Sprintf("%q does not go; allowed are up to %d different names with commas between them, such as %s", name, maxListed, example))
			return nil
		}
		out = append(out, name)
	}
	return out
}
