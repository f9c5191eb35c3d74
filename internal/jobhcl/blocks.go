package jobhcl

import (
	"reflect"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/nomad/api"
)

// The shorthands of constraint and affinity blocks, in the order in which
// later ones win: `version = ">= 2"` is operator and value in one.
var (
	affinityShorthands = []string{
		api.ConstraintVersion, api.ConstraintSemver, api.ConstraintRegex,
		api.ConstraintSetContainsAny, api.ConstraintSetContainsAll, api.ConstraintSetContains,
	}
	constraintShorthands = []string{
		api.ConstraintVersion, api.ConstraintSemver, api.ConstraintRegex, api.ConstraintSetContains,
	}
	// Nomad takes these names in a constraint block without acting on them;
	// with `operator` they work.
	constraintOperatorOnly = []string{
		api.ConstraintSetContainsAll, api.ConstraintSetContainsAny,
		api.ConstraintAttributeIsSet, api.ConstraintAttributeIsNotSet,
	}
)

// text evaluates an optional attribute to a string; "" when it is not there.
func (p *parser) text(b block, name string) string {
	attr := b.body.Attributes[name]
	if attr == nil {
		return ""
	}
	var s *string
	p.decodeExpr(attr.Expr, b.ctx, reflect.ValueOf(&s))
	if s == nil {
		return ""
	}
	return *s
}

// onlyAttrs reports what is in a block beside the attributes allowed.
func (p *parser) onlyAttrs(b block, allowed ...string) {
	f := fields{attrs: map[string]int{}}
	for _, name := range allowed {
		f.attrs[name] = 0
	}
	for _, attr := range sortedAttrs(b.body) {
		if _, ok := f.attrs[attr.Name]; !ok {
			p.fault(attr.NameRange, "Unsupported argument", "%q is not expected in a %s block.%s", attr.Name, b.typ, suggest(attr.Name, f, nil))
		}
	}
	for _, sub := range b.body.Blocks {
		p.fault(sub.TypeRange, "Unsupported block type", "A %s block holds no blocks.", b.typ)
	}
}

func (p *parser) constraint(b block, c *api.Constraint) {
	allowed := append([]string{"attribute", "operator", "value", api.ConstraintDistinctHosts, api.ConstraintDistinctProperty}, constraintShorthands...)
	p.onlyAttrs(b, append(allowed, constraintOperatorOnly...)...)
	c.LTarget, c.Operand, c.RTarget = p.text(b, "attribute"), p.text(b, "operator"), p.text(b, "value")
	for _, operator := range constraintShorthands {
		if value := p.text(b, operator); value != "" {
			c.Operand, c.RTarget = operator, value
		}
	}
	if attr := b.body.Attributes[api.ConstraintDistinctHosts]; attr != nil {
		var on *bool
		p.decodeExpr(attr.Expr, b.ctx, reflect.ValueOf(&on))
		if on != nil {
			c.Operand, c.RTarget = api.ConstraintDistinctHosts, "false"
			if *on {
				c.RTarget = "true"
			}
		}
	}
	if property := p.text(b, api.ConstraintDistinctProperty); property != "" {
		c.Operand, c.LTarget = api.ConstraintDistinctProperty, property
	}
	if c.Operand == "" {
		c.Operand = "="
	}
}

func (p *parser) affinity(b block, a *api.Affinity) {
	p.onlyAttrs(b, append([]string{"attribute", "operator", "value", "weight"}, affinityShorthands...)...)
	a.LTarget, a.Operand, a.RTarget = p.text(b, "attribute"), p.text(b, "operator"), p.text(b, "value")
	if attr := b.body.Attributes["weight"]; attr != nil {
		p.decodeExpr(attr.Expr, b.ctx, reflect.ValueOf(&a.Weight))
	}
	for _, operator := range affinityShorthands {
		if value := p.text(b, operator); value != "" {
			a.Operand, a.RTarget = operator, value
		}
	}
	if a.Operand == "" {
		a.Operand = "="
	}
}

// job reads the job block. Tasks directly under it are groups of their own,
// and its vault and secret blocks are defaults for every task.
func (p *parser) job(b *hclsyntax.Block) *api.Job {
	root := asBlock(b, p.ctx)
	root.labels = nil
	job := &api.Job{}
	handled := []string{"vault", "secret", "task"}
	if meta := p.mapAttr(root, "meta"); meta != nil {
		job.Meta = meta
		handled = append(handled, "meta")
	}
	var extra struct {
		Tasks   []*api.Task   `hcl:"task,block"`
		Vault   *api.Vault    `hcl:"vault,block"`
		Secrets []*api.Secret `hcl:"secret,block"`
	}
	p.decodeSome(root, reflect.ValueOf(&extra).Elem())
	p.decode(root, reflect.ValueOf(job).Elem(), handled...)
	name := b.Labels[0]
	normalize(job, name, extra.Tasks, extra.Vault, extra.Secrets)
	return job
}

// decodeSome reads those of a block's sub-blocks that the struct has fields
// for and leaves the rest alone.
func (p *parser) decodeSome(b block, v reflect.Value) {
	f := fieldsOf(v.Type())
	byType := map[string][]block{}
	for _, sub := range p.blocks(b.body, b.ctx) {
		if _, ok := f.blocks[sub.typ]; ok {
			byType[sub.typ] = append(byType[sub.typ], sub)
		}
	}
	for _, name := range sortedNames(byType) {
		p.decodeBlocks(byType[name], v.Field(f.blocks[name]))
	}
}

func (p *parser) group(b block, g *api.TaskGroup) {
	handled := []string{"vault", "secret"}
	if meta := p.mapAttr(b, "meta"); meta != nil {
		g.Meta = meta
		handled = append(handled, "meta")
	}
	var extra struct {
		Vault   *api.Vault    `hcl:"vault,block"`
		Secrets []*api.Secret `hcl:"secret,block"`
	}
	p.decodeSome(b, reflect.ValueOf(&extra).Elem())
	p.decode(b, reflect.ValueOf(g).Elem(), handled...)
	for _, t := range g.Tasks {
		if t.Vault == nil {
			t.Vault = extra.Vault
		}
		t.Secrets = append(t.Secrets, extra.Secrets...)
	}
	if g.Scaling == nil {
		return
	}
	if g.Scaling.Type == "" {
		g.Scaling.Type = "horizontal"
	}
	if g.Scaling.Type != "horizontal" || g.Scaling.Max == nil {
		p.fault(b.at, "Invalid scaling block", "A group's scaling block needs max, and its type can only be \"horizontal\".")
	}
}

func (p *parser) task(b block, t *api.Task) {
	handled := []string{"scaling"}
	if env := p.mapAttr(b, "env"); env != nil {
		t.Env = env
		handled = append(handled, "env")
	}
	if meta := p.mapAttr(b, "meta"); meta != nil {
		t.Meta = meta
		handled = append(handled, "meta")
	}
	p.decode(b, reflect.ValueOf(t).Elem(), handled...)
	p.taskScaling(b, t)
}

// taskScaling reads a task's `scaling "cpu"` and `scaling "mem"` blocks.
func (p *parser) taskScaling(b block, t *api.Task) {
	seen := map[string]bool{}
	for _, sub := range p.blocks(b.body, b.ctx) {
		if sub.typ != "scaling" || !p.wantLabels(sub, 1) {
			continue
		}
		label := strings.ToLower(sub.labels[0])
		want := "vertical_" + label
		if label != "cpu" && label != "mem" {
			p.fault(sub.at, "Invalid scaling block", "A task's scaling block is named \"cpu\" or \"mem\", not %q.", sub.labels[0])
			continue
		}
		if seen[label] {
			p.fault(sub.at, "Duplicate block", "Only one scaling %q block is allowed.", label)
			continue
		}
		seen[label] = true
		policy := &api.ScalingPolicy{}
		p.decode(sub, reflect.ValueOf(policy).Elem())
		if policy.Type == "" {
			policy.Type = want
		} else if policy.Type != want {
			p.fault(sub.at, "Invalid scaling block", "The type of scaling %q can only be %q, not %q.", label, want, policy.Type)
			continue
		}
		t.ScalingPolicies = append(t.ScalingPolicies, policy)
	}
}
