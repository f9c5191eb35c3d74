package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/nomad/api"
)

// Unseen is a namespace whose jobs the planner's token may not read. Nomad
// leaves out of its lists what a token may not see, so what they hold would
// look free.
type Unseen struct {
	// Namespace is a name, or the pattern of a policy's rule; "*" stands for
	// all those that no rule names.
	Namespace string
	// Lacks are the capabilities missing.
	Lacks []string
}

// String is "list-jobs and read-job in namespace "x"".
func (u Unseen) String() string {
	where := fmt.Sprintf("namespace %q", u.Namespace)
	if u.Namespace == api.AllNamespacesNamespace {
		where = "the namespaces that its policies do not name"
	}
	return strings.Join(u.Lacks, " and ") + " in " + where
}

// maxUnseen is how many namespaces a sentence names.
const maxUnseen = 3

// Blind says why nothing may be admitted on this View: the planner cannot
// count what is in use. It is "" when the planner sees every namespace.
func (v *View) Blind() string {
	if len(v.Unseen) == 0 {
		return ""
	}
	var names []string
	for i, u := range v.Unseen {
		if i == maxUnseen {
			names = append(names, fmt.Sprintf("%d more namespaces", len(v.Unseen)-maxUnseen))
			break
		}
		names = append(names, u.String())
	}
	return "nothing is admitted, because the planner's token lacks " + strings.Join(names, ", ") +
		", so that GPUs in use there would count as free; an operator has to correct its ACL policy (see dist/acl/caravan-planner.policy.hcl)"
}

func (u Unseen) warning() Warning {
	return Warning{Subject: "ACL", Text: fmt.Sprintf(
		"the planner's token lacks %s: GPUs in use there cannot be counted, so nothing is admitted; add to its policy: namespace %q { capabilities = [\"list-jobs\", \"read-job\", \"submit-job\", \"alloc-lifecycle\"] }",
		u, u.Namespace)}
}

const (
	// rightsPeriod is how long what a token may do is believed, if nothing
	// tells otherwise.
	rightsPeriod = 3 * time.Minute
	// blindPeriod is the same while something is lacking, so that a corrected
	// policy shows soon.
	blindPeriod = 10 * time.Second
	// probeName stands for any name that no rule names. Nomad looks at rights
	// before it looks for the namespace.
	probeName = "caravan-probe"
)

// aclsDisabled is the accessor of the token that everybody has in newer Nomads
// where ACLs are off; older ones refuse the question.
const aclsDisabled = "acls-disabled"

// readRights finds the namespaces that the planner does not see: at first,
// when namespaces changed, after a refusal, and now and then.
func (o *Observer) readRights(ctx context.Context, st *state, changed bool) error {
	now, period := o.now(), rightsPeriod
	if len(st.unseen) > 0 {
		period = blindPeriod
	}
	if !changed && !o.refused && now.Sub(st.rightsRead).Abs() < period {
		return nil
	}
	listed, index, err := o.src.namespaces(ctx)
	if err != nil {
		return err
	}
	st.index[partNamespaces], st.rightsRead = index, now
	rules, may, err := o.src.ruleNames(ctx)
	if err != nil {
		return err
	}
	st.unseen, st.aclsOff = nil, may == everybody
	if may != limited {
		return nil
	}
	shown := map[string]string{api.DefaultNamespace: api.DefaultNamespace, probeName: api.AllNamespacesNamespace}
	for _, name := range append(listed, rules...) {
		shown[strings.ReplaceAll(name, "*", probeName)] = name
	}
	for key := range st.records {
		shown[key.namespace] = key.namespace
	}
	names := make([]string, 0, len(shown))
	for name := range shown {
		names = append(names, name)
	}
	slices.Sort(names)
	lacks := make([][]string, len(names))
	err = each(ctx, names, func(ctx context.Context, i int, name string) (err error) {
		lacks[i], err = o.src.lacking(ctx, name)
		return err
	})
	if err != nil {
		return err
	}
	for i, l := range lacks {
		if len(l) > 0 {
			st.unseen = append(st.unseen, Unseen{Namespace: shown[names[i]], Lacks: l})
		}
	}
	slices.SortFunc(st.unseen, func(a, b Unseen) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return nil
}

// hides says whether jobs of the namespace may be missing.
func (st *state) hides(namespace string) bool {
	return slices.ContainsFunc(st.unseen, func(u Unseen) bool { return u.Namespace == namespace })
}

// namespaces are those in which the token may do anything.
func (n nomad) namespaces(ctx context.Context) ([]string, uint64, error) {
	list, meta, err := n.client.Namespaces().List((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, 0, readError("namespaces", err)
	}
	var names []string
	for _, ns := range list {
		if ns != nil {
			names = append(names, ns.Name)
		}
	}
	return names, indexOf(meta), nil
}

// lacking are the capabilities for reading jobs that the token does not have
// in a namespace.
func (n nomad) lacking(ctx context.Context, namespace string) ([]string, error) {
	q := (&api.QueryOptions{Namespace: namespace, PerPage: 1}).WithContext(ctx)
	var out []string
	for _, probe := range []struct {
		capability string
		err        func() error
	}{
		{"list-jobs", func() error { _, _, err := n.client.Jobs().List(q); return err }},
		{"read-job", func() error { _, _, err := n.client.Allocations().List(q); return err }},
	} {
		err := readError("what the planner may do in namespace "+namespace, probe.err())
		switch {
		case errors.Is(err, ErrDenied):
			out = append(out, probe.capability)
		case err != nil:
			return nil, err
		}
	}
	return out, nil
}

// power is what the planner's token may do.
type power int

const (
	limited   power = iota // what its policies say
	manager                // everything
	everybody              // everything, like everybody: ACLs are off
)

// ruleNames are the names and patterns in the namespace rules of the token's
// own policies, as far as it may read them: a rule that denies hides a
// namespace from every list.
func (n nomad) ruleNames(ctx context.Context) (names []string, may power, err error) {
	q := (&api.QueryOptions{}).WithContext(ctx)
	token, _, err := n.client.ACLTokens().Self(q)
	switch code := statusCode(err); {
	case code == http.StatusBadRequest, err == nil && token.AccessorID == aclsDisabled:
		return nil, everybody, nil
	case code >= http.StatusInternalServerError || err != nil && code == 0:
		return nil, limited, readError("the planner's token", err)
	case err != nil:
		return nil, limited, nil // nobody's, or a workload's
	case token.Type == "management":
		return nil, manager, nil
	}
	policies := slices.Clone(token.Policies)
	for _, link := range token.Roles {
		role, _, err := n.client.ACLRoles().Get(link.ID, q)
		if err != nil || role == nil {
			continue
		}
		for _, p := range role.Policies {
			policies = append(policies, p.Name)
		}
	}
	for _, name := range policies {
		policy, _, err := n.client.ACLPolicies().Info(name, q)
		if err == nil && policy != nil {
			names = append(names, namespaceRules(policy.Rules)...)
		}
	}
	return names, limited, ctx.Err()
}

// namespaceRules are the labels of a policy's namespace blocks.
func namespaceRules(src string) []string {
	file, diags := hclsyntax.ParseConfig([]byte(src), "policy", hcl.InitialPos)
	if diags.HasErrors() {
		return nil
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return nil
	}
	var out []string
	for _, b := range body.Blocks {
		if b.Type == "namespace" && len(b.Labels) == 1 {
			out = append(out, b.Labels[0])
		}
	}
	return out
}
