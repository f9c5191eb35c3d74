package exec

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// rlimit is one resource limit of setrlimit(2).
type rlimit struct {
	Name     string `json:"name"`
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

// unlimited is the kernel's RLIM_INFINITY.
const unlimited = math.MaxUint64

// resources are the names that ulimits are known by, as in prlimit(1).
var resources = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU,
	"data": unix.RLIMIT_DATA, "fsize": unix.RLIMIT_FSIZE, "locks": unix.RLIMIT_LOCKS,
	"memlock": unix.RLIMIT_MEMLOCK, "msgqueue": unix.RLIMIT_MSGQUEUE, "nice": unix.RLIMIT_NICE,
	"nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC, "rss": unix.RLIMIT_RSS,
	"rtprio": unix.RLIMIT_RTPRIO, "rttime": unix.RLIMIT_RTTIME, "sigpending": unix.RLIMIT_SIGPENDING,
	"stack": unix.RLIMIT_STACK,
}

// parseUlimit reads "soft:hard" or one value for both; each is a number or
// "unlimited".
func parseUlimit(value string) (soft, hard uint64, err error) {
	first, second, both := strings.Cut(value, ":")
	if soft, err = parseLimit(first); err != nil {
		return 0, 0, err
	}
	if !both {
		return soft, soft, nil
	}
	if hard, err = parseLimit(second); err != nil {
		return 0, 0, err
	}
	if soft > hard {
		return 0, 0, errors.New("has a soft limit above its hard limit")
	}
	return soft, hard, nil
}

func parseLimit(s string) (uint64, error) {
	s = strings.TrimSpace(s)
	if s == "unlimited" || s == "infinity" || s == "-1" {
		return unlimited, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, errors.New(`is not a limit; allowed are a number or "unlimited", or two of them, "soft:hard"`)
	}
	return n, nil
}

// rlimits reads all ulimits, in the order of their names.
func (h host) rlimits(ulimits map[string]string) ([]rlimit, []Fault) {
	var limits []rlimit
	var faults []Fault
	for _, name := range slices.Sorted(maps.Keys(ulimits)) {
		field, value := "ulimits."+name, ulimits[name]
		resource, known := resources[name]
		if !known {
			names := strings.Join(slices.Sorted(maps.Keys(resources)), ", ")
			faults = append(faults, Fault{Field: field, Value: value, Why: "is for no known resource; there are " + names})
			continue
		}
		soft, hard, err := parseUlimit(value)
		if err != nil {
			faults = append(faults, Fault{Field: field, Value: value, Why: err.Error()})
			continue
		}
		limit := rlimit{Name: name, Resource: resource, Soft: soft, Hard: hard}
		if why := h.refusesLimit(limit); why != "" {
			faults = append(faults, Fault{Field: field, Value: value, Why: why})
		}
		limits = append(limits, limit)
	}
	return limits, faults
}

// refusesLimit says why the host would not let a limit be set, as far as that
// can be known before.
func (h host) refusesLimit(limit rlimit) string {
	if limit.Resource == unix.RLIMIT_NOFILE {
		data, err := os.ReadFile(filepath.Join(h.proc, "sys/fs/nr_open"))
		if most, parsed := parseLimit(string(data)); err == nil && parsed == nil && limit.Hard > most {
			return fmt.Sprintf("is above this host's fs.nr_open; at most %d", most)
		}
	}
	var now unix.Rlimit
	if capable(unix.CAP_SYS_RESOURCE) || unix.Getrlimit(limit.Resource, &now) != nil || limit.Hard <= now.Max {
		return ""
	}
	return fmt.Sprintf("is above the agent's own hard limit, which it may not raise (CAP_SYS_RESOURCE); at most %s", limitText(now.Max))
}

func limitText(n uint64) string {
	if n == unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}
