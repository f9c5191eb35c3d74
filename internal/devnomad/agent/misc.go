package agent

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/api/contexts"

	"github.com/caravan-sched/caravan/internal/devnomad/client"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

func (a *Agent) routeMisc() {
	fixed := func(obj any) handler {
		return func(http.ResponseWriter, *http.Request) (any, error) { return obj, nil }
	}
	member := a.member()
	self := map[string]any{
		"config": map[string]any{
			"Region": a.cfg.Region, "Datacenter": "dc1", "Name": member.Name,
			"Version": map[string]any{"Version": client.NomadVersion, "VersionMetadata": "caravan"},
			"ACL":     map[string]any{"Enabled": a.cfg.Token != ""},
			"Server":  map[string]any{"Enabled": true}, "Client": map[string]any{"Enabled": false},
		},
		"member": member,
		"stats":  map[string]map[string]string{"nomad": {"leader": "true", "server": "true", "known_regions": strconv.Itoa(len(a.cfg.Regions()))}},
	}
	a.handle("GET /v1/agent/self", "agent:read", fixed(self))
	a.handle("GET /v1/agent/members", "node:read", fixed(&api.ServerMembers{ServerName: member.Name, ServerRegion: a.cfg.Region, ServerDC: "dc1", Members: []*api.AgentMember{member}}))
	a.handle("GET /v1/agent/servers", "agent:read", fixed([]string{a.cfg.Address}))
	a.handle("GET /v1/agent/health", "", fixed(&api.AgentHealthResponse{Server: &api.AgentHealth{Ok: true, Message: "ok"}}))
	a.handle("GET /v1/status/leader", "", fixed(a.cfg.Address))
	a.handle("GET /v1/status/peers", "", fixed([]string{a.cfg.Address}))
	a.handle("GET /.well-known/jwks.json", "", func(http.ResponseWriter, *http.Request) (any, error) { return a.cfg.Server.PublicKeys() })
	a.handle("GET /v1/regions", "", func(http.ResponseWriter, *http.Request) (any, error) { return a.cfg.Regions(), nil })
	a.handle("GET /v1/metrics", "agent:read", fixed(map[string]any{"Counters": []any{}, "Gauges": []any{}, "Samples": []any{}}))
	for _, empty := range []string{"/v1/volumes", "/v1/plugins", "/v1/services", "/v1/scaling/policies"} {
		a.handle("GET "+empty, "", fixed([]any{}))
	}
	a.handle("GET /v1/namespaces", "", a.listNamespaces)
	a.handle("/v1/namespace", "management", a.putNamespace)
	a.handle("GET /v1/namespace/{name}", "", a.getNamespace)
	a.handle("/v1/namespace/{name}", "management", a.putNamespace)
	a.handle("DELETE /v1/namespace/{name}", "management", a.deleteNamespace)
	a.handle("GET /v1/operator/scheduler/configuration", "operator:read", a.schedulerConfig)
	a.handle("/v1/operator/scheduler/configuration", "operator:write", a.setSchedulerConfig)
	a.handle("/v1/system/gc", "management", func(http.ResponseWriter, *http.Request) (any, error) { return nil, a.cfg.Server.GC() })
	a.handle("/v1/search", "", a.search)
	a.handle("GET /v1/event/stream", "event-stream", a.stream)
	a.handle("GET /v1/client/fs/logs/{id}", "read-logs", a.logs)
	a.handle("GET /v1/client/fs/cat/{id}", "read-fs", a.cat)
	a.handle("GET /v1/client/fs/ls/{id}", "read-fs", a.list)
	a.handle("GET /v1/client/fs/stat/{id}", "read-fs", a.stat)
}

func (a *Agent) member() *api.AgentMember {
	host, port, _ := net.SplitHostPort(a.cfg.Address)
	n, _ := strconv.ParseUint(port, 10, 16)
	return &api.AgentMember{
		Name: "server." + a.cfg.Region, Addr: host, Port: uint16(n), Status: "alive",
		Tags:        map[string]string{"build": client.NomadVersion, "region": a.cfg.Region, "dc": "dc1", "role": "nomad", "id": "server"},
		ProtocolMin: 1, ProtocolMax: 5, ProtocolCur: 2, DelegateMin: 2, DelegateMax: 5, DelegateCur: 4,
	}
}

func (a *Agent) listNamespaces(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.read(func(v *state.View, _ *http.Request, q query) result {
		out := []*api.Namespace{}
		for _, n := range v.Namespaces() {
			if hasPrefix(n.Name, q.prefix) {
				out = append(out, n)
			}
		}
		return result{obj: out, index: v.TableIndex(state.Namespaces)}
	})(w, r)
}

func (a *Agent) getNamespace(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.read(func(v *state.View, r *http.Request, _ query) result {
		n := v.Namespace(r.PathValue("name"))
		if n == nil {
			return result{index: v.TableIndex(state.Namespaces), err: codef(404, "Namespace not found")}
		}
		return result{obj: n, index: n.ModifyIndex}
	})(w, r)
}

func (a *Agent) putNamespace(w http.ResponseWriter, r *http.Request) (any, error) {
	var n api.Namespace
	if err := decode(r, &n); err != nil {
		return nil, err
	}
	if n.Name == "" || strings.ContainsAny(n.Name, " */") {
		return nil, codef(400, "invalid name %q. Must match regex ^[a-zA-Z0-9-]{1,128}$", n.Name)
	}
	return nil, a.write(w, func(tx *state.Tx) error {
		tx.PutNamespace(&n)
		return nil
	})
}

func (a *Agent) deleteNamespace(w http.ResponseWriter, r *http.Request) (any, error) {
	name := r.PathValue("name")
	return nil, a.write(w, func(tx *state.Tx) error {
		switch {
		case name == api.DefaultNamespace:
			return codef(500, "can not delete default namespace")
		case tx.Namespace(name) == nil:
			return codef(500, "namespace not found")
		}
		for _, j := range tx.Jobs(name) {
			if deref(j.Status) != state.JobDead {
				return codef(500, "namespace %q has non-terminal jobs in regions: [%q]", name, a.cfg.Region)
			}
		}
		tx.DeleteNamespace(name)
		return nil
	})
}

func (a *Agent) schedulerConfig(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.read(func(v *state.View, _ *http.Request, _ query) result {
		c := v.SchedulerConfig()
		return result{obj: map[string]any{"SchedulerConfig": c, "Index": c.ModifyIndex, "LastContact": 0, "KnownLeader": true, "NextToken": ""}, index: c.ModifyIndex}
	})(w, r)
}

func (a *Agent) setSchedulerConfig(w http.ResponseWriter, r *http.Request) (any, error) {
	var c api.SchedulerConfiguration
	if err := decode(r, &c); err != nil {
		return nil, err
	}
	cas, err := parseCAS(r)
	if err != nil {
		return nil, err
	}
	if cas != nil {
		c.ModifyIndex = *cas
	}
	resp, err := a.cfg.Server.SetSchedulerConfig(&c, cas != nil)
	if err != nil {
		return nil, err
	}
	setIndex(w, resp.LastIndex)
	return resp, nil
}

// search finds IDs by prefix, which the command line uses for short IDs.
func (a *Agent) search(_ http.ResponseWriter, r *http.Request) (any, error) {
	var req struct {
		Prefix  string
		Context contexts.Context
	}
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	resp := &api.SearchResponse{Matches: map[contexts.Context][]string{}, Truncations: map[contexts.Context]bool{}}
	add := func(c contexts.Context, id string) {
		if (req.Context == contexts.All || req.Context == c || req.Context == "") && hasPrefix(id, req.Prefix) && len(resp.Matches[c]) < 20 {
			resp.Matches[c] = append(resp.Matches[c], id)
		}
	}
	a.cfg.Server.Store().View(func(v *state.View) {
		ns := namespace(r)
		for _, j := range v.Jobs(ns) {
			add(contexts.Jobs, *j.ID)
		}
		for _, n := range v.Nodes() {
			add(contexts.Nodes, n.ID)
		}
		for _, al := range v.Allocs() {
			if inNamespace(al.Namespace, ns) {
				add(contexts.Allocs, al.ID)
			}
		}
		for _, e := range v.Evals() {
			if inNamespace(e.Namespace, ns) {
				add(contexts.Evals, e.ID)
			}
		}
		for _, d := range v.Deployments() {
			if inNamespace(d.Namespace, ns) {
				add(contexts.Deployments, d.ID)
			}
		}
	})
	return resp, nil
}
