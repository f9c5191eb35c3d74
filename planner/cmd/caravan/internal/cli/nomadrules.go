package cli

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	goversion "github.com/hashicorp/go-version"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

// What Nomad's servers allow unless they are configured otherwise
// (job_max_priority, job_max_count).
const (
	nomadMaxPriority = 100
	nomadMaxCount    = 50_000
)

// jobTypes are those that can be submitted.
var jobTypes = []string{api.JobTypeService, api.JobTypeBatch, api.JobTypeSystem, api.JobTypeSysbatch}

// nomadFaults finds what Nomad refuses of a job whatever the cluster is like,
// with what is allowed instead.
func nomadFaults(job *api.Job, r rules) []string {
	f := &jobFaults{}
	f.names(job)
	if t := gangspec.Type(job); !slices.Contains(jobTypes, t) {
		f.addf("job: type = %q: allowed is %s", t, strings.Join(jobTypes, ", "))
	}
	if p := job.Priority; p != nil && (*p < 1 || *p > r.maxPriority) {
		f.addf("job: priority = %d: allowed is 1 to %d, the servers' job_max_priority (--max-priority says another)", *p, r.maxPriority)
	}
	if n := members(job); r.maxCount > 0 && n > r.maxCount {
		f.addf("job: count = %d in all groups together: allowed is at most %d, the servers' job_max_count (--max-count says another)", n, r.maxCount)
	}
	f.conditions("job", job.Constraints, job.Affinities)
	for _, g := range job.TaskGroups {
		if g == nil {
			continue
		}
		where := fmt.Sprintf("group %q", deref(g.Name))
		f.conditions(where, g.Constraints, g.Affinities)
		for _, t := range g.Tasks {
			if t != nil {
				f.task(fmt.Sprintf("task %q of %s", t.Name, where), t)
			}
		}
	}
	return f.list
}

// members counts all groups' members, and stops at the largest number.
func members(job *api.Job) int {
	n := 0
	for _, g := range job.TaskGroups {
		if g == nil {
			continue
		}
		c := max(0, gangspec.Count(g))
		if c > math.MaxInt-n {
			return math.MaxInt
		}
		n += c
	}
	return n
}

type jobFaults struct{ list []string }

func (f *jobFaults) addf(format string, args ...any) {
	f.list = append(f.list, fmt.Sprintf(format, args...))
}

// names checks what things are called. That two have one name is found when
// the file is parsed.
func (f *jobFaults) names(job *api.Job) {
	switch id := deref(job.ID); {
	case id == "":
		f.addf("job: id = %q: it must not be empty", id)
	case strings.ContainsAny(id, " \x00"):
		f.addf("job: id = %q: it must not hold blanks or null characters", id)
	}
	if strings.Contains(deref(job.Name), "\x00") {
		f.addf("job: name = %q: it must not hold null characters", *job.Name)
	}
	for _, dc := range job.Datacenters {
		if dc == "" {
			f.addf("job: datacenters = %q: none may be empty", job.Datacenters)
		}
	}
}

func (f *jobFaults) task(where string, t *api.Task) {
	if strings.ContainsAny(t.Name, `/\`) {
		f.addf("%s: the name must not hold slashes", where)
	}
	if t.Driver == "" {
		f.addf("%s: driver: one must be named", where)
	}
	f.conditions(where, t.Constraints, t.Affinities)
	if t.Resources == nil {
		return
	}
	for _, d := range t.Resources.Devices {
		if d != nil {
			f.conditions(fmt.Sprintf("device %q of %s", d.Name, where), d.Constraints, d.Affinities)
		}
	}
}

// conditions checks constraints, and the affinities, which have the same
// operators.
func (f *jobFaults) conditions(where string, constraints []*api.Constraint, affinities []*api.Affinity) {
	for _, c := range constraints {
		if c != nil {
			f.condition(where+": constraint", c.LTarget, c.Operand, c.RTarget)
		}
	}
	for _, a := range affinities {
		if a != nil {
			f.condition(where+": affinity", a.LTarget, a.Operand, a.RTarget)
		}
	}
}

func (f *jobFaults) condition(where, attribute, operator, value string) {
	var err error
	what := "a regular expression (RE2)"
	switch operator {
	case api.ConstraintRegex:
		_, err = regexp.Compile(value)
	case api.ConstraintVersion, api.ConstraintSemver:
		what = `a version constraint such as ">= 1.2, < 2.0"`
		_, err = goversion.NewConstraint(value)
	}
	if err != nil {
		f.addf("%s on %s: value = %q: allowed is %s: %v", where, attribute, value, what, err)
	}
}
