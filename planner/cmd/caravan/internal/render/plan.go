package render

import (
	"fmt"
	"io"
	"slices"

	"github.com/caravan-sched/caravan/planner/httpapi"
)

// Planned is what would become of a job, as Nomad and the planner say.
type Planned struct {
	httpapi.PlanResult
	// Refused is what Nomad refuses the job for. Nothing is decided then.
	Refused []string `json:"refused,omitempty"`
	// Warnings are what does not do what it seems to.
	Warnings []string `json:"warnings,omitempty"`
}

// presentText says what becomes of the version of a job that is there.
var presentText = map[string]string{
	httpapi.PresentUnchanged: "the same; nothing would be registered",
	httpapi.PresentStays:     "its members would stay on their nodes",
	httpapi.PresentResized:   "it would be resized where it runs",
	httpapi.PresentEnds:      "what runs of it would end first",
}

// Plan writes what would be decided on a job.
func Plan(w io.Writer, s Style, job string, p Planned) error {
	g := newGrid()
	g.add("Job", s.paint(bold, job))
	for _, text := range p.Refused {
		g.add(s.paint(red, "Nomad"), text)
	}
	for _, f := range p.Faults {
		g.add(s.paint(red, "Fault"), f)
	}
	for _, text := range p.Warnings {
		g.add(s.paint(yellow, "Warning"), text)
	}
	switch {
	case len(p.Refused)+len(p.Faults) > 0:
		g.add("Decision", "none: it would be refused")
	case !p.Managed:
		g.add("Managed", "no: "+p.Why)
	default:
		g.add("Decision", decision(s, string(p.Decision.Action), p.Decision.Reason))
		if p.Present != "" {
			g.add("Present", presentText[p.Present])
		}
		detail(g, s, p.Decision.Action, p.Decision.Detail)
	}
	if err := g.write(w, ""); err != nil {
		return err
	}
	planned := slices.Clone(p.Placement)
	for i := range planned {
		if planned[i].State == "" || planned[i].State == "none" {
			planned[i].State = "planned"
		}
	}
	if err := placement(w, s, planned); err != nil {
		return err
	}
	if err := Preemptions(w, s, p.Preemptions); err != nil {
		return err
	}
	if err := effects(w, s, p.Effects); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nNothing was changed.")
	return err
}
