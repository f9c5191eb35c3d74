package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/driver/config"
	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
	"github.com/caravan-sched/caravan/internal/nomadplugin/host"
)

// patience is how long the tests wait for what must happen.
const patience = time.Minute

// binary builds the plugin once, with the race detector where the tests have it.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "caravan-driver-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "nomad-driver-caravan")
	args := []string{"build", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	if out, err := osexec.Command("go", append(args, "./cmd/nomad-driver-caravan")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build plugin: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// rig is a plugin process as a Nomad client has it, with a planner and an agent
// that do what the test says.
type rig struct {
	t       *testing.T
	planner *fakePlanner
	// state is the plugin's state directory, allocs where tasks' directories are.
	state, allocs, config string
	plugin                *host.Plugin
	*driver.Client
}

// newRig starts the plugin; more is added to its configuration.
func newRig(t *testing.T, more ...string) *rig {
	t.Helper()
	r := &rig{t: t, planner: newPlanner(t), state: t.TempDir(), allocs: t.TempDir()}
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `"10.0.0.1:4647"`) }))
	t.Cleanup(agent.Close)
	r.config = fmt.Sprintf("state_dir = %q\nplanner {\n addresses = [%q]\n}\nnomad {\n address = %q\n}\n", r.state, r.planner.URL, agent.URL) + strings.Join(more, "\n")
	r.launch()
	t.Cleanup(func() { r.plugin.Close() })
	return r
}

// launch starts the plugin's process, also another time.
func (r *rig) launch() {
	r.t.Helper()
	path, err := binary()
	if err != nil {
		r.t.Fatal(err)
	}
	r.plugin, err = host.Launch(r.t.Context(), host.Options{Path: path, Config: r.config})
	if err != nil {
		r.t.Fatal(err)
	}
	if r.Client, err = r.plugin.Driver(); err != nil {
		r.t.Fatal(err)
	}
}

// task makes a task's directories and outputs as a client does.
func (r *rig) task(name, hcl string) driver.TaskConfig {
	r.t.Helper()
	raw, err := hclspec.Encode(config.TaskSchema(), []byte(hcl), "task")
	if err != nil {
		r.t.Fatal(err)
	}
	t := driver.TaskConfig{
		ID: "alloc-" + name + "/main/1", Name: "main", Namespace: "default", JobID: "train", JobName: "train", Group: "workers",
		AllocID: "alloc-" + name, NodeID: "node-1", NodeName: "gpu-1", AllocDir: filepath.Join(r.allocs, name), Raw: raw,
		Env: map[string]string{"PATH": os.Getenv("PATH"), "GREETING": "hello"},
	}
	for _, dir := range []string{t.LocalDir(), t.SecretsDir(), t.SharedDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(t.SecretsDir(), "nomad_caravan.jwt"), []byte(name), 0o600); err != nil {
		r.t.Fatal(err)
	}
	t.StdoutPath, t.StderrPath = filepath.Join(t.SharedDir(), "out"), filepath.Join(t.SharedDir(), "err")
	r.t.Cleanup(func() { r.sweep(t.ID) })
	return t
}

// sweep leaves nothing of a task running after a test.
func (r *rig) sweep(id string) {
	if r.Client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = r.Destroy(ctx, id, true) // most are gone already
}

// start starts a shell script as a task that belongs to no gang.
func (r *rig) start(name, script string, more ...string) (driver.TaskConfig, driver.Handle) {
	r.t.Helper()
	t := r.task(name, fmt.Sprintf("command = \"/bin/sh\"\nargs = [\"-c\", %q]\n%s", script, strings.Join(more, "\n")))
	h, _, err := r.Start(r.t.Context(), t)
	if err != nil {
		r.t.Fatal(err)
	}
	return t, h
}

// output waits until the task has written what is wanted.
func (r *rig) output(t driver.TaskConfig, want string) string {
	r.t.Helper()
	var text string
	r.eventually("output of "+t.ID+" with "+want, func() (bool, any) {
		data, err := os.ReadFile(t.StdoutPath)
		text = string(data)
		return err == nil && strings.Contains(text, want), text
	})
	return text
}

func (r *rig) eventually(what string, f func() (bool, any)) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		ok, got := f()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("no %s in time: %v", what, got)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// exit waits for a task's end.
func (r *rig) exit(id string) driver.Exit {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	e, err := r.Wait(ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// fakePlanner holds members until the test lets them go. Who they are it reads
// in their identity, which here is just the allocation's name.
type fakePlanner struct {
	*httptest.Server
	mu      sync.Mutex
	joins   map[string]gangapi.JoinRequest
	reports map[string]gangapi.ReportRequest
	answer  func(alloc string, r gangapi.JoinRequest) gangapi.JoinAnswer
	order   func(alloc string, r gangapi.ReportRequest) gangapi.ReportAnswer
}

func newPlanner(t *testing.T) *fakePlanner {
	p := &fakePlanner{
		joins: map[string]gangapi.JoinRequest{}, reports: map[string]gangapi.ReportRequest{},
		answer: func(string, gangapi.JoinRequest) gangapi.JoinAnswer {
			return gangapi.JoinAnswer{State: gangapi.JoinAlone}
		},
		order: func(string, gangapi.ReportRequest) gangapi.ReportAnswer {
			return gangapi.ReportAnswer{Attached: true}
		},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+gangapi.JoinPath, func(w http.ResponseWriter, r *http.Request) {
		serve(p, w, r, p.joins, func(alloc string, in gangapi.JoinRequest) gangapi.JoinAnswer { return p.answer(alloc, in) },
			func(in gangapi.JoinRequest, a gangapi.JoinAnswer) bool {
				return in.WaitMS == 0 || a.State != gangapi.JoinWaiting
			})
	})
	mux.HandleFunc("POST "+gangapi.ReportPath, func(w http.ResponseWriter, r *http.Request) {
		serve(p, w, r, p.reports, func(alloc string, in gangapi.ReportRequest) gangapi.ReportAnswer { return p.order(alloc, in) },
			func(in gangapi.ReportRequest, a gangapi.ReportAnswer) bool {
				return in.WaitMS == 0 || a.Order != nil || a.Membership != nil || a.Gone
			})
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// serve makes a long poll: it is answered when there is news, after a while, or
// at once where the member does not want to wait.
func serve[Q, A any](p *fakePlanner, w http.ResponseWriter, r *http.Request, seen map[string]Q, answer func(string, Q) A, news func(Q, A) bool) {
	alloc := "alloc-" + r.Header.Get(gangapi.IdentityHeader)
	var in Q
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for range 100 {
		p.mu.Lock()
		seen[alloc] = in
		out := answer(alloc, in)
		p.mu.Unlock()
		if news(in, out) {
			_ = json.NewEncoder(w).Encode(out)
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	p.mu.Lock()
	out := answer(alloc, in)
	p.mu.Unlock()
	_ = json.NewEncoder(w).Encode(out)
}

// set changes what the planner says.
func (p *fakePlanner) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// hold makes every member wait.
func (p *fakePlanner) hold() {
	p.set(func() {
		p.answer = func(string, gangapi.JoinRequest) gangapi.JoinAnswer {
			return gangapi.JoinAnswer{State: gangapi.JoinWaiting, Joined: 1, Size: 2, Reason: "waiting for gang: 1 of 2 joined, gpu-2 missing"}
		}
	})
}

// release lets the members that were seen go together.
func (p *fakePlanner) release(epoch string) {
	p.set(func() {
		m := rendezvous.Membership{Epoch: epoch, Generation: 1, Namespace: "default", Job: "train", MasterAddr: "127.0.0.1", MasterPort: 29500}
		for alloc, j := range p.joins {
			m.Members = append(m.Members, rendezvous.Member{
				Group: "workers", Index: len(m.Members), Alloc: alloc, Node: "node-1", NodeName: "gpu-1", Address: j.Address, GPUs: j.GPUs, Processes: max(1, len(j.GPUs)),
			})
		}
		m.Min, m.Max = len(m.Members), len(m.Members)
		p.answer = func(string, gangapi.JoinRequest) gangapi.JoinAnswer {
			return gangapi.JoinAnswer{State: gangapi.JoinStart, Membership: &m, StartInMS: 50}
		}
	})
}

// supervisors lists the tasks whose state is there.
func (r *rig) supervisors() []string {
	entries, err := os.ReadDir(r.state)
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// fingerprint is the first one that the plugin sends.
func (r *rig) fingerprint() driver.Fingerprint {
	r.t.Helper()
	var first driver.Fingerprint
	enough := errors.New("enough")
	if err := r.Fingerprint(r.t.Context(), func(f driver.Fingerprint) error { first = f; return enough }); !errors.Is(err, enough) {
		r.t.Fatal(err)
	}
	return first
}
