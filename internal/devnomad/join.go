package devnomad

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad/client"
)

// JoinPath takes a devcluster.Node by POST: the node joins, and is there as long as
// the request lasts. Nomad has nothing of the kind; it stands for a client's
// process, whose end is that of its machine.
const JoinPath = "/v1/dev/join"

// Joining implements devcluster.Cluster.
func (c *Cluster) Joining() devcluster.Joining {
	return devcluster.Joining{Backend: c.Backend(), Address: c.Address(), Token: c.token, Bind: c.spec.Bind, Region: c.Region(), ACL: c.token != ""}
}

// joining answers requests to join, and leaves all others to next.
func (c *Cluster) joining(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != JoinPath {
			next.ServeHTTP(w, r)
			return
		}
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Nomad-Token")), []byte(c.token)) != 1 {
			http.Error(w, "Permission denied", http.StatusForbidden)
			return
		}
		var n devcluster.Node
		if err := json.NewDecoder(r.Body).Decode(&n); r.Method != http.MethodPost || err != nil || n.Name == "" || n.Name != filepath.Base(n.Name) {
			http.Error(w, fmt.Sprintf("join: want a node by POST: %v", err), http.StatusBadRequest)
			return
		}
		cl, err := c.join(r.Context(), n)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		defer c.leave(cl)
		w.WriteHeader(http.StatusOK)
		if _, err := fmt.Fprintln(w, cl.ID()); err != nil {
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		<-r.Context().Done()
	})
}

func (c *Cluster) join(ctx context.Context, n devcluster.Node) (*client.Client, error) {
	c.joins.Lock()
	defer c.joins.Unlock()
	cl, err := c.addNode(len(c.all()), n)
	if err != nil {
		return nil, err
	}
	if err := cl.Start(ctx); err != nil {
		c.leave(cl)
		return nil, err
	}
	return cl, nil
}

// leave ends a machine: what runs on it ends too, and its disk is no more.
func (c *Cluster) leave(cl *client.Client) {
	cl.Destroy()
	c.mu.Lock()
	a := c.agents[cl.Name()]
	delete(c.agents, cl.Name())
	delete(c.byID, cl.ID())
	c.clients = slices.DeleteFunc(c.clients, func(x *client.Client) bool { return x == cl })
	c.mu.Unlock()
	if a != nil {
		a.close()
	}
	if err := os.RemoveAll(filepath.Join(c.dir, cl.Name())); err != nil && !errors.Is(err, os.ErrNotExist) && c.spec.Log != nil {
		c.spec.Log(fmt.Sprintf("remove what node %s had: %v", cl.Name(), err))
	}
}
