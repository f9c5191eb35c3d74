package driver

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// facilities are the host's; without what a test needs it is skipped.
func facilities(t *testing.T, controllers ...string) exec.Facilities {
	t.Helper()
	f, err := exec.Probe()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range controllers {
		if !slices.Contains(f.Controllers, c) {
			t.Skipf("needs the cgroup controller %s; there are %v", c, f.Controllers)
		}
	}
	return f
}

// limited starts a shell script as a task with limits.
func (r *rig) limited(name, script, more string, change func(*driver.TaskConfig)) driver.TaskConfig {
	r.t.Helper()
	t := r.task(name, fmt.Sprintf("command = \"/bin/sh\"\nargs = [\"-c\", %q]\n%s", script, more))
	change(&t)
	if _, _, err := r.Start(r.t.Context(), t); err != nil {
		r.t.Fatal(err)
	}
	return t
}

// TestMemoryLimit: a task over its limit is killed, and Nomad is told why; the
// limit is memory_max where there is one.
func TestMemoryLimit(t *testing.T) {
	facilities(t, "memory")
	r := newRig(t)
	const greedy = "exec tail /dev/zero" // which keeps all of a line without an end
	tests := map[string]struct {
		script string
		limit  func(*driver.Resources)
		want   driver.Exit
	}{
		"over memory": {greedy, func(l *driver.Resources) { l.MemoryMiB, l.Linux.MemoryLimitBytes = 32, 32<<20 }, driver.Exit{Signal: 9, OOMKilled: true}},
		"over memory_max": {greedy, func(l *driver.Resources) {
			l.MemoryMiB, l.MemoryMaxMiB, l.Linux.MemoryLimitBytes = 16, 48, 48<<20
		}, driver.Exit{Signal: 9, OOMKilled: true}},
		"over memory, below memory_max": {"head -c 40m /dev/zero | tail -c 40m | wc -c", func(l *driver.Resources) {
			l.MemoryMiB, l.MemoryMaxMiB, l.Linux.MemoryLimitBytes = 16, 256, 256<<20
		}, driver.Exit{}},
		"memory_max without an end": {"head -c 40m /dev/zero | tail -c 40m | wc -c", func(l *driver.Resources) {
			l.MemoryMiB, l.MemoryMaxMiB, l.Linux.MemoryLimitBytes = 16, -1, 16<<20
		}, driver.Exit{}},
		"a child over it": {"tail /dev/zero; echo \"ended with $?\"; exit 4", func(l *driver.Resources) { l.Linux.MemoryLimitBytes = 32 << 20 }, driver.Exit{Code: 4, OOMKilled: true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			task := r.limited(strings.NewReplacer(" ", "-", ",", "").Replace(name), test.script, "", func(t *driver.TaskConfig) { test.limit(&t.Resources) })
			if e := r.exit(task.ID); e != test.want {
				data, err := os.ReadFile(task.StderrPath)
				t.Errorf("exit = %+v, want %+v; %s %v", e, test.want, data, err)
			}
		})
	}
}

// TestCPUQuota: what a task is held back shows in its usage.
func TestCPUQuota(t *testing.T) {
	facilities(t, "cpu")
	r := newRig(t)
	task := r.limited("a", "while :; do :; done", "", func(t *driver.TaskConfig) { t.Resources.Linux.CPUQuota = 5000 })
	enough := errors.New("enough")
	var last driver.Usage
	defer time.AfterFunc(patience, func() { r.sweep(task.ID) }).Stop() // which ends the measuring
	err := r.Stats(t.Context(), task.ID, 20*time.Millisecond, func(u driver.Usage) error {
		last = u
		if n := u.Total.ThrottledPeriods; n == nil || *n < 3 || u.Total.ThrottledNanos == nil || *u.Total.ThrottledNanos == 0 {
			return nil
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Errorf("it is not held back: %+v, %v", last.Total, err)
	}
}

// TestDeviceIsolation: a task opens the device nodes that were reserved for it
// and those that the operator allows to all, and no others.
func TestDeviceIsolation(t *testing.T) {
	if f := facilities(t); f.Devices == "" {
		t.Skip("the host cannot keep devices from tasks")
	}
	const node = "/dev/kmsg" // everywhere, and not among those that all tasks have
	if err := unix.Access(node, unix.R_OK); err != nil {
		t.Skipf("cannot be read here: %s: %v", node, err)
	}
	r := newRig(t)
	const script = "if (exec 3<" + node + "); then echo opened; else echo refused; fi; exec 4</dev/null && echo null"
	tests := map[string]struct {
		hcl    string
		change func(*driver.TaskConfig)
		want   string
	}{
		"not reserved": {want: "refused\nnull\n"},
		"reserved": {change: func(t *driver.TaskConfig) {
			t.Devices = []driver.DeviceNode{{HostPath: node, TaskPath: node, Permissions: "r"}}
		}, want: "opened\nnull\n"},
		"reserved for writing": {change: func(t *driver.TaskConfig) {
			t.Devices = []driver.DeviceNode{{HostPath: node, TaskPath: node, Permissions: "w"}}
		}, want: "refused\nnull\n"},
		"without isolation": {hcl: "device_isolation = false", want: "opened\nnull\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			task := r.limited(strings.NewReplacer(" ", "-", ",", "").Replace(name), script, test.hcl, func(t *driver.TaskConfig) {
				if test.change != nil {
					test.change(t)
				}
			})
			r.exit(task.ID)
			if data, err := os.ReadFile(task.StdoutPath); err != nil || string(data) != test.want {
				t.Errorf("output = %q, %v, want %q", data, err, test.want)
			}
		})
	}
}
