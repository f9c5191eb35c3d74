// Package driver tests gangs under the task driver as their users have them: the
// built binaries, the planner as processes, the plugins loaded by the clients of
// either back end. What is compared is what the members' code has written down,
// not what the planner says of it.
package driver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/freeport"
	"github.com/caravan-sched/caravan/internal/nomadproc"
)

const (
	caravanBin = "caravan"
	deviceBin  = "nomad-device-caravan"
	driverBin  = "nomad-driver-caravan"
)

// fenceAfter is how long members run on cut off, where a test does not say.
const fenceAfter = 10 * time.Second

// lostAfter is when the stand-in takes a silent node for lost. Where no node is cut
// off one is silent only while its client is started again, which on a busy
// machine may take long and is no loss.
const lostAfter, lostAfterCut = 10 * time.Minute, 4 * time.Second

// suite is what all tests share.
var suite struct {
	dir  string
	mu   sync.Mutex
	once map[string]*sync.Once
	up   map[string]*stage
	err  map[string]error
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if suite.dir, err = os.MkdirTemp("", "cvn-driver-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(suite.dir)
		suite.once, suite.up, suite.err = map[string]*sync.Once{}, map[string]*stage{}, map[string]error{}
		build := exec.Command("go", "build", "-o", suite.dir+"/", "../../planner/cmd/"+caravanBin, "../../devicegpu/cmd/"+deviceBin, "../../driver/cmd/"+driverBin)
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the binaries: %v\n%s", err, out)
			return 1
		}
		// Tests wait for clusters, and for their turn, most of the time.
		flag.Parse()
		if err := flag.Set("test.parallel", "100"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		for name, s := range suite.up {
			if err := s.stop(); err != nil {
				fmt.Fprintf(os.Stderr, "stop %s: %v\n", name, err)
				code = 1
			}
		}
		return code
	}())
}

// stage is a cluster with planners before it, shared by tests.
type stage struct {
	cluster devcluster.Cluster
	// turn is the test's that has the stage now.
	turn sync.Mutex
	// dir is for what is told to the plugins: faults of GPUs, states of tasks.
	dir string
	// links are what the drivers take for the planners' addresses.
	links    [2]*link
	babbled  atomic.Int64
	planners [2]*planner
	// small says that each node's states of tasks are on a disk of their own, of
	// 2 MiB.
	small bool
}

var nodeNames = []string{"gpu-1", "gpu-2", "gpu-3"}

// startStage starts three nodes of eight simulated GPUs, and one planner.
func startStage(backend, purpose string, networks bool) (_ *stage, err error) {
	s := &stage{dir: filepath.Join(suite.dir, backend+"-"+purpose)}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	// A name of its own tells this stage's processes from others.
	if err := os.Link(filepath.Join(suite.dir, driverBin), filepath.Join(s.dir, driverBin)); err != nil {
		return nil, err
	}
	var ports [4]string
	for i := range ports {
		port, err := freeport.Take("127.0.0.1")
		if err != nil {
			return nil, err
		}
		ports[i] = fmt.Sprint(port)
	}
	spec := devcluster.Spec{Networks: networks}
	s.small = true
	for i, name := range nodeNames {
		s.small = mountSmall(s.stateDir(name), "2m") == nil && s.small
		spec.Nodes = append(spec.Nodes, devcluster.Node{
			Name: name, Meta: map[string]string{"caravan_rack": []string{"r1", "r1", "r2"}[i]},
			Plugins: []devcluster.Plugin{
				{Name: deviceBin, Path: filepath.Join(suite.dir, deviceBin), Config: fmt.Sprintf("source = \"mock:dgxh100\"\nmock_seed = %q", name)},
				{Name: driverBin, Path: filepath.Join(s.dir, driverBin), Config: fmt.Sprintf(`
state_dir   = %q
gpu_source  = "mock:dgxh100"
mock_seed   = %q
mock_faults = %q
fence_after = %q
planner {
  addresses = ["http://%[5]s:%[6]s", "http://%[5]s:%[7]s"]
}`, s.stateDir(name), name, s.faults(name), fenceAfter, devcluster.ServerHost, ports[0], ports[1])},
			},
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if backend == devcluster.BackendDevNomad {
		opts := devnomad.Options{LostAfter: lostAfter}
		if purpose == cuts {
			opts.LostAfter = lostAfterCut
		}
		s.cluster, err = devnomad.StartWith(ctx, spec, opts)
	} else {
		bin, _ := nomadproc.Find()
		s.cluster, err = nomadproc.Start(ctx, bin, spec)
	}
	if err != nil {
		s.cluster = nil // the interface holds a nil pointer
		return nil, err
	}
	if err := s.cluster.WaitReady(ctx); err != nil {
		return nil, err
	}
	server, err := url.Parse(s.cluster.Address())
	if err != nil {
		return nil, err
	}
	for i := range s.links {
		own := net.JoinHostPort("127.0.0.1", ports[2+i])
		s.planners[i] = newPlanner(s, fmt.Sprint("planner-", i+1), own)
		if s.links[i], err = newLink(net.JoinHostPort(server.Hostname(), ports[i]), own, &s.babbled); err != nil {
			return nil, err
		}
	}
	return s, s.planners[0].start()
}

// stateDir is where a node's driver keeps the states of tasks, faults where its
// preflights read the faults of simulated GPUs.
func (s *stage) stateDir(node string) string { return filepath.Join(s.dir, "t-"+node) }
func (s *stage) faults(node string) string   { return filepath.Join(s.dir, node+".faults") }

func (s *stage) stop() error {
	var errs []error
	for i := range s.planners {
		if s.planners[i] != nil {
			s.planners[i].kill()
		}
		if s.links[i] != nil {
			errs = append(errs, s.links[i].close())
		}
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Stop())
	}
	for _, name := range nodeNames {
		_ = unix.Unmount(s.stateDir(name), unix.MNT_DETACH) // it may be none
	}
	return errors.Join(errs...)
}

// shared is the purpose of the clusters that tests share, one after the other, and
// cuts of those whose nodes are cut off.
const shared, cuts = "all", "cuts"

// onEach runs a test on the stand-in, and on a real Nomad where there is one.
// The clusters are shared.
func onEach(t *testing.T, test func(t *testing.T, r *rig)) { onEachOf(t, shared, false, test) }

// onEachOf is onEach on clusters for another purpose, beside other tests.
func onEachOf(t *testing.T, purpose string, networks bool, test func(t *testing.T, r *rig)) {
	t.Parallel()
	for _, backend := range []string{devcluster.BackendDevNomad, devcluster.BackendNomad} {
		t.Run(backend, func(t *testing.T) {
			if _, ok := nomadproc.Find(); !ok && backend == devcluster.BackendNomad {
				t.Skip("needs Nomad: set NOMAD_BIN or put nomad on the PATH")
			}
			s := get(t, backend, purpose, networks)
			s.turn.Lock()
			t.Cleanup(s.turn.Unlock)
			test(t, newRig(t, s))
		})
	}
}

func get(t *testing.T, backend, purpose string, networks bool) *stage {
	t.Helper()
	key := backend + " for " + purpose
	suite.mu.Lock()
	once := suite.once[key]
	if once == nil {
		once = new(sync.Once)
		suite.once[key] = once
	}
	suite.mu.Unlock()
	once.Do(func() {
		s, err := startStage(backend, purpose, networks)
		suite.mu.Lock()
		defer suite.mu.Unlock()
		if suite.err[key] = err; err == nil {
			suite.up[key] = s
		}
	})
	suite.mu.Lock()
	defer suite.mu.Unlock()
	if err := suite.err[key]; errors.Is(err, devcluster.ErrNoNetworks) {
		t.Skip(err)
	} else if err != nil {
		t.Fatalf("start %s: %v", key, err)
	}
	return suite.up[key]
}
