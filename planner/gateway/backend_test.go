package gateway

import (
	"context"
	"errors"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devcluster/gpunodes"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadproc"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// real is a gateway in front of a cluster, with the test as its planner.
type real struct {
	bin     string
	cluster devcluster.Cluster
	store   *record.Store
	address string
	node    *api.NodeListStub

	mu   sync.Mutex
	wait waiterFunc
}

// onEachBackend runs a test on the stand-in, and on a real Nomad where there is
// one. bin is Nomad's binary, "" if there is none.
func onEachBackend(t *testing.T, test func(t *testing.T, r *real)) {
	bin, found := nomadproc.Find()
	spec := devcluster.Spec{Nodes: []devcluster.Node{{Name: "n1"}}, ACL: true}
	t.Run(devcluster.BackendDevNomad, func(t *testing.T) {
		cluster, err := devnomad.Start(t.Context(), spec)
		if err != nil {
			t.Fatalf("start the stand-in: %v", err)
		}
		test(t, startReal(t, bin, cluster))
	})
	t.Run(devcluster.BackendNomad, func(t *testing.T) {
		if !found {
			t.Skip("no nomad binary: set NOMAD_BIN or put one on the PATH")
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cluster, err := nomadproc.Start(ctx, bin, spec)
		if err != nil {
			t.Fatalf("start Nomad: %v", err)
		}
		test(t, startReal(t, bin, cluster))
	})
}

func startReal(t *testing.T, bin string, cluster devcluster.Cluster) *real {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	gpunodes.Ready(ctx, t, cluster)
	nodes, _, err := cluster.Client().Nodes().List(nil)
	if err != nil || len(nodes) != 1 {
		t.Fatalf("list nodes: %v, %v", nodes, err)
	}
	r := &real{bin: bin, cluster: cluster, store: record.NewStore(cluster.Client(), "default"), node: nodes[0]}
	r.decide(model.ActionWait, "needs 1 node; none is free", nil)
	address, err := url.Parse(cluster.Address())
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(Config{
		Nomad: address, Client: cluster.Client(), Records: r.store, Wait: patience,
		Managed: func(job *api.Job) bool { return job.Meta["managed"] == "yes" },
		Cluster: func(context.Context) (*rewrite.Cluster, error) {
			return rewrite.NewCluster([]rewrite.Node{{ID: r.node.ID}}, nil), nil
		},
		Waiter: waiterFunc(func(ctx context.Context, ns, job, hash string) (httpapi.Explain, error) {
			r.mu.Lock()
			wait := r.wait
			r.mu.Unlock()
			return wait(ctx, ns, job, hash)
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	r.address = server.URL
	return r
}

// decide sets what the planner will say; before runs first.
func (r *real) decide(action model.Action, reason string, before func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wait = func(context.Context, string, string, string) (httpapi.Explain, error) {
		if before != nil {
			before()
		}
		return httpapi.Explain{Job: httpapi.Job{Reason: reason}, Action: action}, nil
	}
}

func (r *real) command(ctx context.Context, token string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.bin, args...)
	cmd.Env = append(os.Environ(), "NOMAD_ADDR="+r.address, "NOMAD_TOKEN="+token, "NOMAD_CLI_NO_COLOR=1")
	cmd.WaitDelay = time.Second
	return cmd
}

// cli runs Nomad's CLI through the gateway.
func (r *real) cli(t *testing.T, wantExit int, args ...string) string {
	t.Helper()
	return r.cliAs(t, r.cluster.Token(), wantExit, args...)
}

func (r *real) cliAs(t *testing.T, token string, wantExit int, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := r.command(ctx, token, args...).CombinedOutput()
	var exit *exec.ExitError
	code := 0
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatalf("nomad %v: %v", args, err)
	}
	if code != wantExit {
		t.Fatalf("nomad %v: exit %d, want %d:\n%s", args, code, wantExit, out)
	}
	return string(out)
}

func (r *real) file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job.hcl")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (r *real) job(t *testing.T) *api.Job {
	t.Helper()
	job, _, err := r.cluster.Client().Jobs().Info("train", nil)
	if err != nil {
		t.Fatalf("read job: %v", err)
	}
	return job
}

// admit pins the job to the node, as the planner does.
func (r *real) admit(t *testing.T) {
	t.Helper()
	rec, err := r.store.Get(t.Context(), "default", "train")
	if err != nil {
		t.Errorf("read record: %v", err)
		return
	}
	rec.Phase, rec.PlacedHash = record.PhaseRunning, rec.SpecHash
	rec.Members = []model.Member{{Group: "train", Node: r.node.ID}}
	if err := r.store.Put(t.Context(), rec); err != nil {
		t.Errorf("write record: %v", err)
		return
	}
	pinned, err := rewrite.Pin(rec.Original, rec.Members, rewrite.NewCluster([]rewrite.Node{{ID: r.node.ID}}, nil))
	if err != nil {
		t.Errorf("pin: %v", err)
		return
	}
	if _, _, err := r.cluster.Client().Jobs().Register(pinned, nil); err != nil {
		t.Errorf("register pin: %v", err)
	}
}

// running waits for the job's running allocation.
func (r *real) running(t *testing.T, version uint64) *api.AllocationListStub {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	q := (&api.QueryOptions{}).WithContext(ctx)
	for {
		allocs, meta, err := r.cluster.Client().Jobs().Allocations("train", false, q)
		if err != nil {
			t.Fatalf("wait for version %d to run: %v", version, err)
		}
		for _, a := range allocs {
			if a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun && a.JobVersion >= version {
				return a
			}
		}
		q.WaitIndex = meta.LastIndex
	}
}
