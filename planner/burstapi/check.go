package burstapi

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The most that a report may hold.
const (
	maxMessage = 4096
	maxName    = 128
	maxNodes   = 4096
	maxLived   = 10 * 366 * 24 * 3600 // ten years
)

var (
	kinds   = []Kind{ReportOrdered, ReportPresent, ReportFailed, ReportGone, ReportInDoubt}
	reasons = []Reason{ReasonCapacity, ReasonQuota, ReasonTimeout, ReasonRefused, ReasonError}
)

// Check reports every fault of a report, joined. A message that is too long is no
// fault: it is cut.
func (r *Report) Check() error {
	var faults []error
	add := func(field string, value any, want string) {
		faults = append(faults, fmt.Errorf("%s: %q: want %s", field, fmt.Sprint(value), want))
	}
	if r.Pool == "" || len(r.Pool) > maxName {
		add("pool", r.Pool, "the pool's name")
	}
	if r.Purchase == "" || len(r.Purchase) > maxName {
		add("purchase", r.Purchase, "the purchase's ID")
	}
	if !slices.Contains(kinds, r.Kind) {
		add("kind", r.Kind, "one of "+list(kinds))
	}
	switch {
	case r.Kind == ReportFailed && !slices.Contains(reasons, r.Reason):
		add("reason", r.Reason, "one of "+list(reasons)+" with kind failed")
	case r.Kind != ReportFailed && r.Reason != "":
		add("reason", r.Reason, "none unless the kind is failed")
	}
	if len(r.Nodes) > maxNodes {
		add("nodes", fmt.Sprintf("%d names", len(r.Nodes)), fmt.Sprintf("at most %d", maxNodes))
	}
	for i, name := range r.Nodes {
		if name == "" || len(name) > maxName {
			add(fmt.Sprintf("nodes[%d]", i), name, "a key of the pool's map of nodes")
		}
	}
	if len(r.Lived) > maxNodes {
		add("lived_s", fmt.Sprintf("%d names", len(r.Lived)), fmt.Sprintf("at most %d", maxNodes))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Lived)) {
		if s := r.Lived[name]; name == "" || len(name) > maxName || !(s >= 0 && s <= maxLived) {
			add("lived_s["+name+"]", s, fmt.Sprintf("a key of the pool's map of nodes, and from 0 to %g seconds", float64(maxLived)))
		}
	}
	if len(r.Message) > maxMessage {
		r.Message = strings.ToValidUTF8(r.Message[:maxMessage], "") + "…"
	}
	return errors.Join(faults...)
}

func list[T ~string](words []T) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return strings.Join(out, ", ")
}
