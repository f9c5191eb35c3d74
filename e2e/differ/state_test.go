package differ

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// state is what is compared, as text of sorted lines. Left out is what is
// chance or time in Nomad, too: IDs, indexes, and which of a node's GPUs an
// allocation got unless it was pinned to some.
func (w *world) state() (string, error) {
	jobs, _, err := w.api.Jobs().PrefixList(w.prefix())
	if err != nil {
		return "", err
	}
	var lines []string
	for _, n := range w.nodes {
		line, err := w.nodeLine(n)
		if err != nil {
			return "", err
		}
		lines = append(lines, line)
	}
	for _, stub := range jobs {
		of, err := w.jobLines(stub)
		if err != nil {
			return "", err
		}
		lines = append(lines, of...)
	}
	for _, part := range []func() ([]string, error){w.allocLines, w.blockedLines, w.deploymentLines} {
		of, err := part()
		if err != nil {
			return "", err
		}
		lines = append(lines, of...)
	}
	for i := range lines {
		lines[i] = w.plain(lines[i])
	}
	return strings.Join(counted(lines), "\n") + "\n", nil
}

// counted sorts lines and writes those that are the same only once.
func counted(lines []string) []string {
	slices.Sort(lines)
	var out []string
	for i := 0; i < len(lines); {
		n := i
		for n < len(lines) && lines[n] == lines[i] {
			n++
		}
		line := lines[i]
		if n-i > 1 {
			line += fmt.Sprintf(" ×%d", n-i)
		}
		out = append(out, line)
		i = n
	}
	return out
}

func (w *world) nodeLine(n *node) (string, error) {
	info, _, err := w.api.Nodes().Info(n.id, nil)
	if err != nil {
		var refused api.UnexpectedResponseError
		if n.up || !errors.As(err, &refused) {
			return "", err
		}
		return fmt.Sprintf("node %s is not known", n.name), nil
	}
	line := fmt.Sprintf("node %s %s %s", n.name, info.Status, info.SchedulingEligibility)
	if info.DrainStrategy != nil {
		line += " draining"
	}
	if d := info.LastDrain; d != nil && !d.StartedAt.Before(n.since) {
		line += " last drain " + string(info.LastDrain.Status)
	}
	return line, nil
}

func (w *world) jobLines(stub *api.JobListStub) ([]string, error) {
	j, _, err := w.api.Jobs().Info(stub.ID, nil)
	if err != nil {
		return nil, err
	}
	line := fmt.Sprintf("job %s v%d %s, stop %t, stable %t", stub.ID, *j.Version, *j.Status, *j.Stop, deref(j.Stable))
	summary, _, err := w.api.Jobs().Summary(stub.ID, nil)
	if err != nil {
		return nil, err
	}
	lines := []string{line}
	if c := summary.Children; c != nil && *c != (api.JobChildrenSummary{}) {
		lines = append(lines, fmt.Sprintf("job %s children: pending %d, running %d, dead %d", stub.ID, c.Pending, c.Running, c.Dead))
	}
	for _, g := range j.TaskGroups {
		s := summary.Summary[*g.Name]
		line := fmt.Sprintf("job %s group %s count %d:", stub.ID, *g.Name, *g.Count)
		for _, n := range []struct {
			what string
			n    int
		}{{"queued", s.Queued}, {"starting", s.Starting}, {"running", s.Running}, {"complete", s.Complete}, {"failed", s.Failed}, {"lost", s.Lost}, {"unknown", s.Unknown}} {
			if n.n != 0 {
				line += fmt.Sprintf(" %s %d", n.what, n.n)
			}
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func (w *world) allocLines() ([]string, error) {
	list, _, err := w.api.Allocations().List(&api.QueryOptions{Params: map[string]string{"resources": "true"}})
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, a := range list {
		if !strings.HasPrefix(a.JobID, w.prefix()) {
			continue
		}
		// Which of two members of a group goes first, and so gets the better place,
		// is chance: names and places are compared each by themselves.
		name := a.Name
		if ended(a) {
			name = a.JobID + "." + a.TaskGroup
		}
		line := fmt.Sprintf("alloc %s v%d: %s/%s", name, a.JobVersion, a.DesiredStatus, a.ClientStatus)
		lines = append(lines, fmt.Sprintf("place %s: %s.%s %s/%s", a.NodeName, a.JobID, a.TaskGroup, a.DesiredStatus, a.ClientStatus))
		if a.DesiredDescription != "" {
			line += fmt.Sprintf(" %q", a.DesiredDescription)
		}
		if n := devices(a.AllocatedResources); n > 0 {
			line += fmt.Sprintf(", %d GPUs", n)
		}
		// Whether a member that has ended was found unhealthy before is a race
		// between its end and its watcher. The stand-in does not watch system jobs.
		if h := a.DeploymentStatus; a.JobType == api.JobTypeService && h != nil && h.Healthy != nil && !ended(a) {
			line += fmt.Sprintf(", healthy %t", *h.Healthy)
			if h.Canary {
				line += ", canary"
			}
		}
		if a.NextAllocation != "" {
			line += ", replaced"
		}
		if a.RescheduleTracker != nil && len(a.RescheduleTracker.Events) > 0 {
			line += fmt.Sprintf(", rescheduled %d", len(a.RescheduleTracker.Events))
		}
		for _, t := range a.TaskStates {
			if t.Failed {
				line += ", task failed"
			}
			if t.Restarts > 0 {
				line += fmt.Sprintf(", restarts %d", t.Restarts)
			}
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func ended(a *api.AllocationListStub) bool {
	switch a.ClientStatus {
	case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return true
	}
	return false
}

func devices(r *api.AllocatedResources) (n int) {
	if r == nil {
		return 0
	}
	for _, t := range r.Tasks {
		for _, d := range t.Devices {
			n += len(d.DeviceIDs)
		}
	}
	return n
}

func (w *world) blockedLines() ([]string, error) {
	list, _, err := w.api.Evaluations().List(nil)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, stub := range list {
		if !strings.HasPrefix(stub.JobID, w.prefix()) || stub.Status != api.EvalStatusBlocked {
			continue
		}
		if stub.Type == api.JobTypeSystem || stub.Type == api.JobTypeSysbatch {
			// Nomad blocks one for the first node that it finds full, by chance, and
			// leaves those blocked for good that it does not need any more.
			continue
		}
		e, _, err := w.api.Evaluations().Info(stub.ID, nil)
		if err != nil {
			return nil, err
		}
		where := fmt.Sprintf("blocked %s by %s", e.JobID, e.TriggeredBy)
		if e.NodeID != "" {
			where += " on " + w.name(e.NodeID)
		}
		line := where + ":"
		if e.EscapedComputedClass {
			line += " escaped"
		}
		lines = append(lines, line+" "+e.StatusDescription)
		job, _, err := w.api.Jobs().Info(e.JobID, nil)
		lines = append(lines, w.failures(where, err != nil || len(job.TaskGroups) > 1, e.FailedTGAllocs)...)
	}
	return lines, nil
}

// failures says why groups have no place.
func (w *world) failures(of string, several bool, failed map[string]*api.AllocationMetric) (lines []string) {
	for _, group := range sortedKeys(failed) {
		m := failed[group]
		line := fmt.Sprintf("%s: %s: evaluated %d, filtered %d, exhausted %d, others %d", of, group, m.NodesEvaluated, m.NodesFiltered, m.NodesExhausted, m.CoalescedFailures)
		for _, part := range []struct {
			what   string
			counts map[string]int
		}{{"classes filtered", m.ClassFiltered}, {"filtered", m.ConstraintFiltered}, {"classes exhausted", m.ClassExhausted}, {"exhausted", m.DimensionExhausted}} {
			if several && part.what == "filtered" {
				// Which group was looked at first is chance, and with it which check
				// found a class ineligible that was not looked at again.
				continue
			}
			for _, why := range sortedKeys(part.counts) {
				line += fmt.Sprintf("; %s %q %d", part.what, why, part.counts[why])
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func (w *world) deploymentLines() ([]string, error) {
	list, _, err := w.api.Deployments().List(nil)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, d := range list {
		if !strings.HasPrefix(d.JobID, w.prefix()) {
			continue
		}
		line := fmt.Sprintf("deployment %s v%d %s %q", d.JobID, d.JobVersion, d.Status, d.StatusDescription)
		for _, name := range sortedKeys(d.TaskGroups) {
			g := d.TaskGroups[name]
			line += fmt.Sprintf("; %s desired %d, placed %d, healthy %d, unhealthy %d", name, g.DesiredTotal, g.PlacedAllocs, g.HealthyAllocs, g.UnhealthyAllocs)
			if g.DesiredCanaries > 0 || g.Promoted {
				line += fmt.Sprintf(", canaries %d of %d, promoted %t", len(g.PlacedCanaries), g.DesiredCanaries, g.Promoted)
			}
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// planned is the answer to a dry-run.
func (w *world) planned(job *api.Job, p *api.JobPlanResponse) string {
	lines := []string{"plan " + p.Diff.Type}
	if p.Warnings != "" {
		lines = append(lines, strings.TrimSpace(p.Warnings))
	}
	if p.Annotations != nil {
		for _, g := range sortedKeys(p.Annotations.DesiredTGUpdates) {
			u := p.Annotations.DesiredTGUpdates[g]
			lines = append(lines, fmt.Sprintf("plan %s: ignore %d, place %d, migrate %d, stop %d, in place %d, destructive %d, canary %d, preempt %d",
				g, u.Ignore, u.Place, u.Migrate, u.Stop, u.InPlaceUpdate, u.DestructiveUpdate, u.Canary, u.Preemptions))
		}
	}
	lines = append(lines, w.failures("plan", len(job.TaskGroups) > 1, p.FailedTGAllocs)...)
	return strings.Join(lines, "\n")
}

func (w *world) name(id string) string {
	for _, n := range w.nodes {
		if n.id == id {
			return n.name
		}
	}
	return id
}

var (
	dispatched = regexp.MustCompile(`/dispatch-\d+-[0-9a-f]+`)
	anyID      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	nodePin    = regexp.MustCompile(`\$\{node\.unique\.id\} regexp (\^[^"\s]*)`)
	index      = regexp.MustCompile(`(modify index:?|index) \d+`)
)

// plain leaves out of a text what differs from one cluster to the next.
func (w *world) plain(s string) string {
	s = strings.ReplaceAll(s, w.prefix(), "")
	s = nodePin.ReplaceAllStringFunc(s, func(pin string) string {
		re, err := regexp.Compile(nodePin.FindStringSubmatch(pin)[1])
		if err != nil {
			return pin
		}
		var names []string
		for _, n := range w.nodes {
			if re.MatchString(n.id) {
				names = append(names, n.name)
			}
		}
		return "pinned to " + strings.Join(names, "|")
	})
	for _, n := range w.nodes {
		s = strings.ReplaceAll(s, n.id, n.name)
	}
	s = dispatched.ReplaceAllString(s, "/dispatched")
	s = index.ReplaceAllString(s, "$1 N")
	return anyID.ReplaceAllString(s, "ID")
}

func sortedKeys[T any](m map[string]T) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, cmp.Compare)
	return out
}
