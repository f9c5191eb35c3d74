package exec

import (
	"context"
	"errors"
	"maps"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// sleepers are the processes on the host that sleep for so many seconds.
func sleepers(t *testing.T, seconds string) []int {
	t.Helper()
	h := host{proc: "/proc"}
	all, err := h.snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for pid, p := range all {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err == nil && !p.dead() && string(line) == "/bin/sleep\x00"+seconds+"\x00" {
			found = append(found, pid)
		}
	}
	return found
}

// ways are the ways in which a workload is held together.
func ways() map[string]func(*testing.T, *Spec) {
	return map[string]func(*testing.T, *Spec){
		"cgroups": func(t *testing.T, _ *Spec) {
			if f, err := Probe(); err != nil || f.Kill == "scan" {
				t.Skip("needs cgroups")
			}
		},
		"scan": func(_ *testing.T, s *Spec) { s.NoCgroups = true },
		"pid namespace": func(t *testing.T, s *Spec) {
			needRoot(t)
			s.NoCgroups, s.PIDNamespace = true, true
		},
	}
}

func TestKillLeavesNothing(t *testing.T) {
	scripts := map[string]struct {
		actor bool
		text  string
		least int
	}{
		"child":         {text: "/bin/sleep SECONDS & wait", least: 1},
		"ignoring":      {text: "trap '' TERM INT HUP; /bin/sleep SECONDS; /bin/sleep SECONDS", least: 1},
		"sessions":      {text: "setsid /bin/sleep SECONDS & setsid sh -c 'setsid /bin/sleep SECONDS & setsid /bin/sleep SECONDS & wait' & wait", least: 3},
		"orphan":        {text: "(setsid /bin/sleep SECONDS &) ; sleep 1000", least: 1},
		"no mark":       {text: "(env -i setsid /bin/sleep SECONDS &) ; sleep 1000", least: 1},
		"ended":         {text: "(setsid /bin/sleep SECONDS &)", least: 1},
		"daemon":        {actor: true, text: "daemon", least: 1},
		"starts others": {actor: true, text: "forks", least: 20},
	}
	n := 0
	for name, script := range scripts {
		for way, change := range ways() {
			n++
			seconds := strconv.Itoa(100000 + 100*os.Getpid()%800000 + n)
			t.Run(name+"/"+way, func(t *testing.T) {
				if name == "ended" && way == "pid namespace" {
					t.Skip("ends all by itself")
				}
				spec := shell(t, strings.ReplaceAll(script.text, "SECONDS", seconds))
				if script.actor {
					spec = actor(t, script.text, seconds)
				}
				change(t, &spec)
				w := start(t, spec)
				eventually(t, "it runs", func() bool { return len(sleepers(t, seconds)) >= script.least })
				if err := w.Kill(soon(t)); err != nil {
					t.Fatalf("kill: %v", err)
				}
				if left := sleepers(t, seconds); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		}
	}
}

func TestKillGivesUpInTime(t *testing.T) {
	w := start(t, shell(t, "sleep 1000"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	// The first round kills even so; whether it is seen in time is open.
	if err := w.Kill(ctx); err != nil && (!errors.Is(err, ErrSurvivors) || !errors.Is(err, context.Canceled)) {
		t.Errorf("kill: %v", err)
	}
	if exit := wait(t, w); exit.Signal != int(unix.SIGKILL) {
		t.Errorf("exit = %+v", exit)
	}
}

func TestOthersAreLeftAlone(t *testing.T) {
	other := start(t, func() Spec { s := shell(t, "sleep 1000"); s.ID += "-other"; s.NoCgroups = true; return s }())
	cmd := osexec.Command("sleep", "1000") // of this process, but of no workload
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	spec := shell(t, "sleep 1000")
	spec.NoCgroups = true
	if err := start(t, spec).Kill(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := other.Signal(0); err != nil {
		t.Errorf("another workload: %v", err)
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another child: %v", err)
	}
}

func TestReap(t *testing.T) {
	for way, change := range ways() {
		t.Run(way, func(t *testing.T) {
			spec := shell(t, "setsid sleep 1000 & (setsid sleep 1000 &) ; sleep 1000")
			change(t, &spec)
			w := start(t, spec)
			eventually(t, "it runs", func() bool {
				procs, err := w.processes(true)
				return err == nil && len(procs) >= 4
			})
			if err := Reap(soon(t), Spec{ID: spec.ID + "-another"}); err != nil {
				t.Fatal(err)
			}
			if err := w.Signal(0); err != nil {
				t.Fatalf("reaping another one: %v", err)
			}
			if err := Reap(soon(t), spec); err != nil {
				t.Fatal(err)
			}
			procs, err := w.processes(true)
			if err != nil || len(procs) > 0 {
				t.Errorf("left: %v, %v", slices.Collect(maps.Keys(procs)), err)
			}
			for _, dir := range w.groups.owned {
				if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("cgroup %s is left: %v", dir, err)
				}
			}
			if err := Reap(soon(t), spec); err != nil {
				t.Errorf("again: %v", err)
			}
		})
	}
	if err := Reap(soon(t), Spec{ID: "../x"}); err == nil {
		t.Error("a path was taken for an ID")
	}
}

func TestSignalIsNotForTheNextProcess(t *testing.T) {
	cmd := osexec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	h := host{proc: "/proc"}
	all, err := h.snapshot()
	if err != nil {
		t.Fatal(err)
	}
	p := all[cmd.Process.Pid]
	p.Starttime-- // the one that had the PID before
	if err := h.signalProcess(p, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the later process got the signal: %v", err)
	}
	p.PID = 1 << 22
	if err := h.signalProcess(p, unix.SIGKILL); err != nil {
		t.Errorf("a process that is gone: %v", err)
	}
}

func TestOrphansAreReaped(t *testing.T) {
	w := start(t, shell(t, "for i in 1 2 3 4 5; do (env -i setsid true &); done; sleep 1000"))
	eventually(t, "no zombie is left", func() bool {
		all, err := w.host.snapshot()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			if p.PPID == os.Getpid() && p.State == "Z" {
				return false
			}
		}
		return true
	})
}

func TestSignalAll(t *testing.T) {
	spec := shell(t, "trap 'echo got; exit 0' USR1; echo ready; while :; do sleep 0.01; done & trap '' USR1; wait")
	spec.Args[1] = "(trap 'echo got; exit 0' USR1; echo ready; while :; do sleep 0.01; done) & trap '' USR1; wait; wait"
	w := start(t, spec)
	contains(t, spec.Stdout, "ready")
	if err := w.SignalAll(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	wait(t, w)
	contains(t, spec.Stdout, "got")
	if err := w.SignalAll(unix.SIGUSR1); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
}

func TestKillEndsASuspension(t *testing.T) {
	w := start(t, shell(t, "sleep 1000"))
	// Somebody else keeps it from standing still.
	f, ok := w.groups.freezer()
	if !ok {
		t.Skip("needs a freezer")
	}
	w.freezing.Lock()
	frozen := make(chan error, 1)
	go func() {
		defer w.freezing.Unlock()
		ctx, stop := w.whileRunning(context.Background())
		defer stop()
		frozen <- waitFor(ctx, f.state, f.frozen)
	}()
	if err := w.Kill(soon(t)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-frozen:
		if !errors.Is(err, ErrNotRunning) {
			t.Errorf("suspend: %v", err)
		}
	case <-soon(t).Done():
		t.Error("it still waits")
	}
}

func TestFreeze(t *testing.T) {
	for way, change := range ways() {
		t.Run(way, func(t *testing.T) {
			spec := shell(t, "(while :; do echo x; sleep 0.001; done) & setsid sh -c 'while :; do echo y; sleep 0.001; done' & wait")
			change(t, &spec)
			w := start(t, spec)
			for range 3 {
				contains(t, spec.Stdout, "x")
				if err := w.Freeze(soon(t)); err != nil {
					t.Fatal(err)
				}
				before := read(t, spec.Stdout)
				if _, err := w.Exec(soon(t), ExecSpec{Command: []string{"true"}}); err == nil {
					t.Error("a command was run in a suspended workload")
				}
				if after := read(t, spec.Stdout); after != before || !w.Frozen() {
					t.Errorf("it goes on: %d bytes, then %d", len(before), len(after))
				}
				if err := w.Thaw(soon(t)); err != nil {
					t.Fatal(err)
				}
				eventually(t, "it goes on", func() bool { return len(read(t, spec.Stdout)) > len(before)+10 })
			}
			if err := w.Freeze(soon(t)); err != nil {
				t.Fatal(err)
			}
			if err := w.Kill(soon(t)); err != nil {
				t.Errorf("kill what is suspended: %v", err)
			}
			if err := w.Freeze(soon(t)); !errors.Is(err, ErrNotRunning) {
				t.Errorf("suspend what has ended: %v", err)
			}
		})
	}
}
