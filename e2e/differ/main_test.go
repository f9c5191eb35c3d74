// Package differ plays the same random sequences of what users, operators and
// faults do on the stand-in for Nomad and on a real Nomad, and compares what
// can be seen after each step. Where they differ, the stand-in is wrong. What
// the real one answered is kept in testdata, so that the stand-in is held to
// it where there is no Nomad, too.
package differ

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadproc"
)

const plugin = "nomad-device-caravan"

// suite is what all tests share.
var suite struct {
	dir, plugin string
	mu          sync.Mutex
	// real is the one real Nomad there is; sequences take turns on it.
	real *world
	err  error
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "caravan-differ-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	suite.dir, suite.plugin = dir, filepath.Join(dir, plugin)
	build := exec.Command("go", "build", "-o", suite.plugin, "../../devicegpu/cmd/"+plugin)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the device plugin: %v\n%s", err, out)
		os.Exit(1)
	}
	// Sequences wait most of the time.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if suite.real != nil {
		if err := suite.real.c.Stop(); err != nil {
			fmt.Fprintf(os.Stderr, "stop Nomad: %v\n", err)
			code = 1
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// The nodes: n0 and n1 have the same computed class, n2 has one of its own.
// Each has gpusPerNode simulated GPUs, whose UUIDs follow from the node's name
// and are therefore the same on both back ends.
const (
	nodeCount   = 3
	gpusPerNode = 8
)

func nodeName(i int) string { return fmt.Sprintf("n%d", i) }

func spec() devcluster.Spec {
	var s devcluster.Spec
	for i := range nodeCount {
		n := devcluster.Node{
			Name: nodeName(i), Class: "gpu", Meta: map[string]string{"caravan_rack": "r0"},
			Plugins: []devcluster.Plugin{{Name: plugin, Path: suite.plugin, Config: fmt.Sprintf("source = \"mock:dgxa100\"\nmock_seed = %q", nodeName(i))}},
		}
		if i == nodeCount-1 {
			n.Class, n.DistinctClass, n.Meta = "other", true, map[string]string{"caravan_rack": "r1"}
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// standIn starts a stand-in of the test's own.
func standIn(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := devnomad.StartWith(ctx, spec(), devnomad.Options{LostAfter: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	w, err := newWorld(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// realNomad is the real Nomad, started when it is first asked for; false if
// none is installed. The caller holds it until release.
func realNomad(t *testing.T) (w *world, release func(), ok bool) {
	t.Helper()
	bin, found := nomadproc.Find()
	if !found {
		return nil, nil, false
	}
	suite.mu.Lock()
	if suite.real == nil && suite.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		var c devcluster.Cluster
		c, suite.err = nomadproc.Start(ctx, bin, spec())
		if suite.err == nil {
			suite.real, suite.err = newWorld(ctx, c)
		}
	}
	if suite.err != nil {
		suite.mu.Unlock()
		t.Fatal(suite.err)
	}
	return suite.real, suite.mu.Unlock, true
}

// discard stops the real Nomad after a sequence that it did not get through, so
// that the next one gets another. The caller holds it.
func discard(t *testing.T) {
	t.Helper()
	if err := suite.real.c.Stop(); err != nil {
		t.Error(err)
	}
	suite.real = nil
}
