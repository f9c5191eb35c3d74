// Package facts tests what Caravan takes for granted about Nomad, each fact on
// every back end there is: the stand-in always, a real Nomad when one is
// installed. Where they differ, the stand-in is wrong.
package facts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadplugin/plugintest"
	"github.com/caravan-sched/caravan/internal/nomadproc"
)

const plugin = "nomad-device-caravan"

// alike and distinct are the datacenters of nodes that share a computed class
// and of nodes that have one each.
const (
	alike    = "alike"
	distinct = "distinct"
)

// suite is what all tests share.
var suite struct {
	plugin string
	mu     sync.Mutex
	up     map[string]devcluster.Cluster
	errs   map[string]error
}

func TestMain(m *testing.M) {
	plugintest.ServeIfStarted()
	dir, err := os.MkdirTemp("", "caravan-facts-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	suite.up, suite.errs = map[string]devcluster.Cluster{}, map[string]error{}
	suite.plugin = filepath.Join(dir, plugin)
	build := exec.Command("go", "build", "-o", suite.plugin, "../../devicegpu/cmd/"+plugin)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the device plugin: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	for name, c := range suite.up {
		if c == nil {
			continue // it did not start
		}
		if err := c.Stop(); err != nil {
			fmt.Fprintf(os.Stderr, "stop %s: %v\n", name, err)
			code = 1
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// spec is three alike nodes and two that differ, each with 8 simulated GPUs.
func spec() devcluster.Spec {
	var s devcluster.Spec
	add := func(name, dc string, differs bool) {
		s.Nodes = append(s.Nodes, devcluster.Node{
			Name: name, Datacenter: dc, DistinctClass: differs, Meta: map[string]string{"caravan_rack": "r1"},
			Plugins: []devcluster.Plugin{{Name: plugin, Path: suite.plugin, Config: fmt.Sprintf("source = \"mock:dgxa100\"\nmock_seed = %q", name)}},
		})
	}
	for _, n := range []string{"a1", "a2", "a3"} {
		add(n, alike, false)
	}
	for _, n := range []string{"d1", "d2"} {
		add(n, distinct, true)
	}
	return s
}

// backend returns a cluster that tests share by its purpose, started when it is
// first asked for.
func backend(t *testing.T, name, purpose string, spec func() devcluster.Spec) devcluster.Cluster {
	t.Helper()
	suite.mu.Lock()
	defer suite.mu.Unlock()
	key := name + " for " + purpose
	if suite.up[key] == nil && suite.errs[key] == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		// Where clients are only started again, that must not lose their nodes however
		// long it takes.
		lostAfter := time.Second
		if purpose == drivers {
			lostAfter = 10 * time.Minute
		}
		suite.up[key], suite.errs[key] = startBackend(ctx, name, spec(), lostAfter)
	}
	if err := suite.errs[key]; errors.Is(err, devcluster.ErrNoNetworks) {
		t.Skip(err)
	} else if err != nil {
		t.Fatalf("start %s: %v", key, err)
	}
	return suite.up[key]
}

func startBackend(ctx context.Context, name string, spec devcluster.Spec, lostAfter time.Duration) (devcluster.Cluster, error) {
	var c devcluster.Cluster
	var err error
	if name == devcluster.BackendDevNomad {
		c, err = devnomad.StartWith(ctx, spec, devnomad.Options{LostAfter: lostAfter})
	} else {
		bin, _ := nomadproc.Find()
		c, err = nomadproc.Start(ctx, bin, spec)
	}
	if err != nil {
		return nil, err
	}
	if err := c.WaitReady(ctx); err != nil {
		return nil, fmt.Errorf("%w (and %v)", err, c.Stop())
	}
	return c, nil
}

// each runs a fact on every back end there is.
func each(t *testing.T, fact func(t *testing.T, e *env)) { eachOf(t, "placement", spec, fact) }

// eachOf is each on clusters for another purpose.
func eachOf(t *testing.T, purpose string, spec func() devcluster.Spec, fact func(t *testing.T, e *env)) {
	t.Helper()
	names := []string{devcluster.BackendDevNomad}
	if _, ok := nomadproc.Find(); ok {
		names = append(names, devcluster.BackendNomad)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) { fact(t, newEnv(t, backend(t, name, purpose, spec))) })
	}
}

// eachClass runs a fact on every back end, among nodes of one computed class
// and among nodes of different ones.
func eachClass(t *testing.T, fact func(t *testing.T, e *env, dc string)) {
	each(t, func(t *testing.T, e *env) {
		for _, dc := range []string{alike, distinct} {
			t.Run(dc, func(t *testing.T) { fact(t, newEnv(t, e.c), dc) })
		}
	})
}
