package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	version "github.com/hashicorp/go-version"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// Admit fills a job's defaults and checks it, as Nomad does before it stores
// one. All faults are reported at once. The first result is the warnings.
func (s *Server) Admit(job *api.Job) (string, error) {
	if job == nil {
		return "", errorf(400, "Job must be specified")
	}
	f := complete(job)
	// Whatever a registration names, where it was sent to is where it is.
	if job.Multiregion == nil {
		job.Region = ptr(cmp.Or(s.cfg.Region, api.GlobalRegion))
	}
	s.store.View(func(v *state.View) { f.scopes(v, job) })
	return warnings(job), f.err()
}

// complete fills a job's defaults and finds what is wrong with the job itself.
func complete(job *api.Job) faults {
	job.Canonicalize()
	if len(job.Datacenters) == 0 {
		job.Datacenters = []string{"*"}
	}
	if deref(job.NodePool) == "" {
		job.NodePool = ptr(api.NodePoolDefault)
	}
	if deref(job.Region) == "" {
		job.Region = ptr("global")
	}
	if deref(job.Namespace) == "" {
		job.Namespace = ptr(api.DefaultNamespace)
	}
	clearServerFields(job)
	normalize(job)
	var f faults
	f.job(job)
	return f
}

// scopes finds out whether the job goes where something is.
func (f *faults) scopes(v *state.View, job *api.Job) {
	if v.Namespace(*job.Namespace) == nil {
		f.addf("job %q is in nonexistent namespace %q", deref(job.ID), *job.Namespace)
	}
	if v.Pool(*job.NodePool) == nil {
		f.addf("job %q is in nonexistent node pool %q", deref(job.ID), *job.NodePool)
	}
}

// warnings are what Nomad says about a job that it takes all the same.
func warnings(job *api.Job) string {
	var found []string
	for _, tg := range job.TaskGroups {
		var f faults
		if u := tg.Update; u != nil && deref(tg.Count) > 1 && deref(u.MaxParallel) > deref(tg.Count) {
			f.addf("Update max parallel count is greater than task group count (%d > %d). "+
				"A destructive change would result in the simultaneous replacement of all allocations.", *u.MaxParallel, *tg.Count)
		}
		if len(f) > 0 {
			found = append(found, fmt.Sprintf("Group %q has warnings: %s", deref(tg.Name), f.text()))
		}
	}
	if len(found) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d warnings:\n", len(found))
	if len(found) == 1 {
		b.Reset()
		b.WriteString("1 warning:\n")
	}
	for _, s := range found {
		b.WriteString("\n* " + strings.TrimSpace(s))
	}
	return b.String()
}

// clearServerFields drops what only the server decides.
func clearServerFields(job *api.Job) {
	job.Status, job.StatusDescription = nil, nil
	if job.Stop == nil {
		job.Stop = ptr(false)
	}
}

// CopyJob is a deep copy.
func CopyJob(j *api.Job) (*api.Job, error) {
	raw, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("copy job: %w", err)
	}
	var out api.Job
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("copy job: %w", err)
	}
	return &out, nil
}

// faults collects validation errors in Nomad's words.
type faults []string

func (f *faults) addf(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return &Error{Code: 500, Text: f.text()}
}

// text is how Nomad prints several errors.
func (f faults) text() string {
	if len(f) == 1 {
		return "1 error occurred:\n\t* " + f[0] + "\n\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d errors occurred:\n", len(f))
	for _, s := range f {
		b.WriteString("\t* " + s + "\n")
	}
	b.WriteString("\n")
	return b.String()
}

func (f *faults) job(j *api.Job) {
	switch id := deref(j.ID); {
	case id == "":
		f.addf("Missing job ID")
	case strings.Contains(id, " "):
		f.addf("Job ID contains a space")
	case strings.Contains(id, "\x00"):
		f.addf("Job ID contains a null character")
	}
	if deref(j.Name) == "" {
		f.addf("Missing job name")
	}
	switch t := deref(j.Type); t {
	case api.JobTypeService, api.JobTypeBatch, api.JobTypeSystem, api.JobTypeSysbatch:
	case "":
		f.addf("Missing job type")
	default:
		f.addf("Invalid job type: %q", t)
	}
	if len(j.TaskGroups) == 0 {
		f.addf("Missing job task groups")
	}
	f.constraints(j.Constraints)
	seen := map[string]int{}
	for i, tg := range j.TaskGroups {
		name := deref(tg.Name)
		if name == "" {
			f.addf("Job task group %d missing name", i+1)
		} else if first, dup := seen[name]; dup {
			f.addf("Job task group %d redefines '%s' from group %d", i+1, name, first+1)
		} else {
			seen[name] = i
		}
		if deref(j.Type) == api.JobTypeSystem && deref(tg.Count) > 1 {
			f.addf("Job task group %s has count %d. Count cannot exceed 1 with system scheduler", name, *tg.Count)
		}
	}
	for _, tg := range j.TaskGroups {
		var g faults
		g.group(j, tg)
		if len(g) > 0 {
			f.addf("Task group %s validation failed: %s", deref(tg.Name), g.text())
		}
	}
	if j.IsPeriodic() && deref(j.Type) != api.JobTypeBatch && deref(j.Type) != api.JobTypeSysbatch {
		f.addf("Periodic can only be used with \"batch\" or \"sysbatch\" scheduler")
	}
	if j.IsPeriodic() && deref(j.Periodic.Enabled) {
		f.periodic(j.Periodic)
	}
	if j.IsParameterized() && deref(j.Type) != api.JobTypeBatch && deref(j.Type) != api.JobTypeSysbatch {
		f.addf("Parameterized job can only be used with \"batch\" or \"sysbatch\" scheduler")
	}
	f.limits(j)
}

func (f *faults) group(j *api.Job, tg *api.TaskGroup) {
	if deref(tg.Count) < 0 {
		f.addf("Task group count can't be negative")
	}
	if len(tg.Tasks) == 0 {
		f.addf("Missing tasks for task group")
	}
	f.constraints(tg.Constraints)
	if tg.Update != nil && deref(j.Type) != api.JobTypeService && deref(j.Type) != api.JobTypeSystem {
		f.addf("Job type %q does not allow update block", deref(j.Type))
	}
	if tg.Disconnect != nil && tg.Disconnect.StopOnClientAfter != nil && tg.Disconnect.LostAfter != nil {
		f.addf("Disconnect block cannot have both lost_after and stop_on_client_after")
	}
	seen := map[string]int{}
	main := 0
	for i, t := range tg.Tasks {
		if t.Name == "" {
			f.addf("Task %d missing name", i+1)
		} else if first, dup := seen[t.Name]; dup {
			f.addf("Task %d redefines '%s' from task %d", i+1, t.Name, first+1)
		} else {
			seen[t.Name] = i
		}
		if t.Lifecycle == nil || t.Lifecycle.Empty() {
			main++
		}
	}
	if len(tg.Tasks) > 0 && main == 0 {
		f.addf("Task group %s must have at least one main task", deref(tg.Name))
	}
	for _, t := range tg.Tasks {
		var g faults
		g.task(t)
		if len(g) > 0 {
			f.addf("Task %s validation failed: %s", t.Name, g.text())
		}
	}
}

func (f *faults) task(t *api.Task) {
	if t.Name == "alloc" {
		f.addf("Task cannot be named \"alloc\"")
	}
	if strings.ContainsAny(t.Name, `/\`) {
		f.addf("Task name cannot include slashes")
	}
	if t.Driver == "" {
		f.addf("Missing task driver")
	}
	if deref(t.KillTimeout) < 0 {
		f.addf("KillTimeout must be a positive value")
	}
	if m := deref(t.Resources.MemoryMB); m < 10 {
		f.addf("minimum MemoryMB value is 10; got %d", m)
	}
	if c := deref(t.Resources.CPU); deref(t.Resources.Cores) == 0 && c < 1 {
		f.addf("minimum CPU value is 1; got %d", c)
	}
	f.constraints(t.Constraints)
	for i, c := range t.Constraints {
		if c.Operand == api.ConstraintDistinctHosts || c.Operand == api.ConstraintDistinctProperty {
			f.addf("Constraint %d has disallowed Operand at task level: %s", i+1, c.Operand)
		}
	}
	f.identities(t.Identities)
	if t.Identity != nil {
		f.identities([]*api.WorkloadIdentity{t.Identity})
	}
	for _, d := range t.Resources.Devices {
		if d.Name == "" {
			f.addf("device name must be given as one of the following: type, vendor/type, or vendor/type/name")
		}
		for i, c := range d.Constraints {
			if c.Operand == api.ConstraintDistinctHosts || c.Operand == api.ConstraintDistinctProperty {
				f.addf("Constraint %d validation failed: using unsupported operand %q", i+1, c.Operand)
			}
		}
		f.constraints(d.Constraints)
	}
}

// periodic checks cron expressions and time zone.
func (f *faults) periodic(p *api.PeriodicConfig) {
	if deref(p.Spec) == "" && len(p.Specs) == 0 {
		f.addf("Must specify a spec")
	}
	if deref(p.Spec) != "" && len(p.Specs) > 0 {
		f.addf("Only cron or crons may be used")
	}
	if _, err := p.GetLocation(); err != nil {
		f.addf("Invalid time zone %q: %v", deref(p.TimeZone), err)
	}
	if _, err := p.Next(time.Unix(0, 0)); err != nil {
		f.addf("Invalid cron spec %q: %v", strings.Join(append(p.Specs, deref(p.Spec)), ", "), err)
	}
}

var identityName = regexp.MustCompile("^[a-zA-Z0-9-_]{1,128}$")

func (f *faults) identities(list []*api.WorkloadIdentity) {
	for _, w := range list {
		var g faults
		name := cmp.Or(w.Name, defaultIdentity)
		if !identityName.MatchString(name) {
			g.addf("invalid name %q. Must match regex %s", w.Name, identityName)
		}
		for i, aud := range w.Audience {
			if aud == "" {
				g.addf("an empty string is an invalid audience (%d)", i+1)
			}
		}
		switch {
		case w.ChangeMode == "signal" && w.ChangeSignal == "":
			g.addf("change_signal must be specified when using change_mode=%q", "signal")
		case w.ChangeMode != "signal" && w.ChangeSignal != "":
			g.addf("can only use change_signal=%q with change_mode=%q", w.ChangeSignal, "signal")
		case !slices.Contains([]string{"", "noop", "restart", "signal"}, w.ChangeMode):
			g.addf("invalid change_mode: %s", w.ChangeMode)
		}
		if w.TTL > 0 && name == defaultIdentity {
			g.addf("ttl for default identity not yet supported")
		}
		if w.TTL < 0 {
			g.addf("ttl must be >= 0")
		}
		if w.Filepath != "" && !w.File {
			g.addf("file parameter must be true in order to specify filepath")
		}
		if len(g) > 0 {
			f.addf("Identity %q is invalid: %s", w.Name, g.text())
		}
	}
}

func (f *faults) constraints(cs []*api.Constraint) {
	for i, c := range cs {
		var g faults
		g.constraint(c)
		if len(g) > 0 {
			f.addf("Constraint %d validation failed: %s", i+1, g.text())
		}
	}
}

func (f *faults) constraint(c *api.Constraint) {
	switch c.Operand {
	case "":
		f.addf("Missing constraint operand")
		f.addf("Unknown constraint type %q", c.Operand)
	case api.ConstraintDistinctHosts:
		return
	case api.ConstraintSetContains, api.ConstraintSetContainsAll, api.ConstraintSetContainsAny:
		if c.RTarget == "" {
			f.addf("Set contains constraint requires an RTarget")
		}
	case api.ConstraintRegex:
		if _, err := regexp.Compile(c.RTarget); err != nil {
			f.addf("Regular expression failed to compile: %v", err)
		}
	case api.ConstraintVersion, api.ConstraintSemver:
		if _, err := version.NewConstraint(c.RTarget); err != nil {
			f.addf("Version constraint is invalid: %v", err)
		}
	case api.ConstraintDistinctProperty:
		if n, err := strconv.ParseUint(c.RTarget, 10, 64); c.RTarget != "" && (err != nil || n < 1) {
			f.addf("Failed to convert RTarget %q to uint64: %v", c.RTarget, err)
		}
	case api.ConstraintAttributeIsSet, api.ConstraintAttributeIsNotSet:
		if c.RTarget != "" {
			f.addf("Operator %q does not support an RTarget", c.Operand)
		}
	case "=", "==", "is", "!=", "not", "<", "<=", ">", ">=":
		if c.RTarget == "" {
			f.addf("Operator %q requires an RTarget", c.Operand)
		}
	default:
		f.addf("Unknown constraint type %q", c.Operand)
	}
	if c.LTarget == "" {
		f.addf("no attribute provided but is required by operator")
	}
}
