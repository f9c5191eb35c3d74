package devcluster

import (
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/nomad/api"
)

// agents are the APIs of nodes' agents, by the node's ID.
var agents sync.Map

// ReadFile reads a file of an allocation from the agent of its node. AllocFS would do
// so by a connection of its own each time, which stays open for a while, and an agent
// has no more than a hundred for one address.
func ReadFile(c *api.Client, a *api.Allocation, path string) (string, error) {
	agent, known := agents.Load(a.NodeID)
	if !known {
		made, err := c.GetNodeClient(a.NodeID, nil)
		if err != nil {
			return "", fmt.Errorf("find the agent of node %s: %w", a.NodeID, err)
		}
		agent, _ = agents.LoadOrStore(a.NodeID, made)
	}
	raw, q := agent.(*api.Client).Raw(), &api.QueryOptions{Params: map[string]string{"path": path}}
	// An agent that is asked for a file of its own that it does not have may answer with
	// the error as if it were the file.
	if _, err := raw.Query("/v1/client/fs/stat/"+a.ID, new(api.AllocFileInfo), q); err != nil {
		return "", fmt.Errorf("find %s of allocation %s: %w", path, a.ID, err)
	}
	r, err := raw.Response("/v1/client/fs/cat/"+a.ID, q)
	if err != nil {
		return "", fmt.Errorf("read %s of allocation %s: %w", path, a.ID, err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		return "", fmt.Errorf("read %s of allocation %s: %w", path, a.ID, err)
	}
	return string(text), nil
}
