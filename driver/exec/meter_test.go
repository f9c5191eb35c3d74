package exec

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMeter measures from outside what package exec itself can measure from
// within: the same processes, and the same cgroups.
func TestMeter(t *testing.T) {
	for way, change := range ways() {
		t.Run(way, func(t *testing.T) {
			spec := actor(t, "spin")
			change(t, &spec)
			w := start(t, spec)
			m, err := NewMeter(w.PID())
			if err != nil {
				t.Fatal(err)
			}
			var u Usage
			eventually(t, "it uses CPU", func() bool {
				u, err = m.Usage()
				return err == nil && u.Total.CPUPercent != nil && *u.Total.CPUPercent > 1 && u.Total.RSSBytes != nil && *u.Total.RSSBytes > 0
			})
			if p, ok := u.Processes[w.PID()]; !ok || p.RSSBytes == nil || *p.RSSBytes == 0 {
				t.Errorf("the process: %+v in %v", p, u.Processes)
			}
			if _, ok := u.Processes[os.Getpid()]; ok {
				t.Errorf("this process is among %v", u.Processes)
			}
			own, err := w.Usage()
			if err != nil || (own.Total.UsageBytes == nil) != (u.Total.UsageBytes == nil) {
				t.Errorf("from within %+v, from outside %+v; %v", own.Total, u.Total, err)
			}
			if err := w.Kill(soon(t)); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Usage(); !errors.Is(err, ErrNotRunning) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
	if _, err := NewMeter(1 << 30); !errors.Is(err, ErrNotRunning) {
		t.Errorf("of no process: %v", err)
	}
}

// TestMeterFollowsTheNamespace: what has left the first process's descent is
// measured all the same.
func TestMeterFollowsTheNamespace(t *testing.T) {
	spec := shell(t, "(setsid sleep 1000 &) ; exec sleep 1001")
	spec.PIDNamespace = true
	w := start(t, spec)
	m, err := NewMeter(w.PID())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are measured", func() bool {
		u, err := m.Usage()
		return err == nil && len(u.Processes) >= 2 && u.Processes[w.PID()].RSSBytes != nil
	})
}

// TestCgroupsOfAnother are found where they hold nothing of ours.
func TestCgroupsOfAnother(t *testing.T) {
	const ours = "4:memory:/system.slice/nomad.service\n2:cpu,cpuacct:/\n0::/system.slice/nomad.service\n"
	tests := map[string]struct {
		theirs  string
		unified string
		v1      map[string]string
	}{
		"its own":          {theirs: "4:memory:/pod/a\n2:cpu,cpuacct:/pod/a\n0::/pod/a\n", unified: "pod/a", v1: map[string]string{"memory": "memory/pod/a", "cpu": "cpu/pod/a"}},
		"ours":             {theirs: ours},
		"the root's":       {theirs: "4:memory:/\n0::/\n"},
		"out of our sight": {theirs: "4:memory:/../pod\n0::/../../pod\n"},
		"gone":             {theirs: "4:memory:/pod/b\n0::/pod/b\n"},
		"nonsense":         {theirs: "4:memory\n\n:::::\n"},
		"unknown":          {theirs: "9:name=systemd:/pod/a\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			h := host{proc: filepath.Join(dir, "proc"), unified: filepath.Join(dir, "unified"), v1: map[string]string{
				"memory": filepath.Join(dir, "memory"), "cpu": filepath.Join(dir, "cpu"),
			}}
			for _, d := range []string{"unified/pod/a", "memory/pod/a", "cpu/pod/a", "proc/4711", "proc/" + strconv.Itoa(os.Getpid())} {
				if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for pid, text := range map[int]string{4711: test.theirs, os.Getpid(): ours} {
				if err := os.WriteFile(filepath.Join(h.proc, strconv.Itoa(pid), "cgroup"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			g := h.cgroupsOf(4711)
			got := maps.Clone(g.v1)
			if g.unified != "" {
				got[""] = g.unified
			}
			want := map[string]string{}
			for c, d := range test.v1 {
				want[c] = filepath.Join(dir, d)
			}
			if test.unified != "" {
				want[""] = filepath.Join(h.unified, test.unified)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("cgroups (-want +got):\n%s", diff)
			}
		})
	}
}
