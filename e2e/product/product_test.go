// Package product tests the product as its users have it: the built binaries,
// as processes, on a cluster of either back end.
package product

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/freeport"
	"github.com/caravan-sched/caravan/internal/nomadproc"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

const (
	caravanBin = "caravan"
	pluginBin  = "nomad-device-caravan"
	// patience is how long the product may take to come to a state. Only a
	// failing test waits that long.
	patience = 90 * time.Second
)

// bin is the folder of the built binaries.
var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if bin, err = os.MkdirTemp("", "caravan-product-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(bin)
		build := exec.Command("go", "build", "-o", bin+"/", "../../planner/cmd/"+caravanBin, "../../devicegpu/cmd/"+pluginBin)
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the binaries: %v\n%s", err, out)
			return 1
		}
		// Tests wait for clusters most of the time.
		flag.Parse()
		if err := flag.Set("test.parallel", "4"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// nomadTurn lets one real cluster run at a time: its agents fill a small machine.
var nomadTurn sync.Mutex

// onEach runs a test on the stand-in, and on a real Nomad where there is one.
func onEach(t *testing.T, test func(t *testing.T, p *product)) {
	onStandIn(t, test)
	t.Run(devcluster.BackendNomad, func(t *testing.T) {
		path, ok := nomadproc.Find()
		if !ok {
			t.Skip("needs Nomad: set NOMAD_BIN or put nomad on the PATH")
		}
		nomadTurn.Lock()
		t.Cleanup(nomadTurn.Unlock)
		c, err := nomadproc.Start(t.Context(), path, spec())
		if err != nil {
			t.Fatal(err)
		}
		test(t, newProduct(t, c))
	})
}

// onStandIn runs a test on the stand-in alone.
func onStandIn(t *testing.T, test func(t *testing.T, p *product)) {
	t.Parallel()
	t.Run(devcluster.BackendDevNomad, func(t *testing.T) {
		c, err := devnomad.Start(t.Context(), spec())
		if err != nil {
			t.Fatal(err)
		}
		test(t, newProduct(t, c))
	})
}

// spec is three nodes of eight GPUs, two of them in one rack.
func spec() devcluster.Spec {
	s := devcluster.Spec{Path: []string{bin}}
	for i, rack := range []string{"r1", "r1", "r2"} {
		name := fmt.Sprintf("gpu-%d", i+1)
		s.Nodes = append(s.Nodes, devcluster.Node{
			Name: name, Meta: map[string]string{"caravan_rack": rack},
			Plugins: []devcluster.Plugin{{
				Name: pluginBin, Path: filepath.Join(bin, pluginBin),
				Config: fmt.Sprintf("source = \"mock:dgxh100\"\nmock_seed = %q", name),
			}},
		})
	}
	return s
}

// product is a cluster and a planner process before it.
type product struct {
	t       *testing.T
	cluster devcluster.Cluster
	// nomad is Nomad's own API, past the gateway.
	nomad   *api.Client
	caravan *httpapi.Client
	config  string
	address string
	agent   *exec.Cmd
	log     bytes.Buffer
}

func newProduct(t *testing.T, c devcluster.Cluster) *product {
	t.Helper()
	return newProductAt(t, c, freeAddress(t))
}

// freeAddress is a HOST:PORT where nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := freeport.Take("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", port)
}

// newProductAt starts a planner that listens there.
func newProductAt(t *testing.T, c devcluster.Cluster, listen string) *product {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop cluster: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	p := &product{t: t, cluster: c, nomad: c.Client(), address: "http://" + listen, config: filepath.Join(t.TempDir(), "caravan.hcl")}
	text := fmt.Sprintf("nomad {\n  address = %q\n}\nlisten {\n  address = %q\n}\nadmission {\n  deadline = \"3m\"\n}\n", c.Address(), listen)
	if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.caravan, err = httpapi.NewClient(p.address, c.Token(), nil); err != nil {
		t.Fatal(err)
	}
	p.start()
	t.Cleanup(func() {
		p.stop(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("the planner's log:\n%s", p.log.String())
		}
	})
	return p
}

// start starts the planner and waits until it leads and sees the cluster.
func (p *product) start() {
	p.t.Helper()
	p.agent = exec.Command(filepath.Join(bin, caravanBin), "agent", "-config", p.config)
	p.agent.Stdout, p.agent.Stderr = &p.log, &p.log
	if err := p.agent.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.until("the planner leads", func() (bool, any) {
		s, err := p.caravan.Status(p.t.Context())
		return err == nil && s.Leader && !s.ViewTaken.IsZero() && s.Nomad.OK, errors.Join(err, errors.New(s.Nomad.Error))
	})
}

// stop ends the planner by a signal.
func (p *product) stop(sig syscall.Signal) {
	p.t.Helper()
	if p.agent == nil {
		return
	}
	if err := p.agent.Process.Signal(sig); err != nil {
		p.t.Errorf("signal the planner: %v", err)
	}
	err := p.agent.Wait()
	p.agent = nil
	if sig == syscall.SIGTERM && err != nil {
		p.t.Errorf("the planner ended with %v", err)
	}
}

// until waits for a condition; the second result of ok says what there is.
func (p *product) until(what string, ok func() (bool, any)) {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		done, got := ok()
		if done {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("never: %s; last: %v", what, got)
		}
		time.Sleep(25 * time.Millisecond)
	}
}

// run runs the command line and returns what it printed and its exit code.
func (p *product) run(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(filepath.Join(bin, caravanBin), args...)
	cmd.Env = append(os.Environ(), "CARAVAN_ADDR="+p.address, "NOMAD_TOKEN="+p.cluster.Token(), "NO_COLOR=1")
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("run caravan %v: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs the command line, which must end with the code.
func (p *product) must(code int, args ...string) string {
	p.t.Helper()
	stdout, stderr, got := p.run(args...)
	if got != code {
		p.t.Fatalf("caravan %v ended with %d, want %d\n%s%s", args, got, code, stdout, stderr)
	}
	return stdout
}

// allocs returns the live allocations of a job, as Nomad has them.
func (p *product) allocs(job string) []*api.Allocation {
	p.t.Helper()
	stubs, _, err := p.nomad.Jobs().Allocations(job, true, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	var out []*api.Allocation
	for _, s := range stubs {
		if s.DesiredStatus != api.AllocDesiredStatusRun || s.ClientStatus == api.AllocClientStatusFailed || s.ClientStatus == api.AllocClientStatusLost {
			continue
		}
		a, _, err := p.nomad.Allocations().Info(s.ID, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

// gpusOf are the GPUs that Nomad granted to an allocation.
func gpusOf(a *api.Allocation) []string {
	var out []string
	for _, t := range a.AllocatedResources.Tasks {
		for _, d := range t.Devices {
			out = append(out, d.DeviceIDs...)
		}
	}
	return out
}

// decode reads the JSON that the command line printed.
func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("decode %q: %v", text, err)
	}
	return v
}
