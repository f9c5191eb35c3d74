package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/planner/core/model"
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
