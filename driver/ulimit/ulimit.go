// Package ulimit is how users write resource limits.
package ulimit

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Unlimited is the kernel's RLIM_INFINITY.
const Unlimited = math.MaxUint64

// resources are the names that limits are known by, as in prlimit(1).
var resources = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU,
	"data": unix.RLIMIT_DATA, "fsize": unix.RLIMIT_FSIZE, "locks": unix.RLIMIT_LOCKS,
	"memlock": unix.RLIMIT_MEMLOCK, "msgqueue": unix.RLIMIT_MSGQUEUE, "nice": unix.RLIMIT_NICE,
	"nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC, "rss": unix.RLIMIT_RSS,
	"rtprio": unix.RLIMIT_RTPRIO, "rttime": unix.RLIMIT_RTTIME, "sigpending": unix.RLIMIT_SIGPENDING,
	"stack": unix.RLIMIT_STACK,
}

// Resource is the number of a resource of setrlimit(2) by its name.
func Resource(name string) (number int, known bool) {
	number, known = resources[name]
	return number, known
}

// Names are the known resources, in order.
func Names() []string { return slices.Sorted(maps.Keys(resources)) }

// Parse reads "soft:hard" or one value for both; each is a number or
// "unlimited".
func Parse(value string) (soft, hard uint64, err error) {
	first, second, both := strings.Cut(value, ":")
	if soft, err = ParseOne(first); err != nil {
		return 0, 0, err
	}
	if !both {
		return soft, soft, nil
	}
	if hard, err = ParseOne(second); err != nil {
		return 0, 0, err
	}
	if soft > hard {
		return 0, 0, errors.New("has a soft limit above its hard limit")
	}
	return soft, hard, nil
}

// ParseOne reads a number or "unlimited".
func ParseOne(s string) (uint64, error) {
	s = strings.TrimSpace(s)
	if s == "unlimited" || s == "infinity" || s == "-1" {
		return Unlimited, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, errors.New(`is not a limit; allowed are a number or "unlimited", or two of them, "soft:hard"`)
	}
	return n, nil
}

// Text is a limit as ParseOne reads it.
func Text(n uint64) string {
	if n == Unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}
