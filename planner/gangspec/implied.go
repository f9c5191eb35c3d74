package gangspec

import (
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Explicit is a copy of the job without the constraints that Nomad's servers add
// by themselves: one that was read from Nomad has them, one from a file has not.
func Explicit(job *api.Job) *api.Job {
	out, err := Copy(job)
	if err != nil || out == nil {
		return job
	}
	out.Constraints = explicit(out.Constraints, nil)
	for _, g := range out.TaskGroups {
		g.Constraints = explicit(g.Constraints, g)
	}
	return out
}

// explicit returns the constraints without those that Nomad's servers add by
// themselves when a job is registered, and with the operand "=" written out.
// A user who writes one of them says nothing that Nomad would not say.
func explicit(in []*api.Constraint, g *api.TaskGroup) []*api.Constraint {
	var out []*api.Constraint
	for _, c := range in {
		if implied(c, g) {
			continue
		}
		if c.Operand == "" || c.Operand == "==" || c.Operand == "is" {
			c.Operand = "="
		}
		out = append(out, c)
	}
	return out
}

// implied says whether Nomad would add the constraint to the group itself.
func implied(c *api.Constraint, g *api.TaskGroup) bool {
	attr, ok := strings.CutPrefix(c.LTarget, "${attr.")
	attr = strings.TrimSuffix(attr, "}")
	switch {
	case !ok:
		return false
	case c.Operand == api.ConstraintSemver:
		return impliedVersion(attr, c.RTarget)
	case attr == "nomad.service_discovery":
		return c.RTarget == "true"
	case attr == "os.signals":
		return c.Operand == api.ConstraintSetContains && g != nil && onlySignals(c.RTarget, g)
	case strings.HasPrefix(attr, "plugins.secrets."):
		return c.Operand == api.ConstraintAttributeIsSet
	case attr == "kernel.name":
		return c.RTarget == "linux" && g != nil && usesNUMA(g)
	}
	return false
}

// impliedVersions are the version constraints that go with workload
// identities, service checks, NUMA, transparent proxies and schedules.
var impliedVersions = []string{">= 1.4.0", ">= 1.6.3-dev", ">= 1.7.0-a", ">= 1.8.0-dev"}

func impliedVersion(attr, version string) bool {
	switch {
	case attr == "nomad.version":
		return slices.Contains(impliedVersions, version)
	case strings.HasPrefix(attr, "vault.") && strings.HasSuffix(attr, "version"):
		return version == ">= 0.6.1" || version == ">= 1.11.0"
	case strings.HasPrefix(attr, "consul.") && strings.HasSuffix(attr, "version"):
		return version == ">= 1.8.0"
	case strings.HasPrefix(attr, "plugins.cni.version."):
		return version == ">= 0.4.0" || version == ">= 1.4.2"
	}
	return false
}

// onlySignals says whether every signal listed is one that the group's tasks
// need: Nomad then asks the node for them. It lists them in no fixed order.
func onlySignals(list string, g *api.TaskGroup) bool {
	needed := map[string]bool{}
	for _, t := range g.Tasks {
		needed[t.KillSignal] = true
		if t.Vault != nil && deref(t.Vault.ChangeMode) == "signal" {
			needed[deref(t.Vault.ChangeSignal)] = true
		}
		for _, tmpl := range t.Templates {
			if deref(tmpl.ChangeMode) == "signal" {
				needed[deref(tmpl.ChangeSignal)] = true
			}
		}
	}
	for s := range strings.SplitSeq(list, ",") {
		if s = strings.TrimSpace(s); s == "" || !needed[s] {
			return false
		}
	}
	return true
}

func usesNUMA(g *api.TaskGroup) bool {
	for _, t := range g.Tasks {
		if t.Resources != nil && t.Resources.NUMA != nil {
			return true
		}
	}
	return false
}
