package doctor

import (
	"errors"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/rewrite"
)

// The probes' names. Nothing of that name is ever made.
const (
	probeJob      = "caravan-doctor-probe"
	probePolicy   = "caravan-doctor-probe"
	probeVariable = "caravan/doctor-probe"
	// never is an index that nothing has, so that a write that depends on it
	// is refused after its rights were looked at.
	never = 1 << 62
	// tried is in how many namespaces the rights are tried; in all others the
	// policies alone are read.
	tried = 20
)

// rights tries what the planner's token must be allowed to.
func (x *examination) rights() {
	// So Nomad answers where ACLs are off.
	if _, _, err := x.Client.ACLPolicies().Info(probePolicy, x.query("")); statusOf(err) == http.StatusBadRequest {
		x.seesLocks = true
		x.ok("acl", "ACLs are off: everybody may do everything")
		return
	}
	t := trials{lacking: map[string][]string{}, unknown: map[string]error{}}
	namespaces := x.namespaces()
	granted, complete := "as far as can be tried", false
	if token, _, err := x.Client.ACLTokens().Self(x.query("")); err == nil && token.Type == "management" {
		x.seesLocks, complete = true, true
		granted = "being a management token"
	} else if err == nil {
		var policies []namespaceRule
		if policies, complete = x.policies(token); complete {
			granted = "by policy and by trial"
			t.read(policies, namespaces)
		}
	}
	x.tryCluster(t)
	if !x.quiet || !complete {
		for _, ns := range namespaces[:min(len(namespaces), tried)] {
			x.tryJobs(ns, t)
		}
	}
	x.tryVariables(x.Config.State.Namespace, t)
	x.tell(t, granted, namespaces)
}

// trials gathers which capabilities are lacking, each with the namespaces, and
// which could not be tried.
type trials struct {
	lacking map[string][]string
	unknown map[string]error
}

// try takes Nomad's answer to something that needs the capability.
func (t trials) try(capability, namespace string, err error) {
	switch code := statusOf(err); {
	case code == http.StatusForbidden || code == http.StatusUnauthorized:
		t.deny(capability, namespace)
	case err != nil:
		t.unknown[capability] = err
	}
}

func (t trials) deny(capability, namespace string) {
	t.lacking[capability] = append(t.lacking[capability], namespace)
}

// rule is what to write into the policy for a capability.
var rule = map[string]string{
	"node:read":                  `node { policy = "read" }`,
	"operator:read":              `operator { policy = "read" }`,
	"list-jobs":                  `namespace "*" { capabilities = ["list-jobs"] }`,
	"read-job":                   `namespace "*" { capabilities = ["read-job"] }`,
	"submit-job":                 `namespace "*" { capabilities = ["submit-job"] }`,
	"alloc-lifecycle":            `namespace "*" { capabilities = ["alloc-lifecycle"] }`,
	"variables read":             `variables { path "caravan/*" { capabilities = ["read"] } } in the state namespace`,
	"variables write":            `variables { path "caravan/*" { capabilities = ["write"] } } in the state namespace`,
	"variables destroy":          `variables { path "caravan/*" { capabilities = ["destroy"] } } in the state namespace`,
	"read-job in all namespaces": `namespace "*" { capabilities = ["list-jobs", "read-job"] }`,
}

func (x *examination) tell(t trials, granted string, namespaces []string) {
	for _, capability := range slices.Sorted(maps.Keys(t.unknown)) {
		x.warn("acl", "look again when Nomad answers", "whether the planner's token has %s cannot be told: %v", capability, t.unknown[capability])
	}
	for _, capability := range slices.Sorted(maps.Keys(t.lacking)) {
		where := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(t.lacking[capability]))), func(ns string) bool { return ns == "" })
		text := ""
		if len(where) > 0 {
			text = " in namespace " + list(where)
		}
		x.fail("acl", "add to the planner's policy: "+rule[capability]+" (dist/acl/caravan-planner.policy.hcl has all)", "the planner's token lacks %s%s", capability, text)
	}
	if len(t.lacking) == 0 && len(t.unknown) == 0 {
		x.ok("acl", "the planner's token has what it needs, %s, in %s: %s", granted, count(len(namespaces), "namespace"), list(namespaces))
	}
}

func (x *examination) tryCluster(t trials) {
	_, _, err := x.Client.Nodes().List(x.query(""))
	t.try("node:read", "", err)
	_, _, err = x.Client.Operator().SchedulerGetConfiguration(x.query(""))
	t.try("operator:read", "", err)
}

// namespaces are those served that the token can see, and those named.
func (x *examination) namespaces() []string {
	names := []string{}
	all, _, err := x.Client.Namespaces().List((&api.QueryOptions{}).WithContext(x.ctx))
	if err == nil {
		for _, ns := range all {
			names = append(names, ns.Name)
		}
	}
	names = append(names, api.DefaultNamespace)
	for _, pattern := range x.Config.Managed.Namespaces {
		if !strings.ContainsAny(pattern, `*?[\`) {
			names = append(names, pattern)
		}
	}
	names = slices.DeleteFunc(names, func(ns string) bool {
		return x.Config.Managed.Exempt(ns, api.NodePoolDefault) != ""
	})
	slices.Sort(names)
	return slices.Compact(names)
}

func (x *examination) tryJobs(ns string, t trials) {
	_, _, err := x.Client.Jobs().List(x.query(ns))
	t.try("list-jobs", ns, err)
	_, _, err = x.Client.Jobs().Info(probeJob, x.query(ns))
	if statusOf(err) == http.StatusNotFound {
		err = nil
	}
	t.try("read-job", ns, err)
	// Nomad looks at the rights first, and then refuses the index.
	_, _, err = x.Client.Jobs().RegisterOpts(probe(ns), &api.RegisterOptions{EnforceIndex: true, ModifyIndex: never}, x.write(ns))
	if err != nil && strings.Contains(err.Error(), api.RegisterEnforceIndexErrPrefix) {
		err = nil
	}
	t.try("submit-job", ns, err)
}

// probe is a job that would not be placed even if it were registered.
func probe(ns string) *api.Job {
	task := api.NewTask("probe", "raw_exec").SetConfig("command", "true")
	job := api.NewBatchJob(probeJob, probeJob, "", api.JobDefaultPriority)
	job.Region, job.Namespace = nil, &ns
	job.Constrain(api.NewConstraint(rewrite.GateAttribute, "=", "open"))
	return job.AddTaskGroup(api.NewTaskGroup("probe", 1).AddTask(task))
}

func (x *examination) tryVariables(ns string, t trials) {
	// Who may read may list.
	_, _, err := x.Client.Variables().Peek(probeVariable, x.query(ns))
	t.try("variables read", ns, err)
	_, _, err = x.Client.Variables().CheckedUpdate(&api.Variable{
		Namespace: ns, Path: probeVariable, ModifyIndex: never, Items: api.VariableItems{"probe": "never written"},
	}, x.write(ns))
	t.try("variables write", ns, refusedIndex(err))
	_, err = x.Client.Variables().CheckedDelete(probeVariable, never, x.write(ns))
	t.try("variables destroy", ns, refusedIndex(err))
}

// refusedIndex takes the refusal that a probe waits for.
func refusedIndex(err error) error {
	var conflict api.ErrCASConflict
	if errors.As(err, &conflict) || statusOf(err) == http.StatusConflict {
		return nil
	}
	return err
}

// policyRules is the part of a policy that is looked at.
type policyRules struct {
	Namespaces []namespaceRule `hcl:"namespace,block"`
	Rest       hcl.Body        `hcl:",remain"`
}

type namespaceRule struct {
	Name         string   `hcl:"name,label"`
	Policy       string   `hcl:"policy,optional"`
	Capabilities []string `hcl:"capabilities,optional"`
	Rest         hcl.Body `hcl:",remain"`
}

func (r namespaceRule) grants(capability string) bool {
	if r.Policy == "deny" || slices.Contains(r.Capabilities, "deny") {
		return false
	}
	if slices.Contains(r.Capabilities, capability) {
		return true
	}
	// The short forms, of those that are asked for.
	return r.Policy == "write" || r.Policy == "read" && (capability == "list-jobs" || capability == "read-job")
}

// policies reads the token's own; complete is false where one cannot be read.
func (x *examination) policies(token *api.ACLToken) (rules []namespaceRule, complete bool) {
	names := slices.Clone(token.Policies)
	for _, role := range token.Roles {
		r, _, err := x.Client.ACLRoles().Get(role.ID, x.query(""))
		if err != nil {
			return nil, false
		}
		for _, p := range r.Policies {
			names = append(names, p.Name)
		}
	}
	for _, name := range names {
		p, _, err := x.Client.ACLPolicies().Info(name, x.query(""))
		if err != nil {
			return nil, false
		}
		file, diags := hclsyntax.ParseConfig([]byte(p.Rules), name, hcl.InitialPos)
		var got policyRules
		if diags.HasErrors() || gohcl.DecodeBody(file.Body, nil, &got).HasErrors() {
			return nil, false
		}
		rules = append(rules, got.Namespaces...)
	}
	return rules, true
}

// read looks in the policies for what cannot be tried: alloc-lifecycle,
// which takes an allocation; and read-job in namespaces that the token cannot
// see.
func (t trials) read(rules []namespaceRule, namespaces []string) {
	has := func(namespace, capability string) bool {
		best := closest(rules, namespace)
		return slices.ContainsFunc(best, func(r namespaceRule) bool { return r.grants(capability) })
	}
	for _, ns := range namespaces {
		for _, capability := range []string{"list-jobs", "read-job", "submit-job", "alloc-lifecycle"} {
			if !has(ns, capability) {
				t.deny(capability, ns)
			}
		}
	}
	all := slices.ContainsFunc(rules, func(r namespaceRule) bool {
		return r.Name == "*" && r.grants("list-jobs")
	}) && slices.ContainsFunc(rules, func(r namespaceRule) bool {
		return r.Name == "*" && r.grants("read-job")
	})
	if !all {
		t.deny("read-job in all namespaces", "")
	}
}

// closest are the rules that Nomad goes by in a namespace: its own, else those
// of the pattern that leaves the least to its stars.
func closest(rules []namespaceRule, namespace string) []namespaceRule {
	var best []namespaceRule
	least := -1
	for _, r := range rules {
		match := r.Name == namespace
		if !match {
			match, _ = path.Match(r.Name, namespace)
		}
		if !match {
			continue
		}
		distance := len(namespace) - len(strings.ReplaceAll(r.Name, "*", ""))
		if r.Name == namespace {
			distance = -1
		}
		switch {
		case best == nil || distance < least:
			best, least = []namespaceRule{r}, distance
		case distance == least:
			best = append(best, r)
		}
	}
	return best
}
