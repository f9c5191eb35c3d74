package driver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// helper is a task beside a trainer, which does not fail.
func helper(name, role string) *api.Task {
	return task(name, strings.ReplaceAll(trainer, "fail-$RANK", "fail-$NOMAD_TASK_NAME")).SetConfig("member", role)
}

// A group with several tasks: one counts, one starts with the gang, one starts
// at once, and one is of another driver. Two such groups are one gang.
func TestManyTasks(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		sidecar := api.NewTask("sidecar", "raw_exec").SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", trainer})
		sidecar.Resources = &api.Resources{CPU: new(20), MemoryMB: new(16)}
		w := group("w", 2, gpus(task("train", trainer), 1), helper("metrics", "follow"), helper("logs", "none"), sidecar)
		job := r.submit(r.job(w, late(group("ps", 1, gpus(task("serve", trainer), 1)))))
		d := r.await("what waits for nobody runs", func(d diary) bool {
			return len(d.by("logs").with("start")) == 2 && len(d.by("sidecar").with("start")) == 2
		})
		for _, a := range r.allocs(job) {
			if strings.HasPrefix(a.TaskGroup, "w") {
				r.told(a.ID, "train", "of 3 joined")
			}
		}
		if d = r.read(); len(d.by("train"))+len(d.by("metrics"))+len(d.by("serve")) != 0 {
			t.Fatalf("something started before its gang:\n%s", d)
		}
		r.touch("go")
		d = r.await("the gang runs", func(d diary) bool {
			return len(d.by("train").with("start")) == 2 && len(d.by("metrics").with("start")) == 2 && len(d.by("serve").with("start")) == 1
		})
		var ranks []int
		starts := d.where(func(e entry) bool {
			return e.word == "start" && (e.task == "train" || e.task == "metrics" || e.task == "serve")
		})
		for _, e := range starts {
			if e.task != "metrics" {
				ranks = append(ranks, e.number("rank"))
			}
			if e.number("world") != 3 || e.values["epoch"] != starts[0].values["epoch"] {
				t.Errorf("%s has started with %v", e.task, e.values)
			}
			if own := d.of(e.alloc).with("start").where(func(o entry) bool { return o.task != "metrics" && o.values["rank"] != "" }); e.task == "metrics" && own[0].values["rank"] != e.values["rank"] {
				t.Errorf("metrics follows rank %s as %s", own[0].values["rank"], e.values["rank"])
			}
		}
		slices.Sort(ranks)
		if !slices.Equal(ranks, []int{0, 1, 2}) {
			t.Errorf("the ranks are %v", ranks)
		}
		if spread := starts[len(starts)-1].at.Sub(starts[0].at); spread > abreast {
			t.Errorf("the start took %v", spread)
		}
		for _, e := range append(d.by("logs").with("start"), d.by("sidecar").with("start")...) {
			if e.values["rank"] != "" {
				t.Errorf("%s belongs to no gang, and has rank %s", e.task, e.values["rank"])
			}
		}
		// A member that fails takes back those who count. The others are Nomad's.
		r.touch("fail-1")
		d = r.await("all who count have started again", func(d diary) bool {
			n := 0
			for _, e := range d.with("start") {
				if e.task == "train" || e.task == "serve" {
					n++
				}
			}
			return n == 6
		})
		if n := len(d.by("logs").with("start")); n != 2 {
			t.Errorf("%d starts of a task that is none of the gang's, want 2", n)
		}
	})
}

// With caravan_gang = "group" each group starts by itself.
func TestGangOfAGroup(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		j := r.job(group("a", 2, gpus(task("train", trainer), 1)), late(group("b", 2, gpus(task("other", trainer), 1))))
		j.Meta["caravan_gang"] = "group"
		r.submit(j)
		d := r.await("one group runs", func(d diary) bool { return len(d.by("train").with("start")) == 2 })
		if len(d.by("other")) != 0 {
			t.Errorf("the late group runs:\n%s", d)
		}
		r.touch("go")
		d = r.await("both run", func(d diary) bool { return len(d.by("other").with("start")) == 2 })
		r.together(d.by("train"), 2)
		r.together(d.by("other"), 2)
		// A failure is its own group's.
		old := d.by("train").ids()
		r.touch("fail-0") // one of them finds it
		d = r.await("one group has started again", func(d diary) bool { return len(d.with("start")) >= 6 })
		d = r.goOn(old...)
		if a, b := len(d.by("train").with("start")), len(d.by("other").with("start")); a+b != 6 || a != 2 && b != 2 {
			t.Errorf("%d and %d starts, want 2 and 4:\n%s", a, b, d)
		}
	})
}

// A disk that is full when checkpoints are written: none of them counts, and the
// stop goes on without.
func TestFullDisk(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		disk := smallDisk(t)
		k := gpus(task("train", `
trap 'head -c 200000 /dev/zero > "$DISK/.new" && mv "$DISK/.new" "$DISK/step-1" || note full' USR1
`+trainer), 1)
		k.Env = map[string]string{"DISK": disk}
		k.KillTimeout = new(6 * time.Second)
		k.SetConfig("checkpoint", []map[string]any{{"signal": "SIGUSR1", "grace": "2s", "paths": []string{disk + "/step-*"}}})
		j := r.job(once(group("w", 2, k)))
		ids := r.start(j, 2).ids()
		r.goOn(ids...)
		if _, _, err := r.gate.Jobs().Deregister(*j.ID, false, nil); err != nil {
			t.Fatal(err)
		}
		for _, a := range ids {
			r.told(a, "train", "there is no new checkpoint")
			r.status(a, api.AllocClientStatusComplete)
		}
		if d := r.read(); len(d.with("full")) != 2 || len(d.with("end")) != 2 {
			t.Errorf("the disk was not full, or the members did not end by SIGTERM:\n%s", d)
		}
	})
}

// The disk with the driver's own state is full: what runs goes on, tells how it
// ends, and what cannot start says why.
func TestFullStateDisk(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		ids := r.start(r.job(once(group("w", 1, gpus(task("train", trainer), 8)))), 1).ids()
		node := r.alloc(ids[0]).NodeName
		r.fill(node)
		r.goOn(ids...)
		r.touch("fail-0")
		a := r.status(ids[0], api.AllocClientStatusFailed)
		r.told(a.ID, "train", "7")
		// What it had there is gone, so that there is room again.
		r.until("its state is gone", func() (bool, any) {
			left, err := os.ReadDir(r.stateDir(node))
			return err == nil && len(left) == 1, left
		})
		r.fill(node)
		// Another one on the same node.
		next := newRig(t, r.stage)
		next.suffix = "next"
		j := next.job(once(group("w", 1, gpus(task("train", trainer), 8))))
		j.Constraints = []*api.Constraint{{LTarget: "${node.unique.name}", Operand: "=", RTarget: node}}
		id := next.submit(j)
		next.until("it is placed", func() (bool, any) { return len(next.allocs(id)) == 1, next.allocs(id) })
		alloc := next.allocs(id)[0].ID
		next.told(alloc, "train", "no space left")
	})
}

// fill fills the disk with a node's states, which is small.
func (r *rig) fill(node string) {
	r.t.Helper()
	if !r.small {
		r.t.Skip("the states of tasks have no disk of their own here: that takes the right to mount")
	}
	path := filepath.Join(r.stateDir(node), "filler")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	r.t.Cleanup(func() { os.Remove(path) })
	for {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return
		}
	}
}
