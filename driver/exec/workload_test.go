package exec

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestExit(t *testing.T) {
	tests := map[string]struct {
		script string
		want   Exit
	}{
		"success": {"exit 0", Exit{}},
		"code":    {"exit 42", Exit{Code: 42}},
		"highest": {"exit 255", Exit{Code: 255}},
		"signal":  {"kill -9 $$", Exit{Signal: 9}},
		"term":    {"kill -TERM $$", Exit{Signal: 15}},
		"core":    {"ulimit -c 0; kill -SEGV $$", Exit{Signal: 11}},
	}
	for name, test := range tests {
		for _, pidNamespace := range []bool{false, true} {
			t.Run(name+"/"+strconv.FormatBool(pidNamespace), func(t *testing.T) {
				if pidNamespace {
					needRoot(t)
				}
				spec := shell(t, test.script)
				spec.PIDNamespace = pidNamespace
				w := start(t, spec)
				for range 2 { // not lost by the first who asks
					if diff := cmp.Diff(test.want, wait(t, w)); diff != "" {
						t.Errorf("exit (-want +got):\n%s", diff)
					}
				}
				if err := w.Signal(syscall.SIGTERM); !errors.Is(err, ErrNotRunning) {
					t.Errorf("signal after the end: %v", err)
				}
			})
		}
	}
}

func TestSurroundings(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		script string
		change func(*Spec)
		want   string
	}{
		"directory":     {"pwd", func(s *Spec) { s.Dir = dir }, dir + "\n"},
		"environment":   {"echo $A $B $" + Mark, func(s *Spec) { s.Env = append(s.Env, "A=1", "B=2", "A=3") }, "3 2 ID\n"},
		"user name":     {"id -u; id -g", func(s *Spec) { s.User = "nobody" }, "65534\n65534\n"},
		"uid and gid":   {"id -u; id -g; id -G", func(s *Spec) { s.User = "4711:4712"; s.Groups = []string{"4713"} }, "4711\n4712\n4712 4713\n"},
		"own user":      {"id -u", func(*Spec) {}, "0\n"},
		"ulimit":        {"ulimit -Sn; ulimit -Hn; ulimit -Hc", func(s *Spec) { s.Ulimits = map[string]string{"nofile": "100:200", "core": "0"} }, "100\n200\n0\n"},
		"memlock":       {"ulimit -l", func(s *Spec) { s.Ulimits = map[string]string{"memlock": "unlimited"} }, "unlimited\n"},
		"oom score":     {"cat /proc/self/oom_score_adj", func(s *Spec) { s.Limits.OOMScoreAdj = 321 }, "321\n"},
		"cpu":           {"grep Cpus_allowed_list /proc/self/status", func(s *Spec) { s.CPUSet = "0" }, "Cpus_allowed_list:\t0\n"},
		"arguments":     {`echo "$0|$1"`, func(s *Spec) { s.Args = append(s.Args, "a b", "c\nd") }, "a b|c\nd\n"},
		"descriptors":   {"ls /proc/$$/fd", func(*Spec) {}, "0\n1\n2\n"},
		"input":         {"cat; echo end", func(*Spec) {}, "end\n"},
		"session":       {"ps -o sid= -p $$ | tr -d ' ' | grep -c \"^$$\\$\"", func(*Spec) {}, "1\n"},
		"pid namespace": {"ps ax | grep -v -e ps -e grep -e COMMAND | wc -l; test $$ -ne 1 && echo init", func(s *Spec) { s.PIDNamespace = true }, "ANY"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := shell(t, test.script)
			test.change(&spec)
			if name == "memlock" && !capable(unix.CAP_SYS_RESOURCE) {
				t.Skip("needs CAP_SYS_RESOURCE to raise a limit")
			}
			got := strings.ReplaceAll(run(t, spec), spec.ID, "ID")
			if test.want == "ANY" {
				// The init, the shell and perhaps a subshell: not the host's.
				n, _, _ := strings.Cut(got, "\n")
				if count, err := strconv.Atoi(strings.TrimSpace(n)); err != nil || count > 4 || !strings.HasSuffix(got, "init\n") {
					t.Errorf("sees %q", got)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSignalsHaveTheirDefaults(t *testing.T) {
	// As under nohup.
	for _, s := range []os.Signal{syscall.SIGHUP} {
		if err := ignore(s.(syscall.Signal)); err != nil {
			t.Fatal(err)
		}
	}
	got := run(t, actor(t, "ignored"))
	if want := "hangup false\ninterrupt false\nbroken pipe false\n"; got != want {
		t.Errorf("ignored signals: got %q, want %q", got, want)
	}
}

func TestNamespaces(t *testing.T) {
	needRoot(t)
	source := t.TempDir()
	target := t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "file"), []byte("there"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := shell(t, "cat "+target+"/file; touch "+target+"/new 2>/dev/null || echo ' read-only'; readlink /proc/self/ns/ipc")
	spec.Mounts = []Mount{{HostPath: source, TaskPath: target, ReadOnly: true}}
	spec.IPCNamespace = true
	got := run(t, spec)
	if !strings.HasPrefix(got, "there read-only\n") {
		t.Errorf("mount: %q", got)
	}
	if own, err := os.Readlink("/proc/self/ns/ipc"); err != nil || strings.Contains(got, own) {
		t.Errorf("IPC namespace is the host's: %q, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(target, "file")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mount shows on the host: %v", err)
	}
}

func TestNetworkNamespace(t *testing.T) {
	needRoot(t)
	// A workload of its own holds the namespace.
	spec := shell(t, "readlink /proc/self/ns/net; ls /sys/class/net >/dev/null; sleep 1000")
	spec.Command, spec.Args = "unshare", []string{"-n", "/bin/sh", "-c", spec.Args[1]}
	holder := start(t, spec)
	want := contains(t, spec.Stdout, "net:")

	spec = shell(t, "readlink /proc/self/ns/net")
	spec.ID += "-2"
	spec.NetworkNamespace = "/proc/" + strconv.Itoa(holder.PID()) + "/ns/net"
	for _, pids := range []bool{false, true} {
		spec.PIDNamespace = pids
		spec.Stdout = filepath.Join(t.TempDir(), "out")
		if got := run(t, spec); got != want {
			t.Errorf("with PIDs of its own %v: namespace = %q, want %q", pids, got, want)
		}
	}
	spec.NetworkNamespace = "/etc/passwd"
	if w, err := Start(soon(t), spec); err == nil {
		_ = w.Close(soon(t))
		t.Error("a file was taken for a network namespace")
	}
}

func TestStartAgainstTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w, err := Start(ctx, shell(t, "sleep 1000"))
	if !errors.Is(err, context.Canceled) {
		if err == nil {
			_ = w.Close(soon(t))
		}
		t.Errorf("start: %v", err)
	}
}

func TestInitLeavesSignalsTheirMeaning(t *testing.T) {
	needRoot(t)
	spec := shell(t, "")
	spec.Command, spec.Args, spec.PIDNamespace = "/bin/sleep", []string{"1000"}, true
	w := start(t, spec)
	if err := w.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, w); exit.Signal != int(unix.SIGTERM) {
		t.Errorf("exit = %+v, want signal 15: as PID 1 it would have ignored the signal", exit)
	}
}

func TestNoTwoWorkloadsInOneCgroup(t *testing.T) {
	w := start(t, shell(t, "sleep 1000"))
	if len(w.groups.holders()) == 0 {
		t.Skip("needs cgroups")
	}
	if second, err := Start(soon(t), w.plan.spec); !errors.Is(err, ErrInUse) {
		if err == nil {
			_ = second.Close(soon(t))
		}
		t.Errorf("second start: %v", err)
	}
	if err := w.Signal(0); err != nil {
		t.Errorf("the first one: %v", err)
	}
}

func TestFaultsOfTheStart(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("not a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(dir, "locked")
	if err := os.Mkdir(locked, 0o700); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		change    func(*Spec)
		wantField string
	}{
		"not a program":       {func(s *Spec) { s.Command = script }, "command"},
		"the user may not":    {func(s *Spec) { s.Dir, s.User = locked, "nobody" }, "dir"},
		"not a namespace":     {func(s *Spec) { s.NetworkNamespace = script }, "network_namespace"},
		"not a namespace, in": {func(s *Spec) { s.NetworkNamespace, s.PIDNamespace = script, true }, "network_namespace"},
		"in PID namespace":    {func(s *Spec) { s.Command, s.PIDNamespace = script, true }, "command"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := shell(t, "true")
			test.change(&spec)
			w, err := Start(soon(t), spec)
			if err == nil {
				_ = w.Close(soon(t))
				t.Fatal("it started")
			}
			var fault *SpecError
			if !errors.As(err, &fault) || fault.Faults[0].Field != test.wantField {
				t.Errorf("start: %v, want a fault of %s", err, test.wantField)
			}
		})
	}
}

func TestInitIsNotEndedByTheWorkload(t *testing.T) {
	needRoot(t)
	spec := shell(t, "for s in TERM INT HUP USR1 QUIT PIPE; do kill -$s 1; done; sleep 0.05; echo there")
	spec.PIDNamespace = true
	if got := run(t, spec); got != "there\n" {
		t.Errorf("output = %q", got)
	}
}
