package exec

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Kill kills the whole workload, suspended or not, with all that it ever
// started, and returns when nothing of it is left. If the context ends first,
// the error wraps ErrSurvivors. Kill may be called again.
func (w *Workload) Kill(ctx context.Context) error {
	err := w.killTree(ctx)
	if err != nil {
		return fmt.Errorf("kill workload %s: %w", w.ID(), err)
	}
	// Nothing is left to kill, so this does not wait for anything outside.
	<-w.ended
	w.mu.Lock()
	w.frozen = false
	w.mu.Unlock()
	return nil
}

func (w *Workload) killTree(ctx context.Context) error {
	return exterminate(ctx, w.host, w.groups, func() (map[int]process, error) { return w.processes(true) })
}

// Reap kills what is left of a workload whose supervisor has died, and removes
// its cgroups. Of the Spec, the ID and the fields on cgroups are used. It is
// no error if nothing is left. What is left is found by cgroups and by Mark.
func Reap(ctx context.Context, spec Spec) error {
	if !validID.MatchString(spec.ID) {
		return fmt.Errorf("reap workload: %q is no ID", spec.ID)
	}
	h, err := here()
	if err != nil {
		return fmt.Errorf("reap workload %s: %w", spec.ID, err)
	}
	groups := h.place(spec)
	t := &tree{host: h, id: spec.ID, groups: groups}
	if err := exterminate(ctx, h, groups, func() (map[int]process, error) { return t.find(true) }); err != nil {
		return fmt.Errorf("reap workload %s: %w", spec.ID, err)
	}
	if err := groups.remove(); err != nil {
		return fmt.Errorf("reap workload %s: %w", spec.ID, err)
	}
	return nil
}

// exterminate kills until nothing is found twice in a row: while processes are
// listed, one that ends may be missed together with the one that it has just
// started.
func exterminate(ctx context.Context, h host, groups *cgroups, find func() (map[int]process, error)) error {
	pause, none := time.Millisecond, 0
	for {
		groups.kill()
		left, err := find()
		if err != nil {
			return err
		}
		for _, pid := range slices.Sorted(maps.Keys(left)) {
			// What cannot be killed shows in the next round.
			_ = h.signalProcess(left[pid], unix.SIGKILL)
		}
		groups.release()
		h.reapOrphans()
		if none++; len(left) > 0 {
			none = 0
		}
		if none == 2 {
			return nil
		}
		if none > 0 {
			continue
		}
		if err := sleep(ctx, pause); err != nil {
			return fmt.Errorf("%w (%v): %w", ErrSurvivors, slices.Sorted(maps.Keys(left)), err)
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// release lets frozen processes run to their death: the v1 freezer holds even
// those that were killed, and a cgroup of Nomad's that stayed frozen would hold
// the next workload in it.
func (g *cgroups) release() {
	if g.unified != "" {
		_ = writeExisting(filepath.Join(g.unified, "cgroup.freeze"), "0")
	}
	if dir := g.v1["freezer"]; dir != "" {
		_ = writeExisting(filepath.Join(dir, "freezer.state"), "THAWED")
	}
}
