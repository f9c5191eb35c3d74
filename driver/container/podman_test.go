package container

import (
	"bytes"
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/driver/exec"
)

func TestMain(m *testing.M) {
	exec.Main()
	os.Exit(m.Run())
}

const testImage = "localhost/caravan-container-test:1"

// program is what runs in the test's containers: an image of one static binary
// needs nothing from anywhere.
const program = `package main

import ("fmt"; "os"; "os/signal"; "strings"; "syscall"; "time")

func main() {
	switch os.Args[1] {
	case "env":
		fmt.Println(strings.Join(os.Environ(), "\n"))
		os.Exit(7)
	case "wait":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGUSR1)
		fmt.Println("ready")
		select {
		case <-c:
			fmt.Println("told")
			os.Exit(3)
		case <-time.After(time.Minute):
		}
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		time.Sleep(time.Minute)
	case "say":
		fmt.Println(strings.Join(os.Args[2:], " "))
	}
}
`

// podman returns a runtime that can run containers here, and arguments that it
// needs on this host.
func podman(t *testing.T) (Runtime, []string) {
	t.Helper()
	found, err := Find(t.Context(), Machine{}, []string{string(Podman)})
	if err != nil {
		t.Skipf("no podman: %v", err)
	}
	r := found[0]
	makeImage(t, r)
	// Where cgroups are not podman's to make, it still runs containers.
	var last error
	for _, args := range [][]string{nil, {"--cgroups=disabled"}} {
		probe := append([]string{"run", "--rm", "--network", "host", "--ulimit", "nofile=256:256", "--ulimit", "nproc=256:256"}, args...)
		if _, last = (Machine{}).Output(t.Context(), r.Path, append(probe, testImage, "/program", "say")...); last == nil {
			return r, args
		}
	}
	t.Skipf("podman runs no containers here: %v", last)
	return Runtime{}, nil
}

func makeImage(t *testing.T, r Runtime) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "root")
	for _, d := range []string{"proc", "sys", "dev", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build := osexec.Command("go", "build", "-o", filepath.Join(root, "program"), filepath.Join(dir, "main.go"))
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GO111MODULE=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the image's program: %v\n%s", err, out)
	}
	tarball := filepath.Join(dir, "image.tar")
	if out, err := osexec.Command("tar", "-C", root, "-cf", tarball, ".").CombinedOutput(); err != nil {
		t.Fatalf("pack the image: %v\n%s", err, out)
	}
	if _, err := (Machine{}).Output(t.Context(), r.Path, "import", "--quiet", tarball, testImage); err != nil {
		t.Skipf("podman imports no image here: %v", err)
	}
}

// TestPodman runs containers through a real podman, where there is one.
func TestPodman(t *testing.T) {
	r, args := podman(t)
	start := func(ctx context.Context, spec exec.Spec) (Workload, error) { return exec.Start(ctx, spec) }
	run := func(t *testing.T, command string) (*Container, string) {
		dir := t.TempDir()
		output := filepath.Join(dir, "out")
		s := Spec{
			Runtime: r, Name: "caravan-test-" + strings.ToLower(command), Image: testImage, Entrypoint: []string{"/program"}, Args: []string{command},
			Env: map[string]string{"PLAIN": "a b # c", "LINES": "1\n2"}, RuntimeArgs: args,
			Ulimits: map[string]string{"nofile": "256:256", "nproc": "256:256"},
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
