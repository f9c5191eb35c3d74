package gangspec

import (
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// DefaultDevices are the device patterns managed unless the operator says
// otherwise.
var DefaultDevices = []string{"nvidia/gpu"}

// Managed says whether Caravan manages the job: a service or batch job that
// asks for a device matching one of the patterns. A pattern is "type",
// "vendor/type" or "vendor/type/model"; it matches every request that could be
// served by such a device, so "nvidia/gpu" matches "gpu", "nvidia/gpu" and
// "nvidia/gpu/H100".
func Managed(job *api.Job, devices []string) bool {
	return Asks(job, devices) && Unmanageable(job) == ""
}

// Asks says whether any task asks for a device matching one of the patterns.
func Asks(job *api.Job, devices []string) bool {
	if job == nil {
		return false
	}
	for _, g := range job.TaskGroups {
		if GroupAsks(g, devices) {
			return true
		}
	}
	return false
}

// GroupAsks says whether any of the group's tasks asks for a device matching
// one of the patterns.
func GroupAsks(g *api.TaskGroup, devices []string) bool {
	if g == nil {
		return false
	}
	for _, t := range g.Tasks {
		if t == nil || t.Resources == nil {
			continue
		}
		for _, d := range t.Resources.Devices {
			if d != nil && MatchesAny(d.Name, devices) {
				return true
			}
		}
	}
	return false
}

// Unmanageable says why Caravan leaves a job to Nomad whatever it asks for,
// in words that fit after "left to Nomad: "; "" means that it need not.
func Unmanageable(job *api.Job) string {
	switch {
	case job == nil:
		return "there is no job"
	case job.IsMultiregion():
		return "multiregion jobs are rolled out by Nomad Enterprise itself"
	case job.IsParameterized():
		return "a parameterized job runs nothing itself, and its children cannot be registered again; submit them as ordinary jobs"
	case job.IsPeriodic():
		return "a periodic job runs nothing itself, and its children would lose their parent; submit them as ordinary jobs"
	case job.Dispatched:
		return "a dispatched job cannot be registered again"
	case deref(job.ParentID) != "":
		return fmt.Sprintf("it is a child of the periodic or parameterized job %q and would lose its parent", *job.ParentID)
	}
	switch t := Type(job); t {
	case api.JobTypeService, api.JobTypeBatch:
		return ""
	default:
		return fmt.Sprintf("a gate would stop a %s job", t)
	}
}

// Written lists the contract's keys that stand in the meta of the job or of a
// group, in the order of the contract's documentation. In a job that Caravan
// leaves to Nomad they do nothing.
func Written(job *api.Job) []string {
	if job == nil {
		return nil
	}
	var out []string
	for _, key := range keys {
		_, found := job.Meta[key]
		for _, g := range job.TaskGroups {
			if g != nil && !found {
				_, found = g.Meta[key]
			}
		}
		if found {
			out = append(out, key)
		}
	}
	return out
}

// Type is a job's type as Nomad completes it.
func Type(job *api.Job) string {
	if t := deref(job.Type); t != "" {
		return t
	}
	return api.JobTypeService
}

// MatchesAny says whether a device request can be served by a device of one of
// the patterns.
func MatchesAny(request string, patterns []string) bool {
	for _, p := range patterns {
		if deviceMatches(request, p) {
			return true
		}
	}
	return false
}

func deviceMatches(request, pattern string) bool {
	rv, rt, rm := splitDevice(request)
	pv, pt, pm := splitDevice(pattern)
	return agree(rv, pv) && agree(rm, pm) && rt == pt && rt != ""
}

// agree says whether two names, "" meaning any, can name one thing.
func agree(a, b string) bool { return a == "" || b == "" || a == b }

// splitDevice takes Nomad's device name apart. A model may hold slashes.
func splitDevice(name string) (vendor, kind, deviceModel string) {
	parts := strings.SplitN(name, "/", 3)
	switch len(parts) {
	case 1:
		return "", parts[0], ""
	case 2:
		return parts[0], parts[1], ""
	default:
		return parts[0], parts[1], parts[2]
	}
}
