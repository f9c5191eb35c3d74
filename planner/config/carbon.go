package config

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// CarbonSource is whom the planner asks how dirty a pool's power is.
type CarbonSource struct {
	// URL has {region} where the region goes, and Value leads to the number in the
	// answer, in g/kWh.
	URL, Value string
	// Header carries the token in TokenFile; "" is Authorization: Bearer.
	Header, TokenFile string
	// Zones are the source's names of regions that it calls otherwise than the pools.
	Zones map[string]string
	// Every is how often is asked, and Keep for how long the last good answer counts.
	Every, Keep time.Duration
}

// ReadToken reads the token anew; "" if there is no file for one.
func (s *CarbonSource) ReadToken() (string, error) {
	if s.TokenFile == "" {
		return "", nil
	}
	text, err := readFile(s.TokenFile)
	if err != nil {
		return "", fmt.Errorf("read burst.carbon.token_file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, "\r\n") {
		return "", fmt.Errorf("read burst.carbon.token_file: %s: want one line with the token", s.TokenFile)
	}
	return token, nil
}

// CarbonZones are the source's names of the pools' regions, by pool.
func (b *Burst) CarbonZones() map[string]string {
	out := map[string]string{}
	if b.Carbon == nil || b.Pools == nil {
		return out
	}
	for i := range b.Pools.Pools {
		p := &b.Pools.Pools[i]
		out[p.Name] = p.Region
		if zone := b.Carbon.Zones[p.Region]; zone != "" {
			out[p.Name] = zone
		}
	}
	return out
}

type fileCarbon struct {
	URL       *string            `hcl:"url,optional"`
	Value     *string            `hcl:"value,optional"`
	Header    *string            `hcl:"header,optional"`
	TokenFile *string            `hcl:"token_file,optional"`
	Zones     *map[string]string `hcl:"zones,optional"`
	Every     *string            `hcl:"every,optional"`
	Keep      *string            `hcl:"keep,optional"`
}

// shortest is how often a source is asked at most: figures come by the quarter of
// an hour, and the services count requests.
const shortest = time.Minute

func (l *loader) mergeCarbon(c *Config, f *fileCarbon) {
	if f == nil {
		return
	}
	s := CarbonSource{Value: "carbonIntensity", Every: 15 * time.Minute, Keep: 6 * time.Hour}
	set(&s.URL, f.URL)
	set(&s.Value, f.Value)
	set(&s.Header, f.Header)
	set(&s.TokenFile, f.TokenFile)
	if f.Zones != nil {
		s.Zones = *f.Zones
	}
	l.duration(&s.Every, f.Every, "burst.carbon.every")
	l.duration(&s.Keep, f.Keep, "burst.carbon.keep")
	l.checkCarbon(&s)
	if s.TokenFile != "" {
		s.TokenFile = l.beside("burst.carbon.token_file", s.TokenFile)
	}
	c.Burst.Carbon = &s
}

const carbonRegion = "{region}"

// zoneName is what may stand for a region in a URL as it is.
var zoneName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// headerName is one that HTTP allows.
var headerName = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

func (l *loader) checkCarbon(s *CarbonSource) {
	const key = "burst.carbon."
	u, err := url.Parse(strings.ReplaceAll(s.URL, carbonRegion, "x"))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || !strings.Contains(s.URL, carbonRegion):
		// The value itself may have a key in it.
		l.faultText(key+"url", key+`url: want a URL with {region} in it, as "https://HOST/latest?zone={region}"`)
	case u.User != nil:
		l.faultText(key+"url", key+"url: a password is for token_file, and not for the URL")
	case s.TokenFile != "" && u.Scheme != "https":
		l.faultText(key+"url", key+"url: want https, so that nobody reads the token on the way")
	default:
		if other, err := url.Parse(strings.ReplaceAll(s.URL, carbonRegion, "y")); err != nil || other.Host != u.Host {
			l.faultText(key+"url", key+"url: want {region} behind the host, so that one host is asked")
		}
	}
	if s.Value == "" || slices.Contains(strings.Split(s.Value, "."), "") {
		l.fault(key+"value", s.Value, `want the way to the number, as "carbonIntensity" or "data.0.intensity.actual"`)
	}
	if s.Header != "" && !headerName.MatchString(s.Header) {
		l.fault(key+"header", s.Header, "want a header's name: letters, digits, dashes")
	}
	if s.Header != "" && s.TokenFile == "" {
		l.fault(key+"header", s.Header, "want token_file, too; there is nothing to put there", key+"token_file")
	}
	if s.Every < shortest {
		l.fault(key+"every", s.Every, "want 1m or more")
	}
	if s.Keep < s.Every {
		l.fault(key+"keep", s.Keep, fmt.Sprintf("want %s (every) or more, else there is no figure between two answers", s.Every), key+"every")
	}
	for _, region := range slices.Sorted(maps.Keys(s.Zones)) {
		if !zoneName.MatchString(s.Zones[region]) {
			l.fault(key+"zones", s.Zones[region], "want the source's name of a region: letters, digits, and . _ -, at most 64")
		}
	}
}

// checkZones finds regions that cannot be asked for, and zones of no pool.
func (l *loader) checkZones(c *Config) {
	if c.Burst.Carbon == nil {
		return
	}
	regions := map[string]bool{}
	for i := range c.Burst.Pools.Pools {
		regions[c.Burst.Pools.Pools[i].Region] = true
	}
	for _, region := range slices.Sorted(maps.Keys(c.Burst.Carbon.Zones)) {
		if !regions[region] {
			l.fault("burst.carbon.zones", region, suggest(region, slices.Sorted(maps.Keys(regions))))
		}
	}
	zones := c.Burst.CarbonZones()
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		if !zoneName.MatchString(zones[name]) {
			l.fault("burst.carbon.zones", zones[name], fmt.Sprintf("want a name in zones for this region of pool %q, of letters, digits, and . _ -", name))
		}
	}
}
