package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// faults collects what is wrong with a configuration.
type faults []error

func (f *faults) add(key string, value any, allowed string) {
	*f = append(*f, fmt.Errorf("%s is %q: allowed is %s", key, fmt.Sprint(value), allowed))
}

// err is nil without faults. They come in an order of their own, so that one
// configuration always has one error.
func (f faults) err(what string) error {
	if len(f) == 0 {
		return nil
	}
	slices.SortFunc(f, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return fmt.Errorf("read %s: %w", what, errors.Join(f...))
}

// mostDuration is longer than anything waits; it keeps sums of durations from
// overflowing.
const mostDuration = 365 * 24 * time.Hour

func (f *faults) duration(key, text string, fallback, least time.Duration) time.Duration {
	if text == "" {
		return fallback
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > mostDuration {
		f.add(key, text, fmt.Sprintf("a duration of %s to %s, as \"90s\" or \"10m\"", least, mostDuration))
		return fallback
	}
	return d
}

func (f *faults) signal(key, text string) string {
	if text != "" && unix.SignalNum(text) == 0 {
		f.add(key, text, "a signal's name, as \"SIGUSR1\"")
	}
	return text
}

func (f *faults) oneOf(key, text string, allowed []string) {
	if !slices.Contains(allowed, text) {
		list := strings.Join(allowed, ", ")
		if list == "" {
			list = "nothing: the operator allows none"
		}
		f.add(key, text, list)
	}
}

func (f *faults) ip(key, text string) {
	if text == "" {
		return
	}
	if _, err := netip.ParseAddr(text); err != nil {
		f.add(key, text, "an IP address")
	}
}
