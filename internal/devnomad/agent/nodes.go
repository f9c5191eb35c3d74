package agent

import (
	"net/http"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

func (a *Agent) routeNodes() {
	a.handle("GET /v1/nodes", "node:read", a.listNodes)
	a.handle("GET /v1/node/{id}", "node:read", a.getNode)
	a.handle("GET /v1/node/{id}/{what}", "node:read", a.nodeOrPool)
	a.handle("/v1/node/{id}/eligibility", "node:write", a.eligibility)
	a.handle("/v1/node/{id}/drain", "node:write", a.drain)
	a.handle("/v1/node/{id}/purge", "node:write", a.purge)
	a.handle("/v1/node/{id}/evaluate", "node:write", a.evaluateNode)
	a.handle("GET /v1/node/pools", "node:read", a.listPools)
	a.handle("/v1/node/pools", "node:write", a.putPool)
	a.handle("DELETE /v1/node/pool/{name}", "node:write", a.deletePool)
	a.handle("GET /v1/node/pool/{name}/nodes", "node:read", a.listNodes)
	a.handle("any /v1/client/metadata", "node:write", a.metadata)
	a.handle("GET /v1/client/stats", "node:read", a.hostStats)
}

// nodeOrPool tells /v1/node/:id/allocations from /v1/node/pool/:name.
func (a *Agent) nodeOrPool(w http.ResponseWriter, r *http.Request) (any, error) {
	switch {
	case r.PathValue("id") == "pool":
		r.SetPathValue("name", r.PathValue("what"))
		return a.getPool(w, r)
	case r.PathValue("what") == "allocations":
		return a.nodeAllocs(w, r)
	}
	return nil, codef(404, "Invalid method")
}

func stubNode(n *state.Node, resources, os bool) *api.NodeListStub {
	address, _, _ := strings.Cut(n.HTTPAddr, ":")
	s := &api.NodeListStub{
		Address: address, ID: n.ID, Datacenter: n.Datacenter, Name: n.Name, NodeClass: n.NodeClass, NodePool: n.NodePool,
		Version: n.Attributes["nomad.version"], Drain: n.DrainStrategy != nil, SchedulingEligibility: n.SchedulingEligibility,
		Status: n.Status, StatusDescription: n.StatusDescription, Drivers: n.Drivers, LastDrain: n.LastDrain,
		CreateIndex: n.CreateIndex, ModifyIndex: n.ModifyIndex,
	}
	if resources {
		s.NodeResources, s.ReservedResources = n.NodeResources, n.ReservedResources
	}
	if os {
		s.Attributes = map[string]string{"os.name": n.Attributes["os.name"]}
	}
	return s
}

func (a *Agent) listNodes(w http.ResponseWriter, r *http.Request) (any, error) {
	resources, err := flag(r, "resources", false)
	if err != nil {
		return nil, err
	}
	os, err := flag(r, "os", false)
	if err != nil {
		return nil, err
	}
	pool := r.PathValue("name")
	return a.read(func(v *state.View, _ *http.Request, q query) result {
		out := []*api.NodeListStub{}
		for _, n := range v.Nodes() {
			if hasPrefix(n.ID, q.prefix) && (pool == "" || pool == api.NodePoolAll || pool == n.NodePool) && q.keeps(n.Node) {
				out = append(out, stubNode(n, resources, os))
			}
		}
		return result{obj: page(w, q, out, func(s *api.NodeListStub) string { return s.ID }), index: v.TableIndex(state.Nodes)}
	})(w, r)
}

func (a *Agent) getNode(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.read(func(v *state.View, r *http.Request, _ query) result {
		n := v.Node(r.PathValue("id"))
		if n == nil {
			return result{index: v.TableIndex(state.Nodes), err: missing("node", "", r.PathValue("id"))}
		}
		return result{obj: n, index: n.ModifyIndex}
	})(w, r)
}

func (a *Agent) nodeAllocs(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.read(func(v *state.View, r *http.Request, _ query) result {
		out := append([]*api.Allocation{}, v.AllocsOfNode(r.PathValue("id"))...)
		return result{obj: out, index: v.TableIndex(state.Allocs)}
	})(w, r)
}

func (a *Agent) eligibility(_ http.ResponseWriter, r *http.Request) (any, error) {
	var req api.NodeUpdateEligibilityRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	if req.NodeID != "" && req.NodeID != r.PathValue("id") {
		return nil, codef(400, "Node ID does not match")
	}
	if err := short("node", "", r.PathValue("id")); err != nil {
		return nil, err
	}
	return a.cfg.Server.SetEligibility(r.PathValue("id"), req.Eligibility)
}

func (a *Agent) drain(_ http.ResponseWriter, r *http.Request) (any, error) {
	var req api.NodeUpdateDrainRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	return a.cfg.Server.Drain(r.PathValue("id"), req.DrainSpec, req.MarkEligible, req.Meta)
}

func (a *Agent) purge(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.cfg.Server.Purge(r.PathValue("id"))
}

func (a *Agent) evaluateNode(_ http.ResponseWriter, r *http.Request) (any, error) {
	ids, err := a.cfg.Server.EvaluateNode(r.PathValue("id"))
	return map[string]any{"EvalIDs": ids}, err
}

// metadata reads or changes the dynamic meta of a node; the change reaches the
// server at once, where Nomad takes seconds.
func (a *Agent) metadata(_ http.ResponseWriter, r *http.Request) (any, error) {
	id := r.URL.Query().Get("node_id")
	var req api.NodeMetaApplyRequest
	if r.Method != http.MethodGet {
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		if req.NodeID != "" {
			id = req.NodeID
		}
		if len(req.Meta) == 0 {
			return nil, codef(400, "missing required Meta object")
		}
	}
	if id == "" {
		a.cfg.Server.Store().View(func(v *state.View) {
			if nodes := v.Nodes(); len(nodes) > 0 {
				id = nodes[0].ID
			}
		})
	}
	c := a.cfg.Client(id)
	if c == nil {
		return nil, codef(404, "Unknown node %q", id)
	}
	merged, dynamic, static := c.SetMeta(req.Meta)
	return &api.NodeMetaResponse{Meta: merged, Dynamic: dynamic, Static: static}, nil
}

// hostStats are those of the node that is named. The servers are no clients, so
// that there is no node of their own.
func (a *Agent) hostStats(_ http.ResponseWriter, r *http.Request) (any, error) {
	id := r.URL.Query().Get("node_id")
	if id == "" {
		return nil, codef(400, "No local Node and node_id not provided")
	}
	c := a.cfg.Client(id)
	if c == nil {
		return nil, codef(404, "Unknown node %q", id)
	}
	return c.HostStats(r.Context())
}

func (a *Agent) listPools(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.read(func(v *state.View, _ *http.Request, q query) result {
		out := []*api.NodePool{}
		for _, p := range v.Pools() {
			if hasPrefix(p.Name, q.prefix) && q.keeps(p) {
				out = append(out, p)
			}
		}
		return result{obj: page(w, q, out, func(p *api.NodePool) string { return p.Name }), index: v.TableIndex(state.Pools)}
	})(w, r)
}

func (a *Agent) getPool(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.read(func(v *state.View, r *http.Request, _ query) result {
		p := v.Pool(r.PathValue("name"))
		if p == nil {
			return result{index: v.TableIndex(state.Pools), err: codef(404, "node pool not found")}
		}
		return result{obj: p, index: p.ModifyIndex}
	})(w, r)
}

func (a *Agent) putPool(w http.ResponseWriter, r *http.Request) (any, error) {
	var p api.NodePool
	if err := decode(r, &p); err != nil {
		return nil, err
	}
	if p.Name == "" || p.Name == api.NodePoolAll || p.Name == api.NodePoolDefault {
		return nil, codef(400, "modifying node pool %q is not allowed", p.Name)
	}
	return nil, a.write(w, func(tx *state.Tx) error {
		tx.PutPool(&p)
		return nil
	})
}

func (a *Agent) deletePool(w http.ResponseWriter, r *http.Request) (any, error) {
	name := r.PathValue("name")
	return nil, a.write(w, func(tx *state.Tx) error {
		if tx.Pool(name) == nil || name == api.NodePoolAll || name == api.NodePoolDefault {
			return codef(404, "node pool %s not found", name)
		}
		for _, n := range tx.Nodes() {
			if n.NodePool == name {
				return codef(400, "node pool %q has nodes", name)
			}
		}
		tx.DeletePool(name)
		return nil
	})
}

// write makes a change that concerns nothing but the state.
func (a *Agent) write(w http.ResponseWriter, f func(tx *state.Tx) error) error {
	return a.cfg.Server.Store().Update("", a.cfg.Server.Now(), func(tx *state.Tx) error {
		setIndex(w, tx.Index)
		return f(tx)
	})
}
