package exec

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	osexec "os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Main()
	if len(os.Args) > 1 && os.Args[1] == "play" {
		play(os.Args[2:])
	}
	os.Exit(m.Run())
}

// play is what the workloads of the tests do that a shell does not.
func play(args []string) {
	switch args[0] {
	case "daemon": // leave a process behind that nothing connects with its origin
		cmd := osexec.Command("/proc/self/exe", "play", "leave", args[1])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		cmd.Env = []string{}
		must(cmd.Run())
		select {}
	case "leave":
		cmd := osexec.Command("/bin/sleep", args[1])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		cmd.Env = []string{}
		must(cmd.Start())
	case "forks": // start processes as fast as they end
		for {
			cmd := osexec.Command("/bin/sleep", args[1])
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			_ = cmd.Start()
			time.Sleep(time.Millisecond)
		}
	case "hog":
		var kept [][]byte
		for {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = 1
			}
			kept = append(kept, b)
			if len(kept) > 4096 {
				os.Exit(3)
			}
		}
	case "supervise":
		var spec Spec
		must(json.Unmarshal([]byte(args[1]), &spec))
		_, err := Start(context.Background(), spec)
		must(err)
		fmt.Println("started")
		select {}
	case "spin":
		for {
		}
	case "open": // how each of the files can be opened
		for _, path := range args[1:] {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err == nil {
				f.Close()
				fmt.Println(path, "ok")
				continue
			}
			fmt.Println(path, plainError(err))
		}
	case "ignored": // signals that are ignored
		for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE} {
			fmt.Println(s, signal.Ignored(s))
		}
	}
	os.Exit(0)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// patience bounds what should happen soon, on a machine with other work.
const patience = 90 * time.Second

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// shell is a workload that runs a shell script, with its output in a file.
func shell(t *testing.T, script string) Spec {
	t.Helper()
	return Spec{
		ID:      strings.NewReplacer("/", "-", "#", "-", " ", "-", "_", "-", "+", "-", ",", "-", ":", "-").Replace(t.Name()) + "-" + strconv.Itoa(os.Getpid()),
		Command: "/bin/sh", Args: []string{"-c", script}, Dir: "/",
		Env:    []string{"PATH=" + os.Getenv("PATH")},
		Stdout: filepath.Join(t.TempDir(), "out"),
	}
}

// actor is a workload that runs this test binary.
func actor(t *testing.T, args ...string) Spec {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec := shell(t, "")
	spec.Command, spec.Args = self, append([]string{"play"}, args...)
	return spec
}

func start(t *testing.T, spec Spec) *Workload {
	t.Helper()
	w, err := Start(soon(t), spec)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return w
}

func wait(t *testing.T, w *Workload) Exit {
	t.Helper()
	exit, err := w.Wait(soon(t))
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return exit
}

// run starts a workload and returns what it wrote once it has ended well.
func run(t *testing.T, spec Spec) string {
	t.Helper()
	spec.Stderr = spec.Stdout
	exit := wait(t, start(t, spec))
	out := read(t, spec.Stdout)
	if exit != (Exit{}) {
		t.Fatalf("exit = %+v, output %q", exit, out)
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx := soon(t)
	for !holds() {
		if sleep(ctx, 2*time.Millisecond) != nil {
			t.Fatalf("never: %s", what)
		}
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// contains waits until a file contains a text, and returns all of it.
func contains(t *testing.T, path, text string) string {
	t.Helper()
	var data []byte
	eventually(t, path+" contains "+text, func() bool {
		data, _ = os.ReadFile(path)
		return strings.Contains(string(data), text)
	})
	return string(data)
}

// ignore makes this process ignore a signal for the rest of the test binary's
// life, as its parent could have done.
func ignore(s syscall.Signal) error {
	signal.Ignore(s)
	return nil
}

func pidText(pid int) string { return strconv.Itoa(pid) }
