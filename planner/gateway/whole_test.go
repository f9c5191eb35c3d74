package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devcluster/gpunodes"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadproc"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/daemon"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// patience bounds the wait for other processes; nothing waits this long when
// all is well.
const patience = 90 * time.Second

// stack is a cluster of three nodes with eight simulated GPUs each, and the
// whole planner in front of it.
type stack struct {
	*testing.T
	bin     string
	cluster devcluster.Cluster
	address string
	// user goes through the gateway, nomad does not.
	user, nomad *api.Client
}

func TestMain(m *testing.M) { os.Exit(gpunodes.Main(m)) }

// nomadTurn lets one real cluster run at a time: its agents fill a small machine.
var nomadTurn sync.Mutex

// onStacks runs a test on the stand-in, and on a real Nomad where there is one.
func onStacks(t *testing.T, test func(s *stack), change ...func(*devcluster.Spec)) {
	t.Parallel()
	plugin := gpunodes.Plugin(t)
	spec := devcluster.Spec{}
	for i := range 3 {
		spec.Nodes = append(spec.Nodes, gpunodes.Node(fmt.Sprintf("n%d", i), "r1", plugin, ""))
	}
	for _, c := range change {
		c(&spec)
	}
	bin, found := nomadproc.Find()
	t.Run(devcluster.BackendDevNomad, func(t *testing.T) {
		cluster, err := devnomad.Start(t.Context(), spec)
		if err != nil {
			t.Fatalf("start the stand-in: %v", err)
		}
		test(startStack(t, bin, cluster))
	})
	t.Run(devcluster.BackendNomad, func(t *testing.T) {
		if !found {
			t.Skip("no nomad binary: set NOMAD_BIN or put one on the PATH")
		}
		nomadTurn.Lock()
		t.Cleanup(nomadTurn.Unlock)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cluster, err := nomadproc.Start(ctx, bin, spec)
		if err != nil {
			t.Fatalf("start Nomad: %v", err)
		}
		test(startStack(t, bin, cluster))
	})
}

func startStack(t *testing.T, bin string, cluster devcluster.Cluster) *stack {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	gpunodes.Ready(ctx, t, cluster)
	cfg := config.Default()
	cfg.Nomad.Address, cfg.Nomad.Token = cluster.Address(), cluster.Token()
	cfg.Listen.Address = "127.0.0.1:0"
	cfg.Gateway.Wait = time.Minute // it ends with the decision
	d, err := daemon.New(cfg, nil)
	if err == nil {
		err = d.Listen()
	}
	if err != nil {
		t.Fatalf("start planner: %v", err)
	}
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the planner ended: %v", err)
		}
	})
	user, err := api.NewClient(&api.Config{Address: d.Address(), SecretID: cluster.Token()})
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{T: t, bin: bin, cluster: cluster, address: d.Address(), user: user, nomad: cluster.Client()}
	own, err := httpapi.NewClient(d.Address(), cluster.Token(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.until("the planner leads and has seen the cluster", func() error {
		status, err := own.Status(t.Context())
		if err == nil && (!status.Leader || status.ViewTaken.IsZero()) {
			err = fmt.Errorf("status %+v", status)
		}
		return err
	})
	return s
}

// until waits for a condition; its error says what is missing.
func (s *stack) until(what string, condition func() error) {
	s.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("wait until %s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// members are a job's running allocations, by name; exactly n of them, on nodes
// of their own if apart, and none that is to run besides.
func (s *stack) members(job string, n int) []*api.AllocationListStub {
	s.Helper()
	var out []*api.AllocationListStub
	s.until(fmt.Sprintf("%d members of %s run", n, job), func() error {
		all, _, err := s.nomad.Jobs().Allocations(job, false, nil)
		if err != nil {
			return err
		}
		out = nil
		var seen []string
		for _, a := range all {
			seen = append(seen, fmt.Sprintf("%s %s/%s v%d", a.Name, a.DesiredStatus, a.ClientStatus, a.JobVersion))
			if a.DesiredStatus == api.AllocDesiredStatusRun && (a.ClientStatus == api.AllocClientStatusPending || a.ClientStatus == api.AllocClientStatusRunning) {
				out = append(out, a)
			}
		}
		for _, a := range out {
			if a.ClientStatus != api.AllocClientStatusRunning {
				return fmt.Errorf("%v", seen)
			}
		}
		if len(out) != n {
			return fmt.Errorf("%v", seen)
		}
		return nil
	})
	slices.SortFunc(out, func(a, b *api.AllocationListStub) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func ids(allocs []*api.AllocationListStub) []string {
	var out []string
	for _, a := range allocs {
		out = append(out, a.ID)
	}
	return out
}

// replaced checks that no allocation of before is among those of after.
func (s *stack) replaced(before, after []*api.AllocationListStub) {
	s.Helper()
	for _, id := range ids(after) {
		if slices.Contains(ids(before), id) {
			s.Errorf("allocation %s still runs; a gang is replaced as a whole", id)
		}
	}
}

// either is 0 or 2: admitted within the time that an answer waits, or queued
// still.
const either = -1

// cli runs Nomad's CLI through the gateway.
func (s *stack) cli(wantExit int, args ...string) string {
	s.Helper()
	if s.bin == "" {
		s.Skip("no nomad binary: set NOMAD_BIN or put one on the PATH")
	}
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.bin, args...)
	cmd.Env = append(os.Environ(), "NOMAD_ADDR="+s.address, "NOMAD_TOKEN="+s.cluster.Token(), "NOMAD_CLI_NO_COLOR=1")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	code := cmd.ProcessState.ExitCode()
	if code != wantExit && (wantExit != either || code != 0 && code != 2) {
		s.Fatalf("nomad %v: exit %d (%v), want %d:\n%s", args, code, err, wantExit, out)
	}
	return string(out)
}

func (s *stack) has(text string, wants ...string) {
	s.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			s.Errorf("output lacks %q:\n%s", want, text)
		}
	}
}

func (s *stack) lacks(text string, unwanted ...string) {
	s.Helper()
	for _, u := range unwanted {
		if strings.Contains(text, u) {
			s.Errorf("output has %q:\n%s", u, text)
		}
	}
}

func (s *stack) file(content string) string {
	s.Helper()
	path := filepath.Join(s.TempDir(), "job.nomad.hcl")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// get reads a path through the gateway.
func (s *stack) get(path string) (int, string) {
	s.Helper()
	resp, err := http.Get(s.address + path)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
