package terraform

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"
)

// maxShown is how many faults of a plan a reason lists.
const maxShown = 5

// wanted is what a plan may do.
type wanted struct {
	variable  string
	resources []string
	// keep and add are the nodes that are to be there, of which keep are known to
	// be; remove are those that are to go.
	keep, add, remove map[string]bool
	// adopt are nodes in doubt: they may be taken into the state, by import or by
	// making what is idempotent, and need not.
	adopt map[string]bool
	// begun are the purchases of which nodes are made, ended those of which none is
	// left: what belongs to a purchase as a whole, such as a placement group with its
	// ID as the key, comes and goes with them.
	begun, ended map[string]bool
}

func (w wanted) all() map[string]bool {
	all := maps.Clone(w.keep)
	maps.Copy(all, w.add)
	return all
}

// checkPlan refuses a plan that does more or less than is wanted. The error names
// the resources and the actions.
func checkPlan(p *tfjson.Plan, w wanted) error {
	if _, ok := p.Variables[w.variable]; !ok {
		return &Error{Reason: ReasonError, Kind: ErrVariable, Message: fmt.Sprintf(
			"the directory declares no variable %q: add variable %q { type = map(object({ purchase = optional(string, \"\"), market = optional(string, \"on_demand\") })) }, and for_each over it",
			w.variable, w.variable)}
	}
	var faults, resources []string
	fault := func(address, format string, args ...any) {
		faults = append(faults, address+": "+fmt.Sprintf(format, args...))
		resources = append(resources, address)
	}
	made := map[string]bool{}
	for _, rc := range p.ResourceChanges {
		if rc.Change == nil {
			continue
		}
		a := parseAddress(rc.Address)
		if name, ok := a.node(w.resources); ok && (rc.Change.Actions.Create() || rc.Change.Actions.NoOp()) {
			made[name] = true
		}
		if why := w.refuses(a, rc); why != "" {
			fault(rc.Address, "%s", why)
		}
	}
	if len(faults) > 0 {
		slices.Sort(faults)
		slices.Sort(resources)
		shown := faults
		if len(shown) > maxShown {
			shown = append(slices.Clone(shown[:maxShown]), fmt.Sprintf("and %d more", len(faults)-maxShown))
		}
		return &Error{Reason: ReasonRefused, Kind: ErrPlanRefused, Resources: resources, Message: fmt.Sprintf(
			"the plan would touch more than the nodes that are to come and go: %s. Nothing was changed. Run the plan by hand, and apply or undo what it shows",
			strings.Join(shown, "; "))}
	}
	if p.Complete != nil && !*p.Complete {
		return &Error{Reason: ReasonRefused, Kind: ErrPlanRefused, Message: "the plan is not complete: Terraform has put off or could not plan some of it. Nothing was changed"}
	}
	for _, name := range slices.Sorted(maps.Keys(w.all())) {
		if !made[name] {
			return &Error{Reason: ReasonRefused, Kind: ErrPlanRefused, Message: fmt.Sprintf(
				"the plan makes no node %q: no resource %s uses for_each = var.%s%s. Nothing was changed", name, w.describe(), w.variable, w.remedy())}
		}
	}
	return nil
}

func (w wanted) describe() string {
	if len(w.resources) == 0 {
		return `or module that is named "` + nodeResource + `"`
	}
	return "of " + strings.Join(w.resources, ", ")
}

// remedy says what helps where nodes have another name than is looked for.
func (w wanted) remedy() string {
	if len(w.resources) == 0 {
		return "; list in terraform_resources what is named otherwise"
	}
	return "; terraform_resources has the addresses without keys of what the nodes are"
}

// refuses says what is wrong with one change; "" is nothing.
func (w wanted) refuses(a address, rc *tfjson.ResourceChange) string {
	actions := rc.Change.Actions
	switch {
	case rc.Change.Importing != nil:
		return w.refusesImport(a, actions)
	case actions.NoOp(), actions.Read():
		return ""
	case actions.Replace():
		name, ok := a.about(w.all())
		if ok && rc.Change.Before != nil {
			return fmt.Sprintf("node %q would be replaced, not only made or taken away", name)
		}
		return "it would be replaced"
	case rc.DeposedKey != "":
		if _, ok := a.about(w.remove); ok && actions.Delete() {
			return ""
		}
		return "what is left of an earlier replacement would be deleted"
	case actions.Create():
		if _, ok := a.about(w.all()); ok {
			return ""
		}
		if _, ok := a.about(w.begun); ok {
			return ""
		}
		if _, ok := a.about(w.adopt); ok {
			return ""
		}
		return "it would be created, and belongs to none of the nodes that are wanted"
	case actions.Delete():
		if _, ok := a.about(w.remove); ok {
			return ""
		}
		if _, ok := a.about(w.ended); ok {
			return ""
		}
		if name, ok := a.about(w.all()); ok {
			return fmt.Sprintf("it would be deleted, and node %q is to stay", name)
		}
		return "it would be deleted, and belongs to none of the nodes that are to go"
	case actions.Update():
		return "it would be changed in place"
	default:
		return fmt.Sprintf("it has the actions %v", actions)
	}
}

// refusesImport says what is wrong with an import; "" is nothing. What is imported may
// be changed in place: the state knows nothing of it yet.
func (w wanted) refusesImport(a address, actions tfjson.Actions) string {
	_, node := a.about(w.adopt)
	_, purchase := a.about(w.begun)
	switch {
	case len(w.adopt) == 0 || !node && !purchase:
		return "it would be imported"
	case !actions.NoOp() && !actions.Update():
		return fmt.Sprintf("it would be imported and has the actions %v", actions)
	}
	return ""
}
