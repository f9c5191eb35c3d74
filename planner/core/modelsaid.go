package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
)

// What is told of the models of GPUs that gangs get, or wait for.

// modelsPlaced says which models a job's members have got, and why those.
func (t *turn) modelsPlaced() string {
	if len(t.mixed) > 0 {
		return "; on " + strings.Join(t.mixed, ", ") + ", since no model has room for all of them now; " + oneModelOnly
	}
	if len(t.job.Models) == 0 || len(t.took) == 0 || len(t.took[0].models) == 0 {
		return ""
	}
	if len(t.took) > 1 {
		counts := map[string]int{}
		var names []string
		for _, o := range t.took {
			name := modelNames(o.models)
			if counts[name] == 0 {
				names = append(names, name)
			}
			counts[name] += o.members
		}
		for i, name := range names {
			names[i] = fmt.Sprintf("%s (%s)", name, plural(counts[name], "member"))
		}
		return "; on " + strings.Join(names, ", ") + ", the fastest with room for each"
	}
	o := &t.took[0]
	text := "; on " + modelNames(o.models)
	switch {
	case len(o.models) > 1:
		text += fmt.Sprintf(", mixed, at speed %s, that of the slowest, since no faster model has room for all", number(o.speed()))
	case o.kept:
		text += fmt.Sprintf(" at speed %s, which it was to start on", number(o.speed()))
	case len(o.passed) > 0:
		text += fmt.Sprintf(" at speed %s, since %s has no room now", number(o.speed()), nameList(o.passed))
	case slices.ContainsFunc(t.job.Models, func(m model.ModelSpeed) bool { return m.Speed > o.speed() }):
		text += fmt.Sprintf(" at speed %s, as the order would have it", number(o.speed()))
	case len(t.job.Models) > 1:
		text += fmt.Sprintf(" at speed %s, the fastest of the %d models that it takes", number(o.speed()), len(t.job.Models))
	}
	return text
}

// served is what a gang has got.
type served struct {
	option
	members int
	// passed are the models that were looked at before, with their speeds, and full
	// the regions.
	passed, full []string
	// routes are the regions that it could have gone to.
	routes []route
	// kept: its place was kept for it, so it was not chosen now.
	kept bool
}

// oneModelOnly is what a gang on several models could do about it.
const oneModelOnly = "it goes as fast as the slowest, and would wait for one model if it named some (caravan_models)"

// servedBy notes from what a gang that has been placed is served.
func (c *cycle) servedBy(t *turn, g *gang, r place.Result) {
	t.noteMixed(g.unit, c.catalog.ModelsOf(r.Placed))
	if len(g.options) == 0 {
		return
	}
	s := served{option: g.options[g.took], members: g.members, kept: g.landing != nil}
	for i := range g.options {
		o := &g.options[i]
		if o.to != nil && !slices.ContainsFunc(s.routes, func(r route) bool { return r.name == o.to.name }) {
			s.routes = append(s.routes, *o.to)
		}
		if i >= g.took || s.kept {
			continue
		}
		if o.to != nil && slices.Equal(o.models, s.models) {
			s.full = append(s.full, o.to.name)
		}
		if len(o.models) == 1 && !slices.Equal(o.models, s.models) {
			s.passed = append(s.passed, fmt.Sprintf("%s (speed %s)", o.models[0].Name, number(o.speed())))
		}
	}
	s.passed = slices.Compact(s.passed)
	t.took = append(t.took, s)
}

// noteMixed notes on which models a gang is that names none, if they are several.
func (t *turn) noteMixed(u *place.Unit, got []place.ModelMembers) {
	others := u.Model != "" && slices.ContainsFunc(got, func(m place.ModelMembers) bool { return m.Name != u.Model })
	if !u.Alike || len(got) < 2 && !others {
		return
	}
	for _, m := range got {
		t.mixed = append(t.mixed, fmt.Sprintf("%s (%s)", m.Name, plural(m.Members, "member")))
	}
	if others {
		t.mixed = append(t.mixed, u.Model+" (those that it has)")
	}
}

// modelsWanted says what a gang takes that waits, and for what it waits.
func (g *gang) modelsWanted() string {
	if len(g.options) == 0 || len(g.options[0].models) == 0 {
		return ""
	}
	var names []string
	for i := range g.options {
		if o := &g.options[i]; len(o.models) == 1 {
			names = append(names, fmt.Sprintf("%s (speed %s)", o.models[0].Name, number(o.speed())))
		}
	}
	names = slices.Compact(names)
	if len(names) == 1 {
		return "; it takes only " + names[0]
	}
	return fmt.Sprintf("; it takes %s: this is said of %s", strings.Join(names, " or "), modelNames(g.options[g.at].models))
}

func modelNames(models []model.ModelSpeed) string {
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = m.Name
	}
	return strings.Join(names, " and ")
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }
