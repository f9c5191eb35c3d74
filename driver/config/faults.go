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

// Fault is a value of a configuration that cannot be used.
type Fault struct {
	// Key is the option's, those of blocks after their block's name and a dot.
	Key, Value string
	// Allowed says what could stand there instead.
	Allowed string
}

// Error implements error.
func (f Fault) Error() string {
	return fmt.Sprintf("%s is %q: allowed is %s", f.Key, f.Value, f.Allowed)
}

// faults collects what is wrong with a configuration.
type faults []Fault

func (f *faults) add(key string, value any, allowed string) {
	*f = append(*f, Fault{Key: key, Value: fmt.Sprint(value), Allowed: allowed})
}

// sorted is an order of their own, so that one configuration always has one
// error.
func (f faults) sorted() faults {
	slices.SortStableFunc(f, func(a, b Fault) int { return strings.Compare(a.Error(), b.Error()) })
	return f
}

// err is nil without faults.
func (f faults) err(what string) error {
	if len(f) == 0 {
		return nil
	}
	all := make([]error, len(f))
	for i, fault := range f.sorted() {
		all[i] = fault
	}
	return fmt.Errorf("read %s: %w", what, errors.Join(all...))
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
