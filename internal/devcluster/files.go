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
	r, err := agent.(*api.Client).Raw().Response("/v1/client/fs/cat/"+a.ID, &api.QueryOptions{Params: map[string]string{"path": path}})
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
