package terraform_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
)

// asPlugin tells the test's binary to be a process that applies a directory, until
// it is killed: DIR and the names of nodes, with commas between.
const asPlugin = "CARAVAN_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if what := os.Getenv(asPlugin); what != "" {
		applyAsPlugin(what)
		return
	}
	os.Exit(m.Run())
}

func applyAsPlugin(what string) {
	dir, names, _ := strings.Cut(what, ",")
	d, err := terraform.Open(terraform.Config{Dir: dir, Init: true}, hclog.NewNullLogger())
	if err != nil {
		panic(err)
	}
	h, err := d.Hold(context.Background())
	if err != nil {
		panic(err)
	}
	_, err = h.Apply(context.Background(), want(strings.Split(names, ",")...))
	fmt.Println("ended", err)
}

// startPlugin starts a process that applies nodes.
func startPlugin(t *testing.T, dir string, names ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asPlugin+"="+strings.Join(append([]string{dir}, names...), ","))
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// steppingNodes are nodes that are made in steps: each writes that it has begun, and
// waits until the test lets it go on.
func steppingNodes(dir string) string {
	return nodesVariable + `
resource "terraform_data" "node" {
  for_each = var.nodes
  provisioner "local-exec" {
    command = "echo begun >> ` + dir + `/${each.key}.log; until [ -e ` + dir + `/go ]; do sleep 0.02; done"
  }
}`
}

func begun(dir string, names ...string) func() bool {
	return func() bool {
		for _, n := range names {
			if _, err := os.Stat(filepath.Join(dir, n+".log")); err != nil {
				return false
			}
		}
		return true
	}
}

// processesOf are those whose command line names a directory.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range all {
		if raw, err := os.ReadFile(f); err == nil && bytes.Contains(raw, []byte(dir)) && !strings.Contains(f, "/"+strconv.Itoa(os.Getpid())+"/") {
			out = append(out, string(bytes.ReplaceAll(raw, []byte{0}, []byte(" "))))
		}
	}
	return out
}

// A process that is killed in the middle of an apply is found out, and the next one
// makes the nodes what is wanted then, whatever that is.
func TestKilledDuringApply(t *testing.T) {
	for name, then := range map[string][]string{"the same": {"a", "b"}, "none any more": nil, "others": {"c"}} {
		// The apply itself comes to its end, or is killed too.
		ends := then != nil
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := workDir(t, "")
			rewriteMain(t, dir, steppingNodes(dir))
			plugin := startPlugin(t, dir, "a", "b")
			await(t, "nodes to be begun", begun(dir, "a", "b"))
			d := open(t, terraform.Config{Dir: dir})
			if _, err := d.Hold(t.Context()); !errors.Is(err, terraform.ErrBusy) || !strings.Contains(err.Error(), fmt.Sprint("process ", plugin.Process.Pid)) {
				t.Errorf("while it applies: %v, want that process %d does", err, plugin.Process.Pid)
			}
			if err := plugin.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = plugin.Wait() // it was killed
			// The apply goes on, and nobody takes it over as long as it does.
			if j, err := d.Interrupted(); j != nil || err != nil {
				t.Errorf("while the apply goes on there is an interrupted one: %+v (%v)", j, err)
			}
			if _, err := d.Hold(t.Context()); !errors.Is(err, terraform.ErrBusy) || !strings.Contains(err.Error(), "still runs") {
				t.Errorf("holding it: %v, want that an apply still runs", err)
			}
			if ends {
				if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				await(t, "the end of the apply", func() bool { return len(processesOf(t, dir)) == 0 })
			} else if err := syscall.Kill(terraformIn(t, dir), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			var h *terraform.Held
			var err error
			await(t, "its end to be seen", func() bool { // a killed process is there a moment longer
				h, err = d.Hold(t.Context())
				return !errors.Is(err, terraform.ErrBusy)
			})
			if err != nil {
				t.Fatal(err)
			}
			j := h.Interrupted()
			if j == nil || j.Phase != "apply" || len(j.To) != 2 || j.Owner.PID != plugin.Process.Pid {
				t.Errorf("interrupted run is %+v, want that of process %d for a and b", j, plugin.Process.Pid)
			}
			await(t, "the end of all it has started", func() bool { return len(processesOf(t, dir)) == 0 })
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			_, err = h.Apply(t.Context(), want(then...))
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Release(); err != nil {
				t.Fatal(err)
			}
			wantNodes(t, d, then...)
		})
	}
}

// Terraform itself is killed: what it has done is read from the state, and the next
// apply takes it away.
func TestTerraformKilledDuringApply(t *testing.T) {
	t.Parallel()
	dir := workDir(t, "")
	rewriteMain(t, dir, steppingNodes(dir))
	d := open(t, terraform.Config{Dir: dir})
	done := make(chan error, 1)
	h, err := d.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := h.Apply(t.Context(), want("a"))
		done <- err
	}()
	await(t, "the node to be begun", begun(dir, "a"))
	if pid := terraformIn(t, dir); pid == 0 {
		t.Fatal("no terraform runs in the directory")
	} else if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, terraform.ErrApply) {
		t.Errorf("error is %v, want a failed apply", err)
	}
	if _, err := h.Apply(t.Context(), want()); err != nil {
		t.Fatal(err)
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	wantNodes(t, d)
}

// terraformIn is the PID of the apply that runs in a directory.
func terraformIn(t *testing.T, dir string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		raw, err := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		if at, _ := os.Readlink(f); err != nil || at != dir || !bytes.Contains(raw, []byte("\x00apply\x00")) || bytes.HasPrefix(raw, []byte("/bin/sh")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		return pid
	}
	return 0
}

func TestADirectoryThatIsNotInitialised(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	dir := workDir(t, "")
	rewriteMain(t, dir, httpNodes(dir, b))
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	d := open(t, terraform.Config{Dir: dir})
	if _, err := apply(t, d, "a"); !errors.Is(err, terraform.ErrUninitialised) || !strings.Contains(err.Error(), "Run terraform init in "+dir) {
		t.Errorf("error is %v, want that it is not initialised, and what to do", err)
	}
	may := open(t, terraform.Config{Dir: dir, Init: true})
	mustApply(t, may, "a")
	wantNodes(t, d, "a")
}

// A file that a crash has cut short, or that somebody has edited, stops nothing: the
// state decides.
func TestRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	d := open(t, terraform.Config{Dir: workDir(t, plainNodes)})
	mustApply(t, d, "a")
	for _, name := range []string{"nodes.journal.json", "nodes.tfvars.json"} {
		path := filepath.Join(d.Config().Dir, ".caravan", "default", name)
		if err := os.WriteFile(path, []byte(`{"mark": `), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(d.Config().Dir, ".caravan", "lock"), []byte(`{"pid": 1, "host": "gone"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	mustApply(t, d, "a", "b")
	wantNodes(t, d, "a", "b")
}

// realTerraform is the program's path.
func realTerraform(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"terraform", "tofu"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no terraform and no tofu on the PATH")
	return ""
}

// script is a program that stands before Terraform.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "terraform")
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// A machine that the cloud has taken away is in the state until somebody looks: it is
// taken out there when it is to go, though there is nothing to destroy.
func TestNodesThatHaveVanished(t *testing.T) {
	t.Parallel()
	dir := workDir(t, plainNodes)
	mustApply(t, open(t, terraform.Config{Dir: dir}), "a")
	// What a plan finds when it refreshes, and what refresh keeps: no machine.
	program := script(t, fmt.Sprintf(`#!/bin/sh
case "$1" in
plan) mv terraform.tfstate kept && %[1]s "$@"; code=$?; mv kept terraform.tfstate; exit $code ;;
refresh) rm terraform.tfstate ;;
esac
exec %[1]s "$@"
`, realTerraform(t)))
	d := open(t, terraform.Config{Dir: dir, Binary: program})
	c := mustApply(t, d)
	if len(c.Gone) != 1 || len(c.After) != 0 {
		t.Errorf("change is %+v, want a gone", c)
	}
	wantNodes(t, d)
}
