package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
	"github.com/caravan-sched/caravan/driver/supervisor/machine"
)

// TestMain makes the test binary a supervisor, too.
func TestMain(m *testing.M) {
	exec.Main()
	if len(os.Args) == 3 && os.Args[1] == Command {
		if err := Run(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// patient bounds the waits of tests with real processes; none of them passes by
// waiting for it.
const patient = 30 * time.Second

// httpPlanner is a planner whose answers a test chooses.
type httpPlanner struct {
	*httptest.Server
	mu      sync.Mutex
	join    func(r gangapi.JoinRequest) gangapi.JoinAnswer
	report  func(r gangapi.ReportRequest) gangapi.ReportAnswer
	reports []gangapi.ReportRequest
}

func newHTTPPlanner(t *testing.T) *httpPlanner {
	p := &httpPlanner{
		join:   func(gangapi.JoinRequest) gangapi.JoinAnswer { return gangapi.JoinAnswer{State: gangapi.JoinWaiting} },
		report: func(gangapi.ReportRequest) gangapi.ReportAnswer { return gangapi.ReportAnswer{} },
	}
	mux := http.NewServeMux()
	mux.HandleFunc(gangapi.JoinPath, func(w http.ResponseWriter, req *http.Request) {
		var r gangapi.JoinRequest
		_ = json.NewDecoder(req.Body).Decode(&r)
		p.mu.Lock()
		a := p.join(r)
		p.mu.Unlock()
		_ = json.NewEncoder(w).Encode(a)
	})
	mux.HandleFunc(gangapi.ReportPath, func(w http.ResponseWriter, req *http.Request) {
		var r gangapi.ReportRequest
		_ = json.NewDecoder(req.Body).Decode(&r)
		p.mu.Lock()
		p.reports = append(p.reports, r)
		a := p.report(r)
		p.mu.Unlock()
		_ = json.NewEncoder(w).Encode(a)
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// set changes how the planner answers.
func (p *httpPlanner) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func memberOf(r gangapi.JoinRequest, epoch string) *rendezvous.Membership {
	return &rendezvous.Membership{
		Epoch: epoch, Generation: 1, Namespace: "default", Job: "train", MasterAddr: r.Address, MasterPort: r.Port, Min: 1, Max: 1,
		Members: []rendezvous.Member{{Group: "g", Alloc: "a1", Node: "n1", NodeName: "node-1", Address: r.Address, Processes: 1}},
	}
}

func startAtOnce(r gangapi.JoinRequest) gangapi.JoinAnswer {
	return gangapi.JoinAnswer{State: gangapi.JoinStart, Membership: memberOf(r, fmt.Sprintf("e%d", r.Attempt))}
}

// shell is a task that runs a shell script. Its output goes to the file out in
// its directory.
func shell(t *testing.T, p *httpPlanner, script string) (dir string, s Start) {
	t.Helper()
	root := t.TempDir()
	token := filepath.Join(root, "token")
	if err := os.WriteFile(token, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = Start{
		Task: Task{Namespace: "default", Job: "train", Group: "g", Alloc: "a1", Task: "main", Node: "n1"},
		Workload: exec.Spec{
			Command: "/bin/sh", Args: []string{"-c", script}, Env: []string{"PATH=" + os.Getenv("PATH"), "RANK=mine"}, Dir: root,
			Stdout: filepath.Join(root, "out"), Stderr: filepath.Join(root, "out"), NoCgroups: true,
		},
		Role:  RoleNone,
		Files: Files{Dir: filepath.Join(root, "caravan")},
	}
	if p != nil {
		s.Role = RoleRank
		s.Barrier = Barrier{Planners: []string{p.URL}, IdentityFile: token, JoinTimeout: time.Minute, Address: "127.0.0.1"}
	}
	return filepath.Join(root, "state"), s
}

func launch(t *testing.T, dir string, s Start) (*Client, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	t.Cleanup(cancel)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Launch(ctx, binary, dir, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		if t.Failed() {
			for _, name := range []string{fileLog, fileOutput} {
				text, _ := os.ReadFile(filepath.Join(dir, name))
				t.Logf("%s:\n%s", name, text)
			}
		}
		if err := c.Destroy(ctx, true); err != nil {
			t.Errorf("destroy: %v", err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the state directory is left: %v", err)
		}
	})
	return c, ctx
}

// until waits until the status is as wanted.
func until(t *testing.T, ctx context.Context, c *Client, what string, ok func(Status) bool) Status {
	t.Helper()
	for {
		s, err := c.Status(ctx)
		if err != nil {
			t.Fatalf("wait for %s: %v", what, err)
		}
		if ok(s) {
			return s
		}
		if sleep(ctx, 5*time.Millisecond) != nil {
			t.Fatalf("wait for %s: still %+v", what, s)
		}
	}
}

func inPhase(p machine.Phase) func(Status) bool { return func(s Status) bool { return s.Phase == p } }

// untilOutput waits until the user's code has written something.
func untilOutput(t *testing.T, ctx context.Context, s Start, want string) string {
	t.Helper()
	for {
		got, _ := os.ReadFile(s.Workload.Stdout)
		if strings.Contains(string(got), want) {
			return string(got)
		}
		if sleep(ctx, 5*time.Millisecond) != nil {
			t.Fatalf("output %q, want %q in it", got, want)
		}
	}
}

// runs reports whether there is such a process; a dead one whose new parent has
// not taken note yet does not run.
func runs(pid int) bool {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	stat, err := proc.Stat()
	return err == nil && stat.State != "Z" && stat.State != "X"
}

func kinds(events []Event) []machine.EventKind {
	var out []machine.EventKind
	for _, e := range events {
		out = append(out, e.Kind)
	}
	return out
}

func TestProcessRunsAndEnds(t *testing.T) {
	dir, s := shell(t, nil, `echo "$RANK $CARAVAN_SOCKET"; exit 7`)
	c, ctx := launch(t, dir, s)
	exit, err := c.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if exit.Code != 7 || exit.Cause != machine.CauseExited || !exit.Started || exit.Fault != "" {
		t.Errorf("exit %+v, want code 7 by itself", exit)
	}
	untilOutput(t, ctx, s, "mine "+filepath.Join(s.Files.Dir, fileProgress))
	events, err := c.Events(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := []machine.EventKind{machine.EventStarted, machine.EventEnded, machine.EventExit}; !slices.Equal(kinds(events), want) {
		t.Errorf("events %v, want %v", kinds(events), want)
	}
	if err := c.Signal(ctx, "SIGUSR1"); !errors.Is(err, ErrNotRunning) {
		t.Errorf("signal after the end: %v, want ErrNotRunning", err)
	}
	if _, err := c.Usage(ctx); !errors.Is(err, ErrNotRunning) {
		t.Errorf("usage after the end: %v, want ErrNotRunning", err)
	}
	if err := c.Stop(ctx, time.Second, ""); err != nil {
		t.Errorf("stop after the end: %v", err)
	}
}

func TestProcessBarrierAndStop(t *testing.T) {
	p := newHTTPPlanner(t)
	dir, s := shell(t, p, `
trap 'echo saving; echo x > ckpt/step-1' USR1
trap 'echo term; exit 0' TERM
mkdir -p ckpt; cat "$CARAVAN_MEMBERSHIP"; echo "rank $RANK of $WORLD_SIZE at $MASTER_ADDR"
while :; do sleep 0.02; done`)
	s.Checkpoint = Checkpoint{Signal: "SIGUSR1", Grace: patient, Paths: []string{filepath.Join(s.Workload.Dir, "ckpt")}}
	c, ctx := launch(t, dir, s)
	until(t, ctx, c, "waiting", inPhase(machine.Waiting))
	if err := c.Suspend(ctx); !errors.Is(err, ErrNotRunning) {
		t.Errorf("suspend at the barrier: %v, want ErrNotRunning", err)
	}
	if err := c.Destroy(ctx, false); !errors.Is(err, ErrRunning) {
		t.Errorf("destroy at the barrier: %v, want ErrRunning", err)
	}
	p.set(func() { p.join = startAtOnce })
	running := until(t, ctx, c, "running", inPhase(machine.Running))
	if running.Epoch != "e1" || running.WorkloadPID == 0 {
		t.Errorf("status %+v, want epoch e1 and a PID", running)
	}
	if out := untilOutput(t, ctx, s, "rank 0 of 1 at 127.0.0.1"); !strings.Contains(out, `"epoch": "e1"`) {
		t.Errorf("output %q, want the membership in it", out)
	}
	if err := c.Stop(ctx, 10*patient, "SIGTERM"); err != nil {
		t.Fatal(err)
	}
	exit, err := c.Wait(ctx)
	if err != nil || exit.Code != 0 || exit.Cause != machine.CauseStopped {
		t.Fatalf("exit %+v, %v; want a stop with code 0", exit, err)
	}
	events, err := c.Events(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []machine.EventKind{
		machine.EventWaiting, machine.EventStarting, machine.EventStarted, machine.EventStopping,
		machine.EventCheckpoint, machine.EventTerminate, machine.EventEnded, machine.EventExit,
	}
	if !slices.Equal(kinds(events), want) {
		t.Errorf("events %v, want %v", kinds(events), want)
	}
}

func TestProcessIgnoresEverything(t *testing.T) {
	dir, s := shell(t, nil, `trap '' TERM USR1; setsid sleep 1000 & echo "child $!"; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	out := untilOutput(t, ctx, s, "child")
	var child int
	if _, err := fmt.Sscanf(out, "child %d", &child); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(ctx, 200*time.Millisecond, "SIGTERM"); err != nil {
		t.Fatal(err)
	}
	exit, err := c.Wait(ctx)
	if err != nil || exit.Signal != int(unix.SIGKILL) {
		t.Errorf("exit %+v, %v; want SIGKILL", exit, err)
	}
	if runs(child) {
		t.Error("the grandchild in a session of its own is left")
	}
}

func TestProcessSuspendSignalUsageExec(t *testing.T) {
	dir, s := shell(t, nil, `trap 'echo usr1' USR1; echo up; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	untilOutput(t, ctx, s, "up")
	until(t, ctx, c, "running", inPhase(machine.Running))
	if err := c.Suspend(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Suspend(ctx); err != nil {
		t.Errorf("suspend twice: %v", err)
	}
	until(t, ctx, c, "suspended", inPhase(machine.Suspended))
	if err := c.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(ctx, "usr1"); err != nil {
		t.Fatal(err)
	}
	untilOutput(t, ctx, s, "usr1")
	if err := c.Signal(ctx, "SIGNONSENSE"); !errors.Is(err, ErrBadRequest) {
		t.Errorf("unknown signal: %v, want ErrBadRequest", err)
	}
	if u, err := c.Usage(ctx); err != nil || len(u.Processes) == 0 {
		t.Errorf("usage %+v, %v; want processes", u, err)
	}
	var stdout, stderr bytes.Buffer
	exit, err := c.Exec(ctx, exec.ExecSpec{
		Command: []string{"/bin/sh", "-c", "cat; echo $WORD; echo bad >&2; exit 3"}, Env: []string{"WORD=inside"},
		Stdin: strings.NewReader("in "), Stdout: &stdout, Stderr: &stderr,
	}, nil)
	if err != nil || exit.Code != 3 || stdout.String() != "in inside\n" || stderr.String() != "bad\n" {
		t.Errorf("exec: %+v, %v, stdout %q, stderr %q", exit, err, stdout.String(), stderr.String())
	}
	if _, err := c.Exec(ctx, exec.ExecSpec{Command: []string{"/no/such/thing"}}, nil); err == nil {
		t.Error("exec of what is not there: no error")
	}
}

func TestProcessRestartOrder(t *testing.T) {
	p := newHTTPPlanner(t)
	p.join = startAtOnce
	dir, s := shell(t, p, `echo "in $CARAVAN_EPOCH"; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	untilOutput(t, ctx, s, "in e1")
	p.set(func() {
		p.report = func(r gangapi.ReportRequest) gangapi.ReportAnswer {
			return gangapi.ReportAnswer{Order: &gangapi.Order{Sequence: 1, Kind: gangapi.OrderRestart, Urgent: true, Reason: "rank 3 failed first"}}
		}
	})
	untilOutput(t, ctx, s, "in e2")
	second := until(t, ctx, c, "running", inPhase(machine.Running))
	if second.Attempt != 2 || second.Epoch != "e2" || second.Exit != nil {
		t.Errorf("status %+v, want the second attempt", second)
	}
}

func TestProcessDies(t *testing.T) {
	dir, s := shell(t, nil, `echo up; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	untilOutput(t, ctx, s, "up")
	st := until(t, ctx, c, "running", inPhase(machine.Running))
	again, err := Attach(dir)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := again.Wait(ctx)
		waited <- err
	}()
	if err := unix.Kill(st.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; !errors.Is(err, ErrDied) {
		t.Errorf("wait: %v, want ErrDied", err)
	}
	if _, err := again.Status(ctx); !errors.Is(err, ErrDied) {
		t.Errorf("status: %v, want ErrDied", err)
	}
	events, err := again.Events(ctx, 0)
	if err != nil || len(events) == 0 || events[0].Kind != machine.EventStarted {
		t.Errorf("events %v, %v; want those on disk", events, err)
	}
	if _, err := again.Events(ctx, events[len(events)-1].Sequence); !errors.Is(err, ErrDied) {
		t.Errorf("further events: %v, want ErrDied", err)
	}
	if err := again.Reap(ctx); err != nil {
		t.Fatal(err)
	}
	if runs(st.WorkloadPID) {
		t.Error("the user's code is left")
	}
}

func TestProcessExitOnDisk(t *testing.T) {
	dir, s := shell(t, nil, `exit 9`)
	c, ctx := launch(t, dir, s)
	if _, err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	for { // the disk may be slower than the socket
		if _, err := os.Stat(filepath.Join(dir, fileExit)); err == nil {
			break
		}
		if sleep(ctx, time.Millisecond) != nil {
			t.Fatal("no exit on disk")
		}
	}
	st, err := c.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(st.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	exit, err := c.Wait(ctx)
	for err == nil && exit.Code != 9 {
		t.Fatalf("exit %+v, want code 9", exit)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestLaunchFaults(t *testing.T) {
	ctx := t.Context()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, s := shell(t, nil, "true")
	s.Task.Job, s.Role = "", "chief"
	var faults *StartError
	if _, err := Launch(ctx, binary, dir, s); !errors.As(err, &faults) || len(faults.Faults) != 2 {
		t.Errorf("launch: %v, want both faults", err)
	}
	if _, err := Attach(t.TempDir()); !errors.Is(err, ErrNoSupervisor) {
		t.Errorf("attach to nothing: %v, want ErrNoSupervisor", err)
	}
	dir, s = shell(t, nil, "sleep 1000")
	if _, err := Launch(ctx, "/bin/false", dir, s); err == nil {
		t.Error("a binary that is no supervisor: no error")
	}
	if _, err := Launch(ctx, "/no/such/binary", dir, s); err == nil {
		t.Error("a binary that is not there: no error")
	}
	launch(t, dir, s)
	if _, err := Launch(ctx, binary, dir, s); !errors.Is(err, ErrExists) {
		t.Errorf("launch twice: %v, want ErrExists", err)
	}
}

func TestLongDirectory(t *testing.T) {
	dir, s := shell(t, nil, "exit 0")
	c, ctx := launch(t, filepath.Join(dir, strings.Repeat("d", 120)), s)
	if _, err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestTerminatedWithItsHost(t *testing.T) {
	dir, s := shell(t, nil, `trap 'exit 4' TERM; echo up; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	untilOutput(t, ctx, s, "up")
	st, err := c.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(st.PID, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if exit, err := c.Wait(ctx); err != nil || exit.Code != 4 || exit.Cause != machine.CauseStopped {
		t.Errorf("exit %+v, %v; want a stop with code 4", exit, err)
	}
}

// A signal that the supervisor ignored would be ignored by the user's code, too:
// it would not hear of a stop by SIGINT, for one.
func TestNoSignalIsIgnored(t *testing.T) {
	dir, s := shell(t, nil, `grep SigIgn /proc/self/status`)
	c, ctx := launch(t, dir, s)
	if _, err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if out := untilOutput(t, ctx, s, "SigIgn"); out != "SigIgn:\t0000000000000000\n" {
		t.Errorf("output %q, want no signal", out)
	}
}

func TestProcessPreflight(t *testing.T) {
	p := newHTTPPlanner(t)
	p.join = func(r gangapi.JoinRequest) gangapi.JoinAnswer {
		if r.Fault != nil {
			return gangapi.JoinAnswer{State: gangapi.JoinRefused, Reason: "the gang is moved: " + r.Fault.Detail}
		}
		return startAtOnce(r)
	}
	t.Run("fit", func(t *testing.T) {
		dir, s := shell(t, p, `echo "run"`)
		s.Preflight = &Preflight{GPUSource: "mock:dgxh100", Command: "/bin/sh", Args: []string{"-c", "echo checked"}, Timeout: patient}
		c, ctx := launch(t, dir, s)
		if exit, err := c.Wait(ctx); err != nil || exit.Code != 0 {
			t.Errorf("exit %+v, %v; want 0", exit, err)
		}
		untilOutput(t, ctx, s, "checked\nrun\n")
	})
	t.Run("not fit", func(t *testing.T) {
		dir, s := shell(t, p, `echo "run"`)
		s.Preflight = &Preflight{Command: "/bin/sh", Args: []string{"-c", "exit 6"}, Timeout: patient}
		c, ctx := launch(t, dir, s)
		exit, err := c.Wait(ctx)
		if err != nil || exit.Cause != machine.CausePreflight || exit.Started || !strings.Contains(exit.Fault, "exited with code 6") {
			t.Errorf("exit %+v, %v; want the preflight's", exit, err)
		}
	})
	t.Run("stopped meanwhile", func(t *testing.T) {
		dir, s := shell(t, p, `echo "run"`)
		s.Preflight = &Preflight{Command: "/bin/sh", Args: []string{"-c", "echo $$; while :; do sleep 0.02; done"}, Timeout: 10 * patient}
		c, ctx := launch(t, dir, s)
		out := untilOutput(t, ctx, s, "\n")
		if err := c.Stop(ctx, 10*patient, ""); err != nil {
			t.Fatal(err)
		}
		if exit, err := c.Wait(ctx); err != nil || exit.Cause != machine.CauseStopped || exit.Started {
			t.Errorf("exit %+v, %v; want a stop", exit, err)
		}
		var pid int
		if _, err := fmt.Sscan(out, &pid); err != nil || runs(pid) {
			t.Errorf("the check %d (%v) is left", pid, err)
		}
	})
}

func TestProcessExecIsEnded(t *testing.T) {
	dir, s := shell(t, nil, `echo up; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	untilOutput(t, ctx, s, "up")
	until(t, ctx, c, "running", inPhase(machine.Running))
	inside, cancel := context.WithCancel(ctx)
	pids, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := c.Exec(inside, exec.ExecSpec{Command: []string{"/bin/sh", "-c", "echo $$; sleep 1000"}, Stdout: w}, nil)
		done <- err
	}()
	var pid int
	if _, err := fmt.Fscan(pids, &pid); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, pids) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("exec: %v, want cancelled", err)
	}
	for runs(pid) {
		if sleep(ctx, 5*time.Millisecond) != nil {
			t.Fatalf("the command %d is left", pid)
		}
	}
}

func TestProcessTerminal(t *testing.T) {
	dir, s := shell(t, nil, `echo up; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	untilOutput(t, ctx, s, "up")
	until(t, ctx, c, "running", inPhase(machine.Running))
	sizes := make(chan exec.Size, 1)
	sizes <- exec.Size{Rows: 50, Columns: 132}
	var out bytes.Buffer
	exit, err := c.Exec(ctx, exec.ExecSpec{
		Command: []string{"/bin/sh", "-c", `until [ "$(stty size)" = "50 132" ]; do sleep 0.02; done; echo resized`},
		TTY:     true, Size: exec.Size{Rows: 24, Columns: 80}, Stdout: &out,
	}, sizes)
	if err != nil || exit.Code != 0 || !strings.Contains(out.String(), "resized") {
		t.Errorf("exit %+v, %v, output %q", exit, err, out.String())
	}
}

func TestProcessOfAUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run as somebody else")
	}
	if _, err := user.Lookup("nobody"); err != nil {
		t.Skipf("needs the user nobody: %v", err)
	}
	dir, s := shell(t, nil, `[ -w "$CARAVAN_SOCKET" ] && id -un`)
	for _, d := range []string{filepath.Dir(s.Workload.Dir), s.Workload.Dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(s.Workload.Stdout, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	s.Workload.User = "nobody"
	c, ctx := launch(t, dir, s)
	if exit, err := c.Wait(ctx); err != nil || exit.Code != 0 {
		t.Errorf("exit %+v, %v; want the socket to be the user's", exit, err)
	}
	untilOutput(t, ctx, s, "nobody")
}
