package container

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/driver/container/containertest"
	"github.com/caravan-sched/caravan/driver/exec"
)

func TestMain(m *testing.M) {
	exec.Main()
	os.Exit(m.Run())
}

// podman returns a runtime that can run containers here, and arguments that it
// needs on this host.
func podman(t *testing.T) (Runtime, []string) {
	t.Helper()
	path, args := containertest.Podman(t)
	found, err := Find(t.Context(), Machine{}, []string{string(Podman)})
	if err != nil || found[0].Path != path {
		t.Fatalf("found %v, %v, want %s", found, err, path)
	}
	return found[0], args
}

// TestPodman runs containers through a real podman, where there is one.
func TestPodman(t *testing.T) {
	r, args := podman(t)
	start := func(ctx context.Context, spec exec.Spec) (Workload, error) { return exec.Start(ctx, spec) }
	run := func(t *testing.T, command string) (*Container, string) {
		dir := t.TempDir()
		output := filepath.Join(dir, "out")
		s := Spec{
			Runtime: r, Name: "caravan-test-" + strings.ToLower(command), Image: containertest.Image, Entrypoint: []string{"/program"}, Args: []string{command},
			Env: map[string]string{"PLAIN": "a b # c", "LINES": "1\n2"}, RuntimeArgs: args,
			Ulimits: containertest.Ulimits(),
			Mounts:  []Mount{{HostPath: dir, TaskPath: "/data"}},
		}
		if err := Pull(t.Context(), Machine{}, s); err != nil {
			t.Fatal(err)
		}
		c, err := Run(t.Context(), Machine{}, start, exec.Spec{ID: "test-" + command, Dir: dir, Stdout: output, Stderr: output}, s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := c.Close(ctx); err != nil {
				t.Error(err)
			}
			if out, err := (Machine{}).Output(ctx, r.Path, "ps", "--all", "--noheading", "--filter", "name="+s.Name); err != nil || strings.TrimSpace(out) != "" {
				t.Errorf("left behind: %s, %v", out, err)
			}
		})
		return c, output
	}
	says := func(t *testing.T, output, want string) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for {
			data, err := os.ReadFile(output)
			if err == nil && strings.Contains(string(data), want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("output is %q, %v, want %q", data, err, want)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	t.Run("environment and exit code", func(t *testing.T) {
		c, output := run(t, "env")
		exit, err := c.Wait(t.Context())
		if want := (exec.Exit{Code: 7}); err != nil || exit != want {
			data, _ := os.ReadFile(output)
			t.Fatalf("exit = %+v, %v, want %+v; output:\n%s", exit, err, want, data)
		}
		says(t, output, "PLAIN=a b # c\n")
		says(t, output, "LINES=1\n2\n")
	})
	t.Run("signal and exec", func(t *testing.T) {
		c, output := run(t, "wait")
		says(t, output, "ready")
		var out bytes.Buffer
		session, err := c.Exec(t.Context(), exec.ExecSpec{Command: []string{"/program", "say", "in", "the container"}, Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := session.Wait(t.Context()); err != nil || exit != (exec.Exit{}) || out.String() != "in the container\n" {
			t.Errorf("exec = %+v, %v, output %q", exit, err, out.String())
		}
		if err := syscall.Kill(c.PID(), 0); err != nil {
			t.Errorf("process %d: %v", c.PID(), err)
		}
		if u, err := c.Usage(); err != nil || u.Processes[c.PID()].RSSBytes == nil || len(u.Processes) != 1 {
			t.Errorf("usage = %+v, %v, want that of the container's process %d alone", u, err, c.PID())
		}
		if err := c.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		if exit, err := c.Wait(t.Context()); err != nil || exit != (exec.Exit{Code: 3}) {
			t.Errorf("exit = %+v, %v", exit, err)
		}
		says(t, output, "told")
	})
	t.Run("kill", func(t *testing.T) {
		c, output := run(t, "stubborn")
		says(t, output, "ready")
		pid := c.PID()
		if err := c.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("process %d lives on", pid)
		}
		if exit, err := c.Wait(t.Context()); err != nil || exit == (exec.Exit{}) {
			t.Errorf("exit = %+v, %v", exit, fmt.Sprint(err))
		}
	})
}
