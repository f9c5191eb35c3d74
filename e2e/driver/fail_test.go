package driver

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// ids are the allocations that started, in the order of their ranks.
func (d diary) ids() []string {
	var out []string
	for rank := 0; ; rank++ {
		e := d.rank(rank)
		if e.alloc == "" {
			return out
		}
		out = append(out, e.alloc)
	}
}

// Two members fail at the same moment: the gang starts again as a whole, once,
// in the same allocations.
func TestTwoFailAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		d := r.start(r.job(group("w", 3, gpus(task("train", trainer), 1))), 3)
		first := d.ids()
		r.touch("hold")
		r.touch("fail-1")
		r.touch("fail-2")
		r.await("both are about to fail", func(d diary) bool { return len(d.with("armed")) == 2 })
		r.remove("hold")
		d = r.await("all have started again", func(d diary) bool { return len(d.with("start")) >= 6 })
		d = r.goOn(first...)
		if n := r.together(d, 3); n != 2 || len(d.with("start")) != 6 {
			t.Errorf("%d starts in %d epochs:\n%s", len(d.with("start")), n, d)
		}
		if again := d.ids(); !slices.Equal(slices.Sorted(slices.Values(first)), slices.Sorted(slices.Values(again))) {
			t.Errorf("allocations %v, then %v", first, again)
		}
		r.told(first[0], "train", "failed first, with exit code 7")
	})
}

// With on_failure = "continue" the others run on and are told who they are now;
// the one that failed comes back to them.
func TestContinue(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		w := gpus(task("train", trainer), 1).SetConfig("resize_signal", "SIGUSR2")
		// It comes back when the others have been told that it is gone: who is told
		// twice at once sees the second alone.
		w.SetConfig("preflight", []map[string]any{{"command": "/bin/sh", "args": []string{"-c", `while [ -e "$DIARY/away" ]; do sleep 0.05; done`}}})
		j := r.job(elastic(group("w", 3, w), "1", "3"))
		r.allFree()
		j.Meta["caravan_on_failure"] = "continue"
		d := r.start(j, 3)
		first := d.ids()
		know := func(world int) func(d diary) bool {
			return func(d diary) bool {
				for _, a := range []string{first[0], first[2]} {
					told := d.of(a).with("resized")
					if len(told) == 0 || told[len(told)-1].number("world") != world {
						return false
					}
				}
				return true
			}
		}
		r.touch("away")
		r.touch("fail-1")
		r.await("the others know that one is gone", know(2))
		r.remove("away")
		r.await("the others know of the one that is back", know(3))
		d = r.await("it has started again", func(d diary) bool { return len(d.of(first[1]).with("start")) == 2 })
		if len(d.with("start")) != 4 || len(d.with("end")) != 0 {
			t.Errorf("the others did not run on:\n%s", d)
		}
		r.goOn(first...)
	})
}

// With on_failure = "fail" one failure fails all, and tells who failed first.
func TestFail(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		// The planner stops the others beside telling them. Who ends at once ends
		// by whatever comes first, and is not told of the other.
		slow := strings.Replace(trainer, "trap 'note end", `trap 'while [ ! -e "$DIARY/told" ]; do sleep 0.05; done; note end`, 1)
		k := gpus(task("train", slow), 1)
		k.KillTimeout = new(25 * time.Second)
		j := r.job(group("w", 2, k))
		j.TaskGroups[0] = once(j.TaskGroups[0])
		j.Meta["caravan_on_failure"] = "fail"
		first := r.start(j, 2).ids()
		r.touch("fail-1")
		r.told(first[0], "train", "rank 1", "failed first, with exit code 7")
		r.touch("told")
		for _, a := range first {
			r.until("it ends", func() (bool, any) { s := r.alloc(a).ClientStatus; return ended(s), s })
		}
		r.told(first[1], "train", "exited with code 7")
		if d := r.read(); len(d.with("start")) != 2 {
			t.Errorf("something started again:\n%s", d)
		}
	})
}

// What a member asks for and cannot have fails it with a reason that says so,
// and no other member ever starts.
func TestCannotStart(t *testing.T) {
	tests := map[string]struct {
		edit func(*api.Task)
		told []string
	}{
		"no such command": {func(k *api.Task) { k.SetConfig("command", "/no/such/trainer") }, []string{"/no/such/trainer"}},
		"no such user":    {func(k *api.Task) { k.User = "nobody-of-that-name" }, []string{"nobody-of-that-name"}},
		"no directory":    {func(k *api.Task) { k.SetConfig("work_dir", "local/nowhere") }, []string{"nowhere"}},
	}
	onEach(t, func(t *testing.T, r *rig) {
		for name, test := range tests {
			t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, r.stage)
				bad := gpus(task("train", trainer), 1)
				test.edit(bad)
				id := r.submit(r.job(once(group("good", 1, gpus(task("train", trainer), 1))), once(group("bad", 1, bad))))
				var alloc string
				r.until("the bad member is placed", func() (bool, any) {
					for _, a := range r.allocs(id) {
						if strings.HasPrefix(a.TaskGroup, "bad") {
							alloc = a.ID
						}
					}
					return alloc != "", r.allocs(id)
				})
				r.told(alloc, "train", test.told...)
				r.status(alloc, api.AllocClientStatusFailed)
				if d := r.read(); len(d) != 0 {
					t.Errorf("something ran:\n%s", d)
				}
			})
		}
	})
}

// stubborn ignores everything, and starts what does not belong to its session.
const stubborn = `
trap '' TERM INT HUP USR1
for i in 1 2 3; do setsid sh -c 'trap "" TERM INT HUP; while :; do sleep 1; done' < /dev/null > /dev/null 2>&1 & done
` + trainer

func unmoved(script string) string {
	return strings.ReplaceAll(script, "trap 'note end n=$n; exit 0' TERM INT", "")
}

// A member that ignores every signal dies at kill_timeout, with all that it has
// started: after a stop, a purge, and a garbage collection.
func TestStubborn(t *testing.T) {
	ends := map[string]func(r *rig, job string){
		"stop": func(r *rig, job string) {
			if _, _, err := r.gate.Jobs().Deregister(job, false, nil); err != nil {
				r.t.Fatal(err)
			}
		},
		"purge": func(r *rig, job string) {
			if _, _, err := r.gate.Jobs().Deregister(job, true, nil); err != nil {
				r.t.Fatal(err)
			}
		},
		"gc": func(r *rig, job string) {
			if _, _, err := r.gate.Jobs().Deregister(job, true, nil); err != nil {
				r.t.Fatal(err)
			}
			r.until("the garbage is collected", func() (bool, any) {
				err := r.nomad.System().GarbageCollect()
				list, _, listErr := r.nomad.Jobs().Allocations(job, true, nil)
				return err == nil && listErr == nil && len(list) == 0, list
			})
		},
	}
	onEach(t, func(t *testing.T, r *rig) {
		for name, end := range ends {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, r.stage)
				k := gpus(task("train", unmoved(stubborn)), 1)
				k.KillTimeout = new(3 * time.Second)
				k.SetConfig("checkpoint", []map[string]any{{"signal": "SIGUSR1", "grace": "10m", "paths": []string{"local/none/*"}}})
				j := r.job(once(group("w", 2, k)))
				r.start(j, 2)
				if r.leftovers() == "" {
					t.Fatal("the test does not see processes")
				}
				asked := time.Now()
				end(r, *j.ID)
				r.until("everything is gone", func() (bool, any) {
					left := r.leftovers()
					return left == "", left
				})
				// Long before the grace is over, or until would have failed.
				if took := time.Since(asked); took < *k.KillTimeout {
					t.Errorf("all was gone after %v, want kill_timeout, %v, to be over", took, *k.KillTimeout)
				}
			})
		}
	})
}

// What can be known of a member's configuration before is refused at the gateway:
// no GPU is taken for it.
func TestRefusedAtTheDoor(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		bad := gpus(task("train", trainer), 1)
		bad.SetConfig("ulimit", []map[string]string{{"nofiles": "10"}}).SetConfig("proceses", 2)
		_, _, err := r.gate.Jobs().Register(r.job(once(group("bad", 1, bad))), nil)
		for _, want := range []string{"nofiles", "proceses", "nothing was registered"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the answer is %v, want it to name %q", err, want)
			}
		}
	})
}
