package exec

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caravan-sched/caravan/driver/ulimit"
)

// rlimit is one resource limit of setrlimit(2).
type rlimit struct {
	Name     string `json:"name"`
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

// rlimits reads all ulimits, in the order of their names.
func (h host) rlimits(ulimits map[string]string) ([]rlimit, []Fault) {
	var limits []rlimit
	var faults []Fault
	for _, name := range slices.Sorted(maps.Keys(ulimits)) {
		field, value := "ulimits."+name, ulimits[name]
		resource, known := ulimit.Resource(name)
		if !known {
			names := strings.Join(ulimit.Names(), ", ")
			faults = append(faults, Fault{Field: field, Value: value, Why: "is for no known resource; there are " + names})
			continue
		}
		soft, hard, err := ulimit.Parse(value)
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
		if most, parsed := ulimit.ParseOne(string(data)); err == nil && parsed == nil && limit.Hard > most {
			return fmt.Sprintf("is above this host's fs.nr_open; at most %d", most)
		}
	}
	var now unix.Rlimit
	if capable(unix.CAP_SYS_RESOURCE) || unix.Getrlimit(limit.Resource, &now) != nil || limit.Hard <= now.Max {
		return ""
	}
	return fmt.Sprintf("is above the agent's own hard limit, which it may not raise (CAP_SYS_RESOURCE); at most %s", ulimit.Text(now.Max))
}
