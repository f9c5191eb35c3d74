package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// TestPodmanLife is what TestRuns is for processes: start, exec, usage,
// suspension, and a stop with a checkpoint.
func TestPodmanLife(t *testing.T) {
	r := newPodRig(t)
	marker := filepath.Join(r.allocs, "a", "main", "local", "ckpt.json")
	task := r.pod("a", []string{"train", marker}, nil, "checkpoint {\nsignal = \"SIGUSR1\"\npaths = [\"local/ckpt.json\"]\n}")
	r.run(task)
	r.output(task, "ready")

	t.Run("exec", func(t *testing.T) {
		res, err := r.Exec(t.Context(), task.ID, []string{"/program", "say", "in the container"}, patience)
		if err != nil || string(res.Stdout) != "in the container\n" || res.Exit.Code != 0 {
			t.Errorf("exec = %+v, %v", res, err)
		}
		if res, err = r.Exec(t.Context(), task.ID, []string{"/program", "env"}, patience); err != nil || res.Exit.Code != 7 || !strings.Contains(string(res.Stdout), "GREETING=hello\n") {
			t.Errorf("exec = %+v, %v", res, err)
		}
	})
	t.Run("terminal", func(t *testing.T) { r.types(t, task) })
	t.Run("usage", func(t *testing.T) {
		pid, err := strconv.Atoi(r.ask("inspect", "--format", "{{.State.Pid}}", containerName(task)))
		if err != nil {
			t.Fatal(err)
		}
		var got driver.Usage
		enough := errors.New("enough")
		err = r.Stats(t.Context(), task.ID, 10*time.Millisecond, func(u driver.Usage) error {
			if got = u; u.Total.Percent == nil || u.PerProcess[strconv.Itoa(pid)].RSS == nil {
				return nil
			}
			return enough
		})
		if !errors.Is(err, enough) || *got.PerProcess[strconv.Itoa(pid)].RSS == 0 || *got.Total.RSS == 0 {
			t.Errorf("usage = %+v, %v", got, err)
		}
	})
	t.Run("progress", func(t *testing.T) {
		r.eventually("step", func() (bool, any) {
			s, err := r.Inspect(t.Context(), task.ID)
			return err == nil && s.Attributes["step"] == "41", s.Attributes
		})
	})
	t.Run("suspension", func(t *testing.T) {
		if len(r.args) > 0 {
			t.Skip("podman cannot pause containers without cgroups")
		}
		r.orders(task, gangapi.Order{Sequence: 1, Kind: gangapi.OrderSuspend, Reason: "another's turn"})
		r.phase(task, "suspended")
		if state := r.ask("inspect", "--format", "{{.State.Status}}", containerName(task)); state != "paused" {
			t.Errorf("the container is %s", state)
		}
		r.orders(task, gangapi.Order{Sequence: 2, Kind: gangapi.OrderResume, Reason: "its turn"})
		r.phase(task, "running")
		data, err := os.ReadFile(task.StdoutPath)
		if err != nil {
			t.Fatal(err)
		}
		r.output(task, string(data)+"tick")
	})

	if err := r.Stop(t.Context(), task.ID, patience, "SIGTERM"); err != nil {
		t.Fatal(err)
	}
	if e := r.exit(task.ID); e.Code != 5 || e.Signal != 0 || e.Err != nil {
		t.Errorf("exit = %+v", e)
	}
	text := r.output(task, "bye")
	if !strings.Contains(text, "checkpoint\n") {
		t.Errorf("stopped without a checkpoint:\n%s", text)
	}
	r.hears(task.ID, "checkpoint", "new checkpoint")
	r.hears(task.ID, "terminate", "SIGTERM")
	if err := r.Destroy(t.Context(), task.ID, false); err != nil {
		t.Error(err)
	}
	r.gone(task)
}

// types runs a command on a terminal in the container.
func (r *podRig) types(t *testing.T, task driver.TaskConfig) {
	in, typed := io.Pipe()
	out, screen := io.Pipe()
	sizes := make(chan driver.TerminalSize, 1)
	sizes <- driver.TerminalSize{Width: 93, Height: 31}
	seen := make(chan string, 1)
	go func() {
		var all strings.Builder
		buf := make([]byte, 1000)
		once := sync.OnceFunc(func() { _, _ = io.WriteString(typed, "hello\n") })
		for {
			n, err := out.Read(buf)
			all.Write(buf[:n])
			if strings.Contains(all.String(), "terminal of") {
				once()
			}
			if err != nil {
				seen <- all.String()
				return
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	exit, err := r.ExecStream(ctx, task.ID, driver.ExecOptions{
		Command: []string{"/program", "terminal"}, TTY: true, Stdin: in, Stdout: screen, Stderr: screen, Resize: sizes,
	})
	_ = screen.Close()
	if text := <-seen; err != nil || exit.Code != 6 || !strings.Contains(text, "typed hello") || !strings.Contains(text, "terminal of ") {
		t.Errorf("exit = %+v, %v, screen %q", exit, err, text)
	}
}

// TestPodmanSurroundings: what a container sees of its task, and of its gang.
func TestPodmanSurroundings(t *testing.T) {
	r := newPodRig(t)
	t.Run("environment and exit code", func(t *testing.T) {
		task := r.pod("env", []string{"env"}, nil)
		r.run(task)
		if e := r.exit(task.ID); e.Code != 7 || e.Err != nil {
			t.Errorf("exit = %+v", e)
		}
		text := r.output(task, "GREETING=hello\n")
		for _, want := range []string{"CARAVAN_LINES=one\ntwo = 2\n", "ODD=a b # c $HOME \"quoted\"\n", "CARAVAN_SOCKET="} {
			if !strings.Contains(text, want) {
				t.Errorf("the environment lacks %q:\n%s", want, text)
			}
		}
	})
	t.Run("gang", func(t *testing.T) {
		r.planner.hold()
		task := r.pod("gang", []string{"show", "$CARAVAN_MEMBERSHIP", "$CARAVAN_HOSTFILE", "$CARAVAN_HOSTFILE_DEEPSPEED"}, nil)
		r.run(task)
		r.eventually("join", func() (bool, any) {
			seen := false
			r.planner.set(func() { _, seen = r.planner.joins[task.AllocID] })
			return seen, nil
		})
		r.planner.set(func() {
			for alloc := range r.planner.joins {
				if alloc != task.AllocID {
					delete(r.planner.joins, alloc)
				}
			}
		})
		if left := r.ask("ps", "--all", "--noheading", "--filter", "name="+containerName(task)); left != "" {
			t.Errorf("started before the gang: %s", left)
		}
		r.planner.release("e1")
		if e := r.exit(task.ID); e != (driver.Exit{}) {
			t.Errorf("exit = %+v", e)
		}
		text := r.output(task, "slots=1")
		var m rendezvous.Membership
		if err := json.NewDecoder(strings.NewReader(text)).Decode(&m); err != nil || m.Epoch != "e1" || len(m.Members) != 1 {
			t.Errorf("membership = %+v, %v in %q", m, err, text)
		}
	})
	t.Run("a socket at another place", func(t *testing.T) {
		r.planner.set(func() {
			r.planner.answer = func(string, gangapi.JoinRequest) gangapi.JoinAnswer {
				return gangapi.JoinAnswer{State: gangapi.JoinAlone}
			}
		})
		// No socket's address holds the path of this task's directory.
		task := r.pod(strings.Repeat("l", 100), []string{"step", "step 7"}, nil)
		r.run(task)
		if e := r.exit(task.ID); e != (driver.Exit{}) {
			data, err := os.ReadFile(task.StderrPath)
			t.Errorf("exit = %+v; %s %v", e, data, err)
		}
		if s, err := r.Inspect(t.Context(), task.ID); err != nil || s.Attributes["step"] != "7" {
			t.Errorf("inspection = %+v, %v", s, err)
		}
	})
	t.Run("directories", func(t *testing.T) {
		shared := filepath.Join(t.TempDir(), "shared")
		if err := os.WriteFile(shared, []byte("volume\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(r.allocs, "dirs")
		files := []string{filepath.Join(dir, "alloc", "f"), filepath.Join(dir, "main", "local", "f"), filepath.Join(dir, "main", "secrets", "f")}
		r.planner.set(func() {
			r.planner.answer = func(string, gangapi.JoinRequest) gangapi.JoinAnswer {
				return gangapi.JoinAnswer{State: gangapi.JoinAlone}
			}
		})
		task := r.pod("dirs", append([]string{"show", "/data/shared", "/etc/resolv.conf"}, files...), func(t *driver.TaskConfig) {
			t.DNS = &driver.DNS{Servers: []string{"192.0.2.53"}, Searches: []string{"gang.example"}, Options: []string{"ndots:3"}}
			t.Mounts = append(t.Mounts, driver.Mount{HostPath: shared, TaskPath: "/data/shared", ReadOnly: true})
		})
		for _, path := range files {
			if err := os.WriteFile(path, []byte(path), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.run(task)
		if e := r.exit(task.ID); e != (driver.Exit{}) {
			t.Errorf("exit = %+v", e)
		}
		want := "volume\n<nil>\nnameserver 192.0.2.53\nsearch gang.example\noptions ndots:3\n<nil>\n"
		for _, path := range files {
			want += path + "<nil>\n"
		}
		if got := r.output(task, files[2]); got != want {
			t.Errorf("output = %q, want %q", got, want)
		}
	})
}

// TestPodmanFailures: what goes wrong is told as what it is.
func TestPodmanFailures(t *testing.T) {
	r := newPodRig(t)
	t.Run("no such image", func(t *testing.T) {
		// Nothing listens there.
		task := r.task("pull", `image = "localhost:1/caravan/none:1"`)
		r.run(task)
		if e := r.exit(task.ID); e == (driver.Exit{}) || e.Err == nil || !strings.Contains(e.Err.Error(), "pull image localhost:1/caravan/none:1") {
			t.Errorf("exit = %+v", e)
		}
		r.hears(task.ID, "exit", "pull image localhost:1/caravan/none:1")
	})
	t.Run("no such command", func(t *testing.T) {
		task := r.pod("command", []string{"/none"}, nil)
		r.run(task)
		if e := r.exit(task.ID); e.Code == 0 && e.Signal == 0 {
			t.Errorf("exit = %+v", e)
		}
		r.eventually("words of the runtime's", func() (bool, any) {
			data, err := os.ReadFile(task.StderrPath)
			return strings.Contains(string(data), "/none"), fmt.Sprintf("%s %v", data, err)
		})
	})
	t.Run("out of memory", func(t *testing.T) {
		if len(r.args) > 0 {
			t.Skip("podman cannot limit memory without cgroups")
		}
		task := r.pod("hog", []string{"hog"}, func(t *driver.TaskConfig) { t.Resources.Linux.MemoryLimitBytes = 32 << 20 })
		r.run(task)
		if e := r.exit(task.ID); e.Signal != int(syscall.SIGKILL) || !e.OOMKilled {
			t.Errorf("exit = %+v", e)
		}
		if err := r.Destroy(t.Context(), task.ID, false); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(task.TaskDir()); err != nil || len(left) != 2 {
			t.Errorf("left in the task's directory: %v, %v", left, err)
		}
	})
	t.Run("stopped while suspended", func(t *testing.T) {
		if len(r.args) > 0 {
			t.Skip("podman cannot pause containers without cgroups")
		}
		marker := filepath.Join(r.allocs, "suspended", "main", "local", "c")
		task := r.pod("suspended", []string{"train", marker}, nil, "checkpoint {\nsignal = \"SIGUSR1\"\npaths = [\"local/c\"]\n}")
		r.run(task)
		r.output(task, "ready")
		r.orders(task, gangapi.Order{Sequence: 1, Kind: gangapi.OrderSuspend, Reason: "another's turn"})
		r.phase(task, "suspended")
		if res, err := r.Exec(t.Context(), task.ID, []string{"/program", "say"}, patience); err == nil && res.Exit.Code == 0 {
			t.Errorf("exec while suspended = %+v", res)
		}
		if err := r.Stop(t.Context(), task.ID, patience, "SIGTERM"); err != nil {
			t.Fatal(err)
		}
		if e := r.exit(task.ID); e.Code != 5 {
			t.Errorf("exit = %+v", e)
		}
		if text := r.output(task, "bye"); !strings.Contains(text, "checkpoint\n") {
			t.Errorf("stopped without a checkpoint:\n%s", text)
		}
	})
	t.Run("destroyed while suspended", func(t *testing.T) {
		if len(r.args) > 0 {
			t.Skip("podman cannot pause containers without cgroups")
		}
		task := r.pod("destroyed", []string{"wait"}, nil)
		r.run(task)
		r.output(task, "ready")
		r.orders(task, gangapi.Order{Sequence: 1, Kind: gangapi.OrderSuspend, Reason: "another's turn"})
		r.phase(task, "suspended")
		if err := r.Destroy(t.Context(), task.ID, true); err != nil {
			t.Error(err)
		}
		r.gone(task)
	})
	t.Run("ignores everything", func(t *testing.T) {
		task := r.pod("stubborn", []string{"stubborn"}, nil)
		r.run(task)
		r.output(task, "ready")
		if err := r.Stop(t.Context(), task.ID, 300*time.Millisecond, "SIGTERM"); err != nil {
			t.Fatal(err)
		}
		if e := r.exit(task.ID); e.Signal != int(syscall.SIGKILL) {
			t.Errorf("exit = %+v", e)
		}
		r.gone(task)
	})
}

// TestPodmanPluginDies: the container runs on, and the next plugin has it.
func TestPodmanPluginDies(t *testing.T) {
	r := newPodRig(t)
	task := r.pod("a", []string{"wait"}, nil)
	h := r.run(task)
	r.output(task, "ready")
	r.phase(task, "running")
	pid := r.ask("inspect", "--format", "{{.State.Pid}}", containerName(task))
	if err := syscall.Kill(r.plugin.Handle().PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.eventually("end of the plugin", func() (bool, any) { return r.plugin.Exited(), nil })
	r.launch()
	r.listen()
	if err := r.Recover(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if s, err := r.Inspect(t.Context(), task.ID); err != nil || s.State != driver.StateRunning || s.Attributes["pid"] != pid {
		t.Errorf("inspection = %+v, %v, want process %s", s, err, pid)
	}
	if err := r.Signal(t.Context(), task.ID, "SIGUSR1"); err != nil {
		t.Fatal(err)
	}
	if e := r.exit(task.ID); e.Code != 3 || e.Err != nil {
		t.Errorf("exit = %+v", e)
	}
	r.output(task, "told")
}

// TestPodmanSupervisorDies: no container outlives whoever answers for it.
func TestPodmanSupervisorDies(t *testing.T) {
	r := newPodRig(t)
	task := r.pod("a", []string{"wait"}, nil)
	r.run(task)
	r.output(task, "ready")
	s, err := r.Inspect(t.Context(), task.ID)
	if err != nil {
		t.Fatal(err)
	}
	supervisor, err := strconv.Atoi(s.Attributes["supervisor_pid"])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e := r.exit(task.ID)
	if e.Err == nil || !strings.Contains(e.Err.Error(), "supervisor has died") {
		t.Errorf("exit = %+v", e)
	}
	r.gone(task)
}

// TestPodmanAttributes: jobs can be constrained to nodes with the runtime.
func TestPodmanAttributes(t *testing.T) {
	r := newPodRig(t)
	f := r.fingerprint()
	if got, want := f.Attributes["driver.caravan.runtime.podman"], attr.String(r.ask("version", "--format", "{{.Client.Version}}")); got != want {
		t.Errorf("attributes = %v", f.Attributes)
	}
	if _, ok := f.Attributes["driver.caravan.runtime.docker"]; ok {
		t.Errorf("a runtime is there that is not allowed: %v", f.Attributes)
	}
}
