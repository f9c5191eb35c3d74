package supervisor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/progress"
)

func TestValidateSaysAllFaults(t *testing.T) {
	s := Start{
		Role:       RoleRank,
		Barrier:    Barrier{Planners: []string{"planner:4656"}, IdentityFile: "token", Port: 70000, Address: "here"},
		Files:      Files{Dir: "files"},
		Fence:      Fence{Nomad: "nomad", After: -1},
		Stop:       Stop{Signal: "SIGNO"},
		Preflight:  &Preflight{},
		Checkpoint: Checkpoint{Paths: []string{"ckpt"}},
	}
	var faults *StartError
	if err := s.Validate(); !errors.As(err, &faults) {
		t.Fatalf("validate: %v", err)
	}
	var got []string
	for _, f := range faults.Faults {
		got = append(got, f.Key)
	}
	want := []string{
		"task.namespace", "task.job", "task.group", "task.alloc", "task.task", "task.node",
		"stop.signal", "fence.after", "checkpoint.paths", "files.dir", "fence.nomad", "preflight.timeout",
		"barrier.planners", "barrier.identity_file", "barrier.join_timeout", "barrier.address", "barrier.port",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestParseSignal(t *testing.T) {
	tests := map[string]syscall.Signal{"SIGUSR1": syscall.SIGUSR1, "usr1": syscall.SIGUSR1, "Term": syscall.SIGTERM, "SIG": 0, "": 0, "9": 0}
	for name, want := range tests {
		if got, err := parseSignal(name); got != want || (err == nil) != (want != 0) {
			t.Errorf("parseSignal(%q) = %v, %v; want %v", name, got, err, want)
		}
	}
}

func TestExamine(t *testing.T) {
	ok := func(context.Context) (exec.Exit, error) { return exec.Exit{}, nil }
	inventory := func(t *testing.T) nvml.Inventory {
		inv, err := lookAtGPUs(Preflight{GPUSource: "mock:dgxh100", GPUSeed: "n1"})(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return inv
	}
	tests := map[string]struct {
		command func(context.Context) (exec.Exit, error)
		look    func(inv *nvml.Inventory, gpus *[]string) error
		want    string
	}{
		"fit": {command: ok},
		"a lost GPU": {command: ok, look: func(inv *nvml.Inventory, _ *[]string) error {
			inv.GPUs[1].Health.Lost = "fallen off the bus"
			return nil
		}, want: "gpu: fallen off the bus"},
		"another's lost GPU": {command: ok, look: func(inv *nvml.Inventory, _ *[]string) error {
			inv.GPUs[7].Health.Lost = "fallen off the bus"
			return nil
		}},
		"a GPU not found":          {command: ok, look: func(_ *nvml.Inventory, g *[]string) error { *g = append(*g, "GPU-x"); return nil }, want: "gpu: not found on this node: GPU-x"},
		"no driver":                {command: ok, look: func(*nvml.Inventory, *[]string) error { return errors.New("no driver") }, want: "gpu: no driver"},
		"the command fails":        {command: func(context.Context) (exec.Exit, error) { return exec.Exit{Code: 3}, nil }, want: "nccl-test: it exited with code 3"},
		"the command dies":         {command: func(context.Context) (exec.Exit, error) { return exec.Exit{Signal: 9}, nil }, want: "nccl-test: it was ended by signal 9"},
		"the driver tells a story": {command: ok, look: func(*nvml.Inventory, *[]string) error { return errors.New(strings.Repeat("x", 1<<20)) }, want: "gpu: " + strings.Repeat("x", 1000) + "…"},
		"the command is not there": {command: func(context.Context) (exec.Exit, error) { return exec.Exit{}, errors.New("no such file") }, want: "nccl-test: no such file"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inv := inventory(t)
			gpus := []string{inv.Matrix.GPUs[0].UUID, inv.Matrix.GPUs[1].UUID}
			var lookErr error
			if test.look != nil {
				lookErr = test.look(&inv, &gpus)
			}
			exam := &preflightExam{
				spec: Preflight{GPUSource: "mock:dgxh100", Command: "nccl-test", Timeout: time.Minute}, gpus: gpus, command: test.command,
				look: func(context.Context) (nvml.Inventory, error) { return inv, lookErr },
			}
			got := ""
			if fault := exam.Examine(t.Context()); fault != nil {
				got = fault.Check + ": " + fault.Detail
			}
			if got != test.want {
				t.Errorf("fault %q, want %q", got, test.want)
			}
		})
	}
}

func TestExamineTakesItsTimeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		exam := &preflightExam{
			spec: Preflight{GPUSource: "nvml", Command: "nccl-test", Timeout: time.Minute}, gpus: []string{"GPU-1"},
			look: func(context.Context) (nvml.Inventory, error) { <-hangs; return nvml.Inventory{}, nil },
			command: func(ctx context.Context) (exec.Exit, error) {
				<-ctx.Done()
				return exec.Exit{}, ctx.Err()
			},
		}
		if fault := exam.Examine(t.Context()); fault == nil || !strings.Contains(fault.Detail, "1m0s") {
			t.Errorf("fault %+v, want one about the time", fault)
		}
		close(hangs)
		exam.gpus = nil
		if fault := exam.Examine(t.Context()); fault == nil || fault.Check != "nccl-test" {
			t.Errorf("fault %+v, want one of the command", fault)
		}
	})
}

// mute is a source of no progress.
type mute struct{ closed bool }

func (m *mute) Socket() string                                 { return "/run/s" }
func (m *mute) URL() string                                    { return "http://127.0.0.1:1/x" }
func (m *mute) Changed() <-chan struct{}                       { return nil }
func (m *mute) Progress() *gangapi.Progress                    { return nil }
func (m *mute) Mark(context.Context) progress.Mark             { return progress.Mark{} }
func (m *mute) Newer(progress.Mark) (gangapi.Checkpoint, bool) { return gangapi.Checkpoint{}, true }
func (m *mute) Close()                                         { m.closed = true }

func TestScene(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "caravan")
	src := &mute{}
	s := newScene(Files{Dir: dir, SeenAs: "/local/caravan"}, func() (source, error) { return src, nil })
	changed := s.Changed()
	if _, ok := s.Answer(); ok {
		t.Error("an answer before anything was asked")
	}
	m := memberOf(gangapi.JoinRequest{Address: "10.0.0.1", Port: 29500}, "e1")
	env, err := s.Prepare(t.Context(), plan{alloc: "a1", membership: m})
	if err != nil {
		t.Fatal(err)
	}
	<-changed
	for key, want := range map[string]string{
		"RANK": "0", "CARAVAN_EPOCH": "e1", "CARAVAN_MEMBERSHIP": "/local/caravan/membership.json",
		"CARAVAN_HOSTFILE": "/local/caravan/hostfile", "CARAVAN_SOCKET": "/run/s", "CARAVAN_HTTP": "http://127.0.0.1:1/x",
	} {
		if env[key] != want {
			t.Errorf("%s = %q, want %q", key, env[key], want)
		}
	}
	hosts, err := os.ReadFile(filepath.Join(dir, "hostfile"))
	if err != nil || string(hosts) != "10.0.0.1 slots=1\n" {
		t.Errorf("hostfile %q, %v", hosts, err)
	}
	// What the user's code puts in the way is replaced, not written through.
	outside := filepath.Join(t.TempDir(), "outside")
	if err := errors.Join(os.Remove(filepath.Join(dir, "hostfile")), os.Symlink(outside, filepath.Join(dir, "hostfile"))); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(plan{alloc: "a1", membership: m}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(outside); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("written through a link: %v", err)
	}
	s.Ask(t.Context())
	if _, ok := s.Answer(); !ok {
		t.Error("no answer")
	}
	env, err = s.Prepare(t.Context(), plan{alloc: "a1"})
	if err != nil || len(env) != 2 {
		t.Errorf("without a gang: %v, %v; want the socket and the hook", env, err)
	}
	if _, err := s.Prepare(t.Context(), plan{alloc: "a9", membership: m}); err == nil {
		t.Error("a membership of others: no error")
	}
	s.Close()
	if !src.closed {
		t.Error("the source is left open")
	}
}

func TestWithEnv(t *testing.T) {
	got := withEnv([]string{"A=1", "RANK=9", "B=2=3"}, map[string]string{"RANK": "0", "C": "4"})
	if diff := cmp.Diff([]string{"A=1", "B=2=3", "C=4", "RANK=0"}, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestEnvironmentKeepsNoSecrets(t *testing.T) {
	got := environment([]string{"PATH=/bin", "NOMAD_TOKEN=secret", "VAULT_TOKEN=secret", "DOCKER_HOST=unix:///d", "HOME=/root", "NOMAD_PLUGIN_MAGIC_COOKIE=x"})
	if diff := cmp.Diff([]string{"PATH=/bin", "DOCKER_HOST=unix:///d", "HOME=/root"}, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	f := &frames{w: &b}
	long := bytes.Repeat([]byte("y"), 100<<10)
	if n, err := (stream{f, frameStdout}).Write(long); n != len(long) || err != nil {
		t.Fatalf("write: %d, %v", n, err)
	}
	if err := f.writeJSON(frameExit, exec.Exit{Code: 3}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	exit, err := receive(bufio.NewReader(&b), exec.ExecSpec{Stdout: &out})
	if err != nil || exit.Code != 3 || !bytes.Equal(out.Bytes(), long) {
		t.Errorf("exit %+v, %v, %d bytes", exit, err, out.Len())
	}
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte("o\x00\x00\x00\x01ax\x00\x00\x00\x0a{\"code\":3}"))
	f.Add([]byte("f\x00\x00\x00\x0f{\"message\":\"m\"}"))
	f.Add([]byte("o\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		_, err := receive(bufio.NewReader(bytes.NewReader(b)), exec.ExecSpec{Stdout: &out})
		if err == nil && !bytes.ContainsRune(b, frameExit) {
			t.Fatal("an exit out of nothing")
		}
		if out.Len() > len(b) {
			t.Fatal("more output than there was")
		}
	})
}

// TestControlRefuses asks the socket for what it must not take.
func TestControlRefuses(t *testing.T) {
	play(t, unchanged, func(r *rig) {
		r.after(time.Second)
		h := (&server{runner: r.runner, board: r.board, destroyed: func() { t.Error("destroyed") }}).handler()
		tests := []struct {
			method, path, body string
			want               int
		}{
			{"POST", pathStop, `{"timeout_ms":-1}`, 409},
			{"POST", pathStop, `{"timeout_ms":9223372036854775807}`, 409},
			{"POST", pathStop, `{"timeout_ms":1,"signal":"NO"}`, 409},
			{"POST", pathStop, `{`, 409},
			{"POST", pathSignal, `{"signal":""}`, 409},
			{"GET", pathEvents + "?since=x", ``, 409},
			{"POST", pathDestroy, `{}`, 409},
			{"GET", pathStop, ``, 405},
			{"GET", "/v2/status", ``, 404},
			{"GET", pathStatus, ``, 200},
			{"GET", pathEvents + "?since=0&wait_ms=99999999999999999999", ``, 200},
			{"GET", pathWait, ``, 200},
		}
		for _, test := range tests {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequestWithContext(r.t.Context(), test.method, test.path, strings.NewReader(test.body)))
			if rec.Code != test.want {
				t.Errorf("%s %s %s: %d, want %d: %s", test.method, test.path, test.body, rec.Code, test.want, rec.Body)
			}
		}
		if s := r.after(time.Minute); s.Exit != nil {
			t.Errorf("it ended: %+v", s.Exit)
		}
	})
}

// The user's code may be heard before its start has returned.
func TestSignalDuringTheLaunch(t *testing.T) {
	play(t, func(r *rig, _ *Start) {
		r.launch = func() error { time.Sleep(time.Second); return nil }
	}, func(r *rig) {
		r.after(time.Second / 2)
		h := (&server{runner: r.runner, board: r.board}).handler()
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(r.t.Context(), "POST", pathSignal, strings.NewReader(`{"signal":"HUP"}`)))
		if rec.Code != 200 {
			t.Errorf("signal: %d %s", rec.Code, rec.Body)
		}
		wantTrace(t, r, "0s join 1", "0s launch in e1", "1s signal 1")
	})
}
