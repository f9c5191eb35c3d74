package agent

import (
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/client"
)

// local is the API of an agent that is a client only: it answers for itself,
// and asks the servers for the rest.
type local struct {
	servers *Agent
	own     *http.ServeMux
	client  *client.Client
}

// What a client answers that reaches no server, and for how long after it was
// cut off it does not answer at all: until then its connections seem to live.
const (
	noServers   = "rpc error: EOF"
	seemsLinked = 40 * time.Second
)

// ForClient returns the API of a client's own agent at an address.
func ForClient(servers *Agent, c *client.Client, address string) http.Handler {
	l := &local{servers: servers, client: c, own: http.NewServeMux()}
	l.handle("GET /v1/agent/self", "agent:read", l.self)
	l.handle("GET /v1/agent/servers", "agent:read", func(http.ResponseWriter, *http.Request) (any, error) { return l.known(), nil })
	l.handle("GET /v1/agent/health", "", l.health)
	return l
}

func (l *local) handle(pattern, capability string, h handler) {
	_, path, _ := strings.Cut(pattern, " ")
	l.own.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if err := l.servers.acl.check(r, capability); err != nil {
			writeError(w, err)
			return
		}
		obj, err := h(w, r)
		if err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, r, http.StatusOK, obj)
	})
}

// ServeHTTP implements http.Handler.
func (l *local) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, own := l.own.Handler(r)
	switch {
	case own != "":
		l.own.ServeHTTP(w, r)
	case l.client.Alone() && !strings.HasPrefix(r.URL.Path, "/v1/client/"):
		l.client.AwaitLink(r.Context(), seemsLinked)
		if l.client.Alone() {
			writeError(w, codef(http.StatusInternalServerError, noServers))
			return
		}
		l.servers.ServeHTTP(w, r)
	default:
		l.servers.ServeHTTP(w, r)
	}
}

// known are the servers that the client knows; a real one drops none of them
// for being out of reach.
func (l *local) known() []string { return []string{l.servers.cfg.Address} }

func (l *local) self(http.ResponseWriter, *http.Request) (any, error) {
	return map[string]any{
		"config": map[string]any{
			"Region": l.servers.cfg.Region, "Datacenter": l.client.Datacenter(), "Name": l.client.Name(),
			"Version": map[string]any{"Version": client.NomadVersion, "VersionMetadata": "caravan"},
			"ACL":     map[string]any{"Enabled": l.servers.cfg.Token != ""},
			"Server":  map[string]any{"Enabled": false}, "Client": map[string]any{"Enabled": true},
		},
		"member": &api.AgentMember{Tags: map[string]string{}},
		"stats":  map[string]map[string]string{"client": l.client.AgentStats(l.known())},
	}, nil
}

func (l *local) health(http.ResponseWriter, *http.Request) (any, error) {
	return &api.AgentHealthResponse{Client: &api.AgentHealth{Ok: true, Message: "ok"}}, nil
}
