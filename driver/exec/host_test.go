package exec

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// hierarchies are this host's cgroups, in part: as a host has them that has no
// others.
func hierarchies(t *testing.T) map[string]host {
	t.Helper()
	all, err := here()
	if err != nil {
		t.Fatal(err)
	}
	only := map[string]host{}
	if writable(all.unified) {
		h := all
		h.v1 = map[string]string{}
		only["cgroup2 alone"] = h
	}
	if writable(all.v1["freezer"]) {
		h := all
		h.unified = ""
		only["v1 alone"] = h
		h.v1 = map[string]string{"freezer": all.v1["freezer"]}
		only["v1 freezer alone"] = h
	}
	if len(only) == 0 {
		t.Skip("needs cgroups")
	}
	return only
}

func TestHierarchies(t *testing.T) {
	for name, h := range hierarchies(t) {
		t.Run(name, func(t *testing.T) {
			spec := shell(t, "(while :; do echo x; sleep 0.001; done) & (env -i setsid sleep 1000 &); wait")
			w, err := h.start(soon(t), spec)
			if err != nil {
				t.Fatal(err)
			}
			contains(t, spec.Stdout, "x")
			if err := w.Freeze(soon(t)); err != nil {
				t.Fatal(err)
			}
			before := len(read(t, spec.Stdout))
			if after := len(read(t, spec.Stdout)); after != before {
				t.Errorf("it goes on: %d bytes, then %d", before, after)
			}
			if err := w.Thaw(soon(t)); err != nil {
				t.Fatal(err)
			}
			if out, _, exit := runIn(t, w, ExecSpec{Command: script("cat /proc/self/cgroup")}); exit != (Exit{}) || !strings.Contains(out, spec.ID) {
				t.Errorf("run in it: %+v, %s", exit, out)
			}
			if u, err := w.Usage(); err != nil || len(u.Processes) < 3 || u.Total.CPUTime == nil {
				t.Errorf("usage: %+v, %v", u, err)
			}
			if err := w.Freeze(soon(t)); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(soon(t)); err != nil {
				t.Error(err)
			}
			if exit := wait(t, w); exit.Signal != int(unix.SIGKILL) {
				t.Errorf("exit = %+v", exit)
			}
			for _, dir := range w.groups.owned {
				if exists(dir) {
					t.Errorf("cgroup %s is left", dir)
				}
			}
		})
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	const scope = "nomad.slice/a.t.scope"
	for _, broken := range []string{"memory.max", "cgroup.procs"} {
		t.Run(broken, func(t *testing.T) {
			h := unifiedHost(t, "memory", scope)
			spec := shell(t, "sleep 1000")
			spec.Limits.MemoryBytes = 1 << 30
			spec.CgroupParent = filepath.Join(h.unified, scope)
			// No write to it can succeed.
			file := filepath.Join(spec.CgroupParent, broken)
			if err := os.RemoveAll(file); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(file, 0o755); err != nil {
				t.Fatal(err)
			}
			before := descriptors(t)
			w, err := h.start(soon(t), spec)
			if err == nil {
				_ = w.Close(soon(t))
				t.Fatal("it started")
			}
			var path *os.PathError
			if !errors.As(err, &path) || path.Path != file {
				t.Errorf("start: %v, want an error of %s", err, file)
			}
			found := &tree{host: h, id: spec.ID, groups: h.place(Spec{NoCgroups: true})}
			if left, err := found.find(true); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			if after := descriptors(t); after > before {
				t.Errorf("%d descriptors, before %d", after, before)
			}
		})
	}
}

func TestNomadsOwnCgroups(t *testing.T) {
	h, err := here()
	if err != nil {
		t.Fatal(err)
	}
	spec := shell(t, "exec sleep 1000")
	spec.Limits.MemoryBytes = 256 << 20
	spec.CgroupScope = spec.ID
	made := map[string]string{}
	for _, c := range []string{"freezer", "cpu", "memory"} {
		if !writable(h.v1[c]) {
			t.Skipf("needs the v1 controller %s", c)
		}
		made[c] = filepath.Join(h.v1[c], "nomad", spec.CgroupScope)
		if err := os.MkdirAll(made[c], 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := removeCgroup(made[c]); err != nil {
				t.Error(err)
			}
		})
	}
	w := start(t, spec)
	for c, dir := range made {
		if got := strings.TrimSpace(read(t, filepath.Join(dir, "cgroup.procs"))); got != pidText(w.PID()) {
			t.Errorf("%s: processes %q, want %d", c, got, w.PID())
		}
	}
	if got := strings.TrimSpace(read(t, filepath.Join(made["memory"], "memory.limit_in_bytes"))); got != "268435456" {
		t.Errorf("memory limit = %s", got)
	}
	if err := w.Close(soon(t)); err != nil {
		t.Error(err)
	}
	for c, dir := range made {
		if !exists(dir) {
			t.Errorf("%s: Nomad's cgroup was removed", c)
		}
	}
}
