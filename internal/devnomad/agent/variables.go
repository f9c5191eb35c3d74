package agent

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/server"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

func (a *Agent) routeVariables() {
	a.handle("GET /v1/vars", "", a.listVariables)
	a.handle("any /v1/var/", "", a.variable)
}

func (a *Agent) listVariables(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.read(func(v *state.View, r *http.Request, q query) result {
		out := []*api.VariableMetadata{}
		for _, x := range v.VariablesOf(q.namespace) {
			if hasPrefix(x.Path, q.prefix) && a.acl.checkVariable(r, x.Namespace, x.Path, "list") == nil && q.keeps(x.Metadata()) {
				m := x.Metadata()
				m.Lock = nil
				out = append(out, m)
			}
		}
		id := func(m *api.VariableMetadata) string { return m.Namespace + "." + m.Path }
		return result{obj: page(w, q, out, id), index: v.TableIndex(state.Variables)}
	})(w, r)
}

func (a *Agent) variable(w http.ResponseWriter, r *http.Request) (any, error) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/var/")
	if path == "" {
		return nil, codef(400, "missing variable path")
	}
	k := state.Key{Namespace: namespace(r), ID: path}
	verb := map[string]string{http.MethodGet: "read", http.MethodDelete: "destroy"}[r.Method]
	if verb == "" {
		verb = "write"
	}
	if err := a.acl.checkVariable(r, k.Namespace, path, verb); err != nil {
		return nil, err
	}
	switch r.Method {
	case http.MethodGet:
		return a.getVariable(w, r, k)
	case http.MethodPut, http.MethodPost:
		return a.putVariable(w, r, k)
	case http.MethodDelete:
		return a.deleteVariable(w, r, k)
	}
	return nil, codef(400, "Invalid method")
}

func (a *Agent) getVariable(w http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	return a.read(func(v *state.View, r *http.Request, _ query) result {
		x := v.Variable(k)
		if x == nil {
			return result{index: v.TableIndex(state.Variables), err: codef(404, "variable not found")}
		}
		c := *x
		if x.Lock != nil {
			// The lock's ID is its key. That there is one is shown to management
			// tokens alone.
			c.Lock = nil
			if a.acl.manages(r) {
				c.Lock = &api.VariableLock{TTL: x.Lock.TTL, LockDelay: x.Lock.LockDelay}
			}
		}
		return result{obj: &c, index: x.ModifyIndex}
	})(w, r)
}

func parseCAS(r *http.Request) (*uint64, error) {
	s := r.URL.Query().Get("cas")
	if s == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return nil, codef(400, "can not parse cas: %v", err)
	}
	return &n, nil
}

func (a *Agent) putVariable(w http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	cas, err := parseCAS(r)
	if err != nil {
		return nil, err
	}
	op := ""
	for _, o := range []string{"lock-acquire", "lock-renew", "lock-release"} {
		if _, there := r.URL.Query()[o]; there {
			if op != "" {
				return nil, codef(400, "multiple lock operations")
			}
			op = o
		}
	}
	if op != "" && cas != nil {
		return nil, codef(400, "CAS can't be used with lock operations")
	}
	var x api.Variable
	if err := decode(r, &x); err != nil {
		return nil, err
	}
	x.Path = k.ID
	if x.Namespace == "" {
		x.Namespace = k.Namespace
	}
	k.Namespace = x.Namespace
	lock := ""
	if x.Lock != nil {
		lock = x.Lock.ID
	}
	var out *api.Variable
	switch op {
	case "":
		if len(x.Items) == 0 {
			return nil, codef(400, "variable missing required Items object")
		}
		if x.Lock != nil && (x.Lock.TTL != "" || x.Lock.LockDelay != "") {
			return nil, codef(400, "variable should not contain lock definition")
		}
		out, err = a.cfg.Server.PutVariable(&x, cas)
	case "lock-acquire":
		out, err = a.cfg.Server.AcquireLock(&x)
	case "lock-renew":
		return a.cfg.Server.RenewLock(k, lock)
	case "lock-release":
		if len(x.Items) > 0 {
			return nil, codef(400, "lock release operation doesn't take variable items")
		}
		out, err = a.cfg.Server.ReleaseLock(k, lock)
	}
	if a.conflict(w, r, err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	setIndex(w, out.ModifyIndex)
	return out, nil
}

// conflict answers a refused check-and-set with what is there.
func (a *Agent) conflict(w http.ResponseWriter, r *http.Request, err error) bool {
	var c *server.Conflict
	if !errors.As(err, &c) {
		return false
	}
	setIndex(w, c.Variable.ModifyIndex)
	writeJSON(w, r, http.StatusConflict, c.Variable)
	return true
}

func (a *Agent) deleteVariable(w http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	cas, err := parseCAS(r)
	if err != nil {
		return nil, err
	}
	err = a.cfg.Server.DeleteVariable(k, "", cas)
	if a.conflict(w, r, err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil, nil
}
