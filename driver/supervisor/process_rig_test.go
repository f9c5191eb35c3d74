package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"

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
const patient = 90 * time.Second

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
