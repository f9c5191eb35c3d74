package nomadproc_test

import (
	"os"
	"testing"

	"github.com/caravan-sched/caravan/internal/devcluster"
)

// TestStopLeavesNoSockets: what agents and plugins put into the system's folder
// for temporary files goes with the cluster.
func TestStopLeavesNoSockets(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	c := start(t, devcluster.Spec{Nodes: []devcluster.Node{{Name: "a", Plugins: []devcluster.Plugin{plugin(t, `prefix = "a-"`)}}}})
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		t.Errorf("%s was left behind", f.Name())
	}
}
