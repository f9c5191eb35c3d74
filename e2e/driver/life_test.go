package driver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// A suspended gang stands still, every process of it; then it goes on where it
// was. Signals reach it, and its membership stays.
func TestSuspendAndSignal(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		// A child in a session of its own writes as well.
		beat := `
setsid sh -c 'while :; do date +%s%N >> "$DIARY/beat-$NOMAD_ALLOC_INDEX"; sleep 0.05; done' < /dev/null > /dev/null 2>&1 &
`
		j := r.job(group("w", 2, gpus(task("train", beat+trainer), 1)))
		ids := r.start(j, 2).ids()
		steer := func(verb httpapi.Verb) {
			if _, err := r.planners[0].api.Steer(t.Context(), verb, httpapi.SteerRequest{Namespace: "default", Job: *j.ID, Reason: "the test says so"}); err != nil {
				t.Fatal(err)
			}
		}
		written := func() string {
			n := ""
			files, err := filepath.Glob(r.diary + "/*")
			if err != nil || len(files) != 4 {
				t.Fatal(files, err)
			}
			for _, f := range files {
				info, err := os.Stat(f)
				if err != nil {
					t.Fatal(err)
				}
				n += fmt.Sprintln(filepath.Base(f), info.Size())
			}
			return n
		}
		r.goOn(ids...)
		steer(httpapi.VerbSuspend)
		for _, a := range ids {
			r.told(a, "train", "suspending")
		}
		// The event comes with the freezing, so that it may be a moment early; what
		// the member tells the planner comes after it.
		r.until("all stand still", func() (bool, any) {
			e, err := r.planners[0].api.Progress(t.Context(), "default", *j.ID)
			still := 0
			for _, g := range e.Gangs {
				for _, m := range g.Members {
					if m.State == gangapi.MemberSuspended {
						still++
					}
				}
			}
			return err == nil && still == 2, e
		})
		still := written()
		time.Sleep(2 * time.Second)
		if now := written(); now != still {
			t.Errorf("suspended members have written:\n%s\n%s", still, now)
		}
		steer(httpapi.VerbResume)
		d := r.goOn(ids...)
		if len(d.with("start")) != 2 || len(d.with("end")) != 0 {
			t.Errorf("they did not simply go on:\n%s", d)
		}
		if err := r.nomad.Allocations().Signal(r.alloc(ids[1]), nil, "train", "SIGUSR2"); err != nil {
			t.Fatal(err)
		}
		d = r.await("the signal has come", func(d diary) bool { return len(d.with("resized")) == 1 })
		if e := d.with("resized")[0]; e.alloc != ids[1] || e.number("world") != 2 {
			t.Errorf("the signal has come to %+v", e)
		}
	})
}

// A command in a running task, with a terminal.
func TestExecTerminal(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		ids := r.start(r.job(group("w", 1, gpus(task("train", trainer), 1))), 1).ids()
		ctx, cancel := r.deadline()
		defer cancel()
		in, typed := io.Pipe()
		defer typed.Close()
		sizes := make(chan api.TerminalSize, 1)
		sizes <- api.TerminalSize{Height: 33, Width: 77}
		var out logBuffer
		go func() {
			for {
				if text, _ := out.from(0); strings.Contains(text, "ready") {
					break
				}
				if sleep(ctx, 20*time.Millisecond) != nil {
					return
				}
			}
			io.WriteString(typed, "hello\n")
		}()
		code, err := r.nomad.Allocations().Exec(ctx, r.alloc(ids[0]), "train", true,
			[]string{"/bin/sh", "-c", `i=0; while [ $i -lt 300 ] && [ "$(stty size)" != "33 77" ]; do i=$((i + 1)); sleep 0.2; done; test -t 0 && test -t 1 && stty size; echo ready; read x; echo "got $x in $NOMAD_TASK_NAME"; exit 5`},
			in, &out, &out, sizes, nil)
		text, _ := out.from(0)
		if err != nil || code != 5 || !strings.Contains(text, "33 77") || !strings.Contains(text, "got hello in train") {
			t.Errorf("exec = %d, %v: %q", code, err, text)
		}
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// drivers are the processes of the plugins, not of supervisors.
func (r *rig) drivers() []int {
	var out []int
	for _, pid := range processes() {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || exe != filepath.Join(r.dir, driverBin) {
			continue
		}
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && bytes.Count(line, []byte{0}) == 1 {
			out = append(out, pid)
		}
	}
	return out
}

// Plugins are killed, and then a client, and both while the gang writes: the
// processes run on, no line of their output is lost and none is there twice, and
// the exit codes are told. One more start of the whole gang, without Nomad's
// doing, loses nothing either.
func TestOutputThroughEverything(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		j := r.job(once(group("w", 2, gpus(task("train", fast), 8))))
		ids := r.start(j, 2).ids()
		d := r.goOn(ids...)
		pids := d.with("start")

		old := r.drivers()
		if len(old) < 3 {
			t.Fatalf("plugins %v, want one for each node", old)
		}
		for _, pid := range old {
			syscall.Kill(pid, syscall.SIGKILL) // it was ours a moment ago
		}
		r.until("there are new plugins", func() (bool, any) {
			now := r.drivers()
			return len(now) >= len(old) && !slices.ContainsFunc(now, func(pid int) bool { return slices.Contains(old, pid) }), now
		})
		r.goOn(ids...)

		node := r.alloc(ids[0]).NodeName
		if err := r.cluster.StopNode(node); err != nil {
			t.Fatal(err)
		}
		r.goOn(ids...)
		r.startNode(node)
		d = r.goOn(ids...)
		if len(d.with("start")) != 2 || d.with("start").String() != pids.String() {
			t.Errorf("something was started again:\n%s", d)
		}
		r.touch("finish")
		for _, a := range ids {
			r.whole(r.status(a, api.AllocClientStatusComplete), []int{r.read().of(a).with("end")[0].number("n")})
		}
	})
}

// fast is a trainer that prints a lot.
var fast = strings.Replace(trainer, `echo "line $n"`, `i=0; while [ $i -lt 40 ]; do echo "line $n.$i ........................................................................"; i=$((i + 1)); done`, 1)

var lineNumber = regexp.MustCompile(`(?m)^line (\d+)\.(\d+) \.+$`)

// whole checks that a task's output has all lines of some runs, each once and in
// order.
func (r *rig) whole(a *api.Allocation, runs []int) {
	r.t.Helper()
	var want []string
	for _, n := range runs {
		for i := 1; i <= n; i++ {
			for k := range 40 {
				want = append(want, fmt.Sprintf("%d.%d", i, k))
			}
		}
	}
	var got []string
	r.until("all of the output is there", func() (bool, any) {
		got = nil
		for _, m := range lineNumber.FindAllStringSubmatch(r.file(a, "alloc/logs/train.stdout.0"), -1) {
			got = append(got, m[1]+"."+m[2])
		}
		return len(got) >= len(want), fmt.Sprintf("%d lines of %d", len(got), len(want))
	})
	if !slices.Equal(got, want) {
		for i := range want {
			if i >= len(got) || got[i] != want[i] {
				r.t.Errorf("%s: line %d of %d (%d are there) is %q, want %q", a.ID, i, len(want), len(got), got[min(i, len(got)-1)], want[i])
				return
			}
		}
		r.t.Errorf("%s: %d lines, want %d", a.ID, len(got), len(want))
	}
}

func (r *rig) startNode(name string) {
	r.t.Helper()
	if err := r.cluster.StartNode(name); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := r.deadline()
	defer cancel()
	if err := r.cluster.WaitReady(ctx); err != nil {
		r.t.Fatal(err)
	}
}

// What a member prints is there also when it has been back at the barrier, which
// Nomad knows nothing of.
func TestOutputOfSeveralRuns(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		k := gpus(task("train", strings.Replace(fast, "trap 'note end n=$n; exit 0' TERM INT", `trap 'note cut n=$n; exit 0' TERM INT`, 1)), 1)
		k.SetConfig("preflight", []map[string]any{{"gpu": true, "command": "/bin/echo", "args": []string{"looks", "good"}}})
		ids := r.start(r.job(group("w", 2, k)), 2).ids()
		for round := 1; round <= 2; round++ {
			r.goOn(ids...)
			r.touch("fail-1")
			r.await("all have started again", func(d diary) bool { return len(d.with("start")) == 2*(round+1) })
		}
		d := r.goOn(ids...)
		r.touch("finish")
		for _, a := range ids {
			r.status(a, api.AllocClientStatusComplete)
		}
		d = r.read()
		survivor := d.rank(0).alloc
		if n := r.alloc(survivor).TaskStates["train"].Restarts; n != 0 {
			t.Fatalf("Nomad has started the survivor %d times again", n)
		}
		a := r.alloc(survivor)
		last := d.of(survivor).with("end")
		r.until("the end of the output is there", func() (bool, any) {
			text := r.file(a, "alloc/logs/train.stdout.0")
			return strings.Contains(text, fmt.Sprintf("line %d.39", last[0].number("n"))) && strings.Count(text, "looks good\n") == 3 && strings.Count(text, "line 1.0 ") == 3, len(text)
		})
	})
}

// A client is restarted while its member waits at the barrier: the member still
// waits, once, and starts with the others.
func TestClientRestartAtTheBarrier(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		job, waiting := r.incomplete(true)
		node := r.alloc(waiting[0]).NodeName
		if err := r.cluster.StopNode(node); err != nil {
			t.Fatal(err)
		}
		r.startNode(node)
		r.touch("go")
		d := r.await("all have started", func(d diary) bool { return len(d.with("start")) == 3 })
		d = r.goOn(d.ids()...)
		if n := r.together(d, 3); n != 1 {
			t.Errorf("%d epochs:\n%s", n, d)
		}
		if n := len(r.allocs(job)); n != 3 {
			t.Errorf("%d allocations, want 3", n)
		}
	})
}
