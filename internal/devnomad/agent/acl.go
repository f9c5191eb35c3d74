package agent

import (
	"cmp"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/hcl/v2/hclsimple"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/server"
)

// acl holds tokens and policies. With it off everybody may do everything.
type acl struct {
	enabled bool

	mu       sync.Mutex
	tokens   map[string]*api.ACLToken // by secret
	policies map[string]*policy
	index    uint64
}

type policy struct {
	api.ACLPolicy
	rules rules
}

// rules are a policy's, as far as the stand-in knows them.
type rules struct {
	Namespaces []struct {
		Name         string   `hcl:"name,label"`
		Policy       string   `hcl:"policy,optional"`
		Capabilities []string `hcl:"capabilities,optional"`
		Variables    []struct {
			Paths []struct {
				Path         string   `hcl:"path,label"`
				Capabilities []string `hcl:"capabilities"`
			} `hcl:"path,block"`
		} `hcl:"variables,block"`
	} `hcl:"namespace,block"`
	Node     *coarse `hcl:"node,block"`
	Agent    *coarse `hcl:"agent,block"`
	Operator *coarse `hcl:"operator,block"`
}

type coarse struct {
	Policy string `hcl:"policy"`
}

var errDenied = &server.Error{Code: http.StatusForbidden, Text: "Permission denied"}

func newACL(secret string, now time.Time) *acl {
	a := &acl{enabled: secret != "", tokens: map[string]*api.ACLToken{}, policies: map[string]*policy{}, index: 1}
	if a.enabled {
		a.tokens[secret] = &api.ACLToken{AccessorID: uuid.NewString(), SecretID: secret, Name: "Bootstrap Token", Type: "management", Global: true, CreateTime: now, CreateIndex: 1, ModifyIndex: 1}
	}
	return a
}

func secretOf(r *http.Request) string {
	if s := r.Header.Get("X-Nomad-Token"); s != "" {
		return s
	}
	s, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return s
}

// accessor is the caller's token as jobs record it.
func (a *acl) accessor(r *http.Request) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.tokens[secretOf(r)]; t != nil {
		return t.AccessorID
	}
	return ""
}

// manages says whether the caller may do everything.
func (a *acl) manages(r *http.Request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tokens[secretOf(r)]
	return !a.enabled || t != nil && t.Type == "management"
}

// check says whether the caller has one of the capabilities: of the request's
// namespace, or "node:read" and the like, or "management".
func (a *acl) check(r *http.Request, capabilities ...string) error {
	if !a.enabled || len(capabilities) == 0 || capabilities[0] == "" {
		return nil
	}
	return a.allowed(r, func(p *policy) bool {
		return slices.ContainsFunc(capabilities, func(c string) bool { return p.allows(namespace(r), c) })
	})
}

// checkVariable is about one variable: verb is list, read, write or destroy.
func (a *acl) checkVariable(r *http.Request, ns, path, verb string) error {
	if !a.enabled {
		return nil
	}
	return a.allowed(r, func(p *policy) bool { return p.allowsVariable(ns, path, verb) })
}

func (a *acl) allowed(r *http.Request, ok func(p *policy) bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	secret := secretOf(r)
	t := a.tokens[secret]
	if t == nil && secret != "" {
		return &server.Error{Code: http.StatusForbidden, Text: "ACL token not found"}
	}
	names := []string{"anonymous"}
	if t != nil {
		if t.Type == "management" {
			return nil
		}
		names = t.Policies
	}
	for _, n := range names {
		if p := a.policies[n]; p != nil && ok(p) {
			return nil
		}
	}
	return errDenied
}

// implied are the capabilities of the short policies.
var implied = map[string][]string{
	"read":  {"list-jobs", "parse-job", "read-job", "event-stream", "read-logs", "read-fs"},
	"write": {"list-jobs", "parse-job", "read-job", "event-stream", "submit-job", "scale-job", "dispatch-job", "read-logs", "read-fs", "alloc-exec", "alloc-lifecycle"},
	"scale": {"read-job", "list-jobs", "scale-job"},
}

func (p *policy) allows(ns, capability string) bool {
	area, level, isCoarse := strings.Cut(capability, ":")
	if isCoarse {
		c := map[string]*coarse{"node": p.rules.Node, "agent": p.rules.Agent, "operator": p.rules.Operator}[area]
		return c != nil && (c.Policy == "write" || c.Policy == level)
	}
	for _, n := range p.rules.Namespaces {
		if ns != api.AllNamespacesNamespace && n.Name != p.closest(ns) {
			continue
		}
		if slices.Contains(n.Capabilities, capability) || slices.Contains(implied[n.Policy], capability) {
			return true
		}
		// Reading the stream of one's own jobs comes with reading jobs.
		if capability == "event-stream" && (slices.Contains(n.Capabilities, "read-job") || n.Policy != "") {
			return true
		}
	}
	return false
}

func (p *policy) allowsVariable(ns, name, verb string) bool {
	for _, n := range p.rules.Namespaces {
		if n.Name != p.closest(ns) {
			continue
		}
		for _, v := range n.Variables {
			for _, rule := range v.Paths {
				if !glob(rule.Path, name) {
					continue
				}
				if slices.Contains(rule.Capabilities, verb) || verb == "list" && slices.Contains(rule.Capabilities, "read") {
					return true
				}
			}
		}
	}
	return false
}

// closest is the name in the rule that counts in a namespace: its own, else
// that of the longest pattern that matches; "" if no rule does.
func (p *policy) closest(ns string) string {
	best := ""
	for _, n := range p.rules.Namespaces {
		if n.Name == ns {
			return ns
		}
		if glob(n.Name, ns) && len(n.Name) > len(best) {
			best = n.Name
		}
	}
	return best
}

// glob matches "*" with anything, slashes too.
func glob(pattern, s string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(s, prefix)
	}
	ok, err := path.Match(pattern, s)
	return err == nil && ok
}

func (a *Agent) routeACL() {
	a.handle("/v1/acl/bootstrap", "", func(http.ResponseWriter, *http.Request) (any, error) {
		if a.cfg.Token == "" {
			return nil, codef(400, "ACL support disabled")
		}
		return nil, codef(400, "ACL bootstrap already done (reset index: 1)")
	})
	a.handle("GET /v1/acl/token/self", "", a.selfToken)
	a.handle("GET /v1/acl/tokens", "management", a.listTokens)
	a.handle("/v1/acl/token", "management", a.putToken)
	a.handle("any /v1/acl/token/{accessor}", "management", a.token)
	a.handle("GET /v1/acl/policies", "management", a.listPolicies)
	a.handle("GET /v1/acl/policy/{name}", "", a.readPolicy)
	a.handle("/v1/acl/policy/{name}", "management", a.policy)
	a.handle("DELETE /v1/acl/policy/{name}", "management", a.policy)
}

func (a *Agent) selfToken(_ http.ResponseWriter, r *http.Request) (any, error) {
	a.acl.mu.Lock()
	defer a.acl.mu.Unlock()
	if !a.acl.enabled {
		return &api.ACLToken{AccessorID: "acls-disabled", Name: "ACLs disabled token", Type: "client"}, nil
	}
	if t := a.acl.tokens[secretOf(r)]; t != nil {
		return t, nil
	}
	return nil, codef(403, "ACL token not found")
}

func (a *Agent) listTokens(http.ResponseWriter, *http.Request) (any, error) {
	a.acl.mu.Lock()
	defer a.acl.mu.Unlock()
	out := []*api.ACLTokenListStub{}
	for _, t := range a.acl.tokens {
		out = append(out, &api.ACLTokenListStub{AccessorID: t.AccessorID, Name: t.Name, Type: t.Type, Policies: t.Policies, Global: t.Global, CreateTime: t.CreateTime, CreateIndex: t.CreateIndex, ModifyIndex: t.ModifyIndex})
	}
	slices.SortFunc(out, func(x, y *api.ACLTokenListStub) int { return cmp.Compare(x.AccessorID, y.AccessorID) })
	return out, nil
}

func (a *Agent) putToken(_ http.ResponseWriter, r *http.Request) (any, error) {
	var t api.ACLToken
	if err := decode(r, &t); err != nil {
		return nil, err
	}
	if t.Type != "client" && t.Type != "management" {
		return nil, codef(400, "token 0 invalid: token type must be client or management")
	}
	a.acl.mu.Lock()
	defer a.acl.mu.Unlock()
	a.acl.index++
	t.AccessorID, t.SecretID = cmp.Or(t.AccessorID, uuid.NewString()), cmp.Or(t.SecretID, uuid.NewString())
	t.CreateTime, t.CreateIndex, t.ModifyIndex = a.cfg.Server.Now(), a.acl.index, a.acl.index
	a.acl.tokens[t.SecretID] = &t
	return &t, nil
}

func (a *Agent) token(_ http.ResponseWriter, r *http.Request) (any, error) {
	a.acl.mu.Lock()
	defer a.acl.mu.Unlock()
	for secret, t := range a.acl.tokens {
		if t.AccessorID != r.PathValue("accessor") {
			continue
		}
		if r.Method == http.MethodDelete {
			delete(a.acl.tokens, secret)
			return struct{}{}, nil
		}
		return t, nil
	}
	return nil, codef(404, "ACL token not found")
}

func (a *Agent) listPolicies(http.ResponseWriter, *http.Request) (any, error) {
	a.acl.mu.Lock()
	defer a.acl.mu.Unlock()
	out := []*api.ACLPolicyListStub{}
	for _, p := range a.acl.policies {
		out = append(out, &api.ACLPolicyListStub{Name: p.Name, Description: p.Description, CreateIndex: p.CreateIndex, ModifyIndex: p.ModifyIndex})
	}
	slices.SortFunc(out, func(x, y *api.ACLPolicyListStub) int { return cmp.Compare(x.Name, y.Name) })
	return out, nil
}

// readPolicy is for management tokens and for those that carry the policy.
func (a *Agent) readPolicy(_ http.ResponseWriter, r *http.Request) (any, error) {
	name := r.PathValue("name")
	a.acl.mu.Lock()
	defer a.acl.mu.Unlock()
	if !a.acl.enabled {
		return nil, codef(400, "ACL support disabled")
	}
	t := a.acl.tokens[secretOf(r)]
	if t == nil || t.Type != "management" && !slices.Contains(t.Policies, name) {
		return nil, errDenied
	}
	if p := a.acl.policies[name]; p != nil {
		return &p.ACLPolicy, nil
	}
	return nil, codef(404, "ACL policy not found")
}

func (a *Agent) policy(_ http.ResponseWriter, r *http.Request) (any, error) {
	name := r.PathValue("name")
	a.acl.mu.Lock()
	defer a.acl.mu.Unlock()
	if r.Method == http.MethodDelete {
		delete(a.acl.policies, name)
		return struct{}{}, nil
	}
	var p policy
	if err := decode(r, &p.ACLPolicy); err != nil {
		return nil, err
	}
	if err := hclsimple.Decode(name+".hcl", []byte(p.Rules), nil, &p.rules); err != nil {
		return nil, codef(400, "policy 0 invalid: failed to parse: %v", err)
	}
	a.acl.index++
	p.Name, p.CreateIndex, p.ModifyIndex = name, a.acl.index, a.acl.index
	a.acl.policies[name] = &p
	return nil, nil
}
