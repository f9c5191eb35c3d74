package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/driver/exec"
)

// fakeClient is a runtime's client that ends when it is told to.
type fakeClient struct {
	Workload
	spec   exec.Spec
	exit   exec.Exit
	killed bool
	done   chan struct{}
}

func (c *fakeClient) Done() <-chan struct{} { return c.done }

func (c *fakeClient) Usage() (exec.Usage, error) { return exec.Usage{Time: time.Unix(7, 0)}, nil }

func (c *fakeClient) Wait(context.Context) (exec.Exit, error) { return c.exit, nil }

func (c *fakeClient) Kill(context.Context) error { c.killed = true; return nil }

func (c *fakeClient) Close(context.Context) error { return nil }

func (c *fakeClient) PID() int { return 7 }

func (c *fakeClient) Exec(_ context.Context, spec exec.ExecSpec) (*exec.Session, error) {
	return nil, errors.New(strings.Join(spec.Command, " "))
}

func TestLife(t *testing.T) {
	host := &fakeHost{answers: map[string]string{
		"podman rm":                              "error: exit status 1: Error: no container with name or ID \"caravan-a1\" found: no such container",
		"podman inspect --format {{.State.Pid}}": "1073741824\n", // more than there can be
	}}
	client := &fakeClient{exit: exec.Exit{Code: 137}}
	start := func(_ context.Context, spec exec.Spec) (Workload, error) { client.spec = spec; return client, nil }
	dir := t.TempDir()
	s := full(Runtime{Name: Podman, Path: "/usr/bin/podman", NVIDIA: NVIDIACDI})
	c, err := Run(t.Context(), host, start, exec.Spec{ID: "a1", Dir: dir}, s)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.Index(client.spec.Args, "--env-file")
	data, err := os.ReadFile(client.spec.Args[at+1])
	if err != nil || string(data) != "A=1 x\nB=2\n" {
		t.Errorf("environment file = %q, %v", data, err)
	}
	if !slices.Equal(client.spec.Env, clientEnv) {
		t.Errorf("the client's environment is %v", client.spec.Env)
	}

	host.answers = map[string]string{
		"podman kill --signal SIGUSR1 caravan-a1": "", "podman pause caravan-a1": "", "podman unpause caravan-a1": "", "podman rm --force --volumes --time 0 caravan-a1": "",
		"podman inspect --format {{.State.OOMKilled}}": "true\n",
	}
	for name, f := range map[string]func() error{
		"signal": func() error { return c.Signal(syscall.SIGUSR1) },
		"freeze": func() error { return c.Freeze(t.Context()) },
		"thaw":   func() error { return c.Thaw(t.Context()) },
		"kill":   func() error { return c.Kill(t.Context()) },
	} {
		if err := f(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !client.killed {
		t.Error("the client lives on after Kill")
	}
	if pid := c.PID(); pid != 1<<30 {
		t.Errorf("PID = %d", pid)
	}
	if u, err := c.Usage(); err != nil || !u.Time.Equal(time.Unix(7, 0)) {
		t.Errorf("usage after the end = %+v, %v, want the client's", u, err)
	}
	if _, err := c.Exec(t.Context(), exec.ExecSpec{Command: []string{"ls", "-l"}, TTY: true}); err.Error() != "/usr/bin/podman exec --interactive --tty caravan-a1 ls -l" {
		t.Errorf("exec = %v", err)
	}
	exit, err := c.Wait(t.Context())
	if want := (exec.Exit{Signal: 9, OOM: true}); err != nil || exit != want {
		t.Errorf("exit = %+v, %v, want %+v", exit, err, want)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".container*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	host.answers = map[string]string{"podman": "error: it is broken"}
	if err := c.Freeze(t.Context()); err == nil || !strings.Contains(err.Error(), "podman pause: it is broken") {
		t.Errorf("error = %v", err)
	}
}

// TestAwait: a container is there when Run returns, as soon as the runtime has
// made it; one that never is, because the client has ended, is not waited for.
func TestAwait(t *testing.T) {
	const pid = "docker inspect --format {{.State.Pid}}"
	host := &slowHost{fakeHost: fakeHost{answers: map[string]string{"docker rm": "", pid: "0\n"}}, late: map[string]string{pid: "1073741824\n"}}
	client := &fakeClient{}
	start := func(context.Context, exec.Spec) (Workload, error) { return client, nil }
	s := Spec{Runtime: Runtime{Name: Docker, Path: "/usr/bin/docker"}, Name: "a1", Image: "train:1"}
	c, err := Run(t.Context(), host, start, exec.Spec{ID: "a1", Dir: t.TempDir()}, s)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(host.calls); n < 4 {
		t.Errorf("asked %d times: %v", n, host.calls)
	}
	if pid := c.PID(); pid != 1<<30 {
		t.Errorf("PID = %d", pid)
	}

	client.done = make(chan struct{})
	close(client.done)
	ended := &fakeHost{answers: map[string]string{"docker rm": "", pid: "error: no such object: a1"}}
	if c, err = Run(t.Context(), ended, start, exec.Spec{ID: "a1", Dir: t.TempDir()}, s); err != nil || c.PID() != 7 {
		t.Errorf("PID = %d, %v, want the client's", c.PID(), err)
	}
}
