package devnomad_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
)

// A node joins while the cluster runs, runs tasks, and is lost with all that runs on
// it when its request ends.
func TestJoinAndLeave(t *testing.T) {
	c, err := devnomad.StartWith(t.Context(), devcluster.Spec{}, devnomad.Options{LostAfter: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	for range 2 { // the same name again is another machine
		ctx, leave := context.WithCancel(t.Context())
		id := join(ctx, t, c, "late")
		n, _, err := c.Client().Nodes().Info(id, nil)
		if err != nil || n.Status != api.NodeStatusReady || n.Meta["caravan_pool"] != "p" {
			t.Fatalf("joined node is %+v (%v), want it ready with its meta", n, err)
		}
		if c.AgentAddress("late") == "" {
			t.Error("the node's agent has no address")
		}
		leave()
		for end := time.Now().Add(90 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if n, _, err := c.Client().Nodes().Info(id, nil); err == nil && n.Status == api.NodeStatusDown && c.AgentAddress("late") == "" {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the node that left is not down")
			}
		}
	}
}

func join(ctx context.Context, t *testing.T, c *devnomad.Cluster, name string) string {
	t.Helper()
	body, err := json.Marshal(devcluster.Node{Name: name, Meta: map[string]string{"caravan_pool": "p"}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Address()+devnomad.JoinPath, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	line := make([]byte, 36)
	if _, err := resp.Body.Read(line); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("join: %s, %v", resp.Status, err)
	}
	return string(line)
}
