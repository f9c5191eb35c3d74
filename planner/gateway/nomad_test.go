package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadproc"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// patience bounds the wait for another process; nothing waits this long when
// all is well.
const patience = 60 * time.Second

// jobFile is a job that the gateway of these tests manages, by its meta: the
// node needs no devices then.
const jobFile = `
job "train" {
  type = "batch"
  meta { managed = "yes" }
  group "train" {
    task "main" {
      driver = "raw_exec"
      env { ROUND = "1" }
      config {
        command = "/bin/sh"
        args    = ["-c", "mkfifo $NOMAD_ALLOC_DIR/in; echo ready; cat $NOMAD_ALLOC_DIR/in; echo done"]
      }
      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
`

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
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := cluster.WaitReady(ctx); err != nil {
		t.Fatalf("wait for the cluster: %v", err)
	}
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

func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("output lacks %q:\n%s", want, text)
		}
	}
}

// TestNomadCLI is the life of a job as its user sees it with Nomad's own CLI.
func TestNomadCLI(t *testing.T) {
	onEachBackend(t, func(t *testing.T, r *real) {
		if r.bin == "" {
			t.Skip("no nomad binary: set NOMAD_BIN or put one on the PATH")
		}
		r.life(t)
	})
}

func (r *real) life(t *testing.T) {
	t.Helper()
	file := r.file(t, jobFile)
	changed := r.file(t, strings.Replace(jobFile, `ROUND = "1"`, `ROUND = "2"`, 1))

	// A plan of a new job knows nothing of the gate.
	out := r.cli(t, 1, "job", "plan", file)
	contains(t, out, `+ Job: "train"`, "1 create", "All tasks successfully allocated", "Caravan: the job would be queued")

	// Without the right to submit nothing happens at all.
	contains(t, r.cliAs(t, "", 1, "job", "run", file), "403")
	contains(t, r.cli(t, 1, "job", "run", r.file(t, strings.Replace(jobFile, `type = "batch"`, "type = \"batch\"\n  priority = 4000", 1))), "priority")
	if _, err := r.store.Get(t.Context(), "default", "train"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("record after refusals: %v, want none", err)
	}

	// Queued: the CLI prints the reason, then the gate, and exits 2.
	out = r.cli(t, 2, "job", "run", file)
	contains(t, out, "Caravan: queued: needs 1 node; none is free", "${meta.caravan_gate}")
	gated := r.job(t)
	if !rewrite.IsGated(gated) {
		t.Error("the job is not gated")
	}
	contains(t, r.cli(t, 0, "job", "status", "train"), "train", "pending")

	// The same again changes nothing, and a plan says so.
	contains(t, r.cli(t, 2, "job", "run", file), "Caravan: unchanged, nothing was registered")
	out = r.cli(t, 0, "job", "plan", file)
	contains(t, out, "unchanged", "All tasks successfully allocated")
	if strings.Contains(out, "+") || strings.Contains(out, "caravan_gate") {
		t.Errorf("a plan without changes shows some:\n%s", out)
	}
	if got := *r.job(t).JobModifyIndex; got != *gated.JobModifyIndex {
		t.Errorf("index = %d, was %d", got, *gated.JobModifyIndex)
	}

	// Running.
	r.admit(t)
	first := r.running(t, 1)
	r.decide(model.ActionAdmit, "1 node", nil)
	contains(t, r.cli(t, 0, "job", "run", file), "Caravan: unchanged, nothing was registered; running", first.ID[:8])
	if r.cluster.Backend() == devcluster.BackendNomad {
		// The stand-in has neither exec nor an agent's log.
		r.streams(t, first.ID)
	}

	// A change that leaves the placement alone stays on the node; the index that
	// the user knew from before the pin is still good.
	r.restart(t, file, changed)
}

// restart gets the gang running again and submits a change of it.
func (r *real) restart(t *testing.T, file, changed string) {
	t.Helper()
	r.cli(t, 0, "job", "stop", "-purge", "-detach", "train")
	rec, err := r.store.Get(t.Context(), "default", "train")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.store.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	// Admitted within the wait: the CLI follows the pinned registration.
	r.decide(model.ActionAdmit, "1 node", func() { r.admit(t) })
	out := r.cli(t, 0, "job", "run", file)
	contains(t, out, "Caravan: admitted: 1 node", "created: node", `finished with status "complete"`)
	before := r.running(t, 1)

	out = r.cli(t, 1, "job", "plan", changed)
	contains(t, out, `"1" => "2"`, "forces create/destroy update", "would stay on its nodes")
	if strings.Contains(out, "node.unique.id") || strings.Contains(out, "caravan_gate") {
		t.Errorf("a plan shows gate or pins:\n%s", out)
	}
	rec, err = r.store.Get(t.Context(), "default", "train")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, r.cli(t, 1, "job", "run", "-check-index", "0", changed), "Enforcing job modify index 0", "Job not updated")
	contains(t, r.cli(t, 0, "job", "run", "-check-index", strconv.FormatUint(*r.job(t).JobModifyIndex-1, 10), changed), "stays on its nodes")
	after := r.running(t, before.JobVersion+1)
	if after.ID == before.ID || after.NodeID != before.NodeID {
		t.Errorf("allocation %s on %s, want a new one on %s", after.ID, after.NodeID, before.NodeID)
	}
	now, err := r.store.Get(t.Context(), "default", "train")
	if err != nil || now.PlacedHash != now.SpecHash || now.SpecHash == rec.SpecHash || now.Phase != record.PhaseRunning {
		t.Errorf("record = %+v, %v, want that of the change, running", now, err)
	}
}

// streams uses what is upgraded or never ends: logs that are followed, exec,
// the event stream, the agent's log.
func (r *real) streams(t *testing.T, alloc string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	follow := r.command(ctx, r.cluster.Token(), "alloc", "logs", "-f", alloc, "main")
	logs := started(t, follow)
	expect(t, logs, "ready")

	events, err := r.through(t).EventStream().Stream(ctx, map[api.Topic][]string{api.TopicAllocation: {"*"}}, 0, nil)
	if err != nil {
		t.Fatalf("open event stream: %v", err)
	}
	contains(t, r.cli(t, 0, "alloc", "exec", "-task", "main", alloc, "/bin/sh", "-c", "echo from exec > $NOMAD_ALLOC_DIR/in; echo $ROUND"), "1")
	// The task writes on only now: what follows was not in any buffer.
	expect(t, logs, "from exec")
	expect(t, logs, "done")
	for {
		e, ok := <-events
		if !ok || e.Err != nil {
			t.Fatalf("event stream ended: %+v", e)
		}
		if len(e.Events) > 0 {
			break
		}
	}
	monitor := r.command(ctx, r.cluster.Token(), "monitor", "-log-level=TRACE")
	lines := started(t, monitor)
	// Every request makes a line, from when the agent has taken the monitor on.
	client, stop := r.through(t), make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, _, err := client.Nodes().List(nil); err != nil {
					t.Errorf("list nodes: %v", err)
					return
				}
			}
		}
	})
	expect(t, lines, "/v1/nodes")
	close(stop)
	asking.Wait()
	contains(t, r.cli(t, 0, "job", "status", "train"), alloc[:8])
	if _, err := r.through(t).AllocFS().Cat(&api.Allocation{ID: alloc, NodeID: r.node.ID}, "alloc/logs/main.stdout.0", nil); err != nil {
		t.Errorf("read a file of the allocation: %v", err)
	}
}

// through is an API client that goes through the gateway.
func (r *real) through(t *testing.T) *api.Client {
	t.Helper()
	client, err := api.NewClient(&api.Config{Address: r.address, SecretID: r.cluster.Token()})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// started starts a command that does not end and returns its output.
func started(t *testing.T, cmd *exec.Cmd) *bufio.Reader {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var problems bytes.Buffer
	cmd.Stderr = &problems
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// It was made to be killed, so its status says nothing.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() && problems.Len() > 0 {
			t.Logf("%v: %s", cmd.Args, problems.String())
		}
	})
	return bufio.NewReader(out)
}

// expect reads lines until one has the text.
func expect(t *testing.T, lines *bufio.Reader, want string) {
	t.Helper()
	var seen strings.Builder
	for {
		line, err := lines.ReadString('\n')
		seen.WriteString(line)
		if strings.Contains(line, want) {
			return
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the output ended")
			}
			t.Fatalf("wait for %q: %v after:\n%s", want, err, seen.String())
		}
	}
}
