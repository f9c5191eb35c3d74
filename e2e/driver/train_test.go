package driver

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/freeport"
	"github.com/caravan-sched/caravan/internal/jobhcl"
	"github.com/caravan-sched/caravan/jobspecs"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// training is the example job that really trains, with its checkpoints where all
// members see them.
func (r *rig) training(steps int, edit func(*api.Job)) *api.Job {
	r.t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		r.t.Skip("there is no python3 here")
	}
	if err := exec.Command(python, "-c", "import sys; sys.exit(sys.version_info < (3, 8))").Run(); err != nil {
		r.t.Skip("python3 here is older than 3.8")
	}
	code, err := filepath.Abs("../../jobspecs")
	if err != nil {
		r.t.Fatal(err)
	}
	text, err := fs.ReadFile(jobspecs.Files, "train-driver.hcl")
	if err != nil {
		r.t.Fatal(err)
	}
	j, err := jobhcl.Parse(text, "train-driver.hcl", map[string]string{"code": code, "checkpoints": filepath.Join(r.diary, "ckpt"), "steps": strconv.Itoa(steps)})
	if err != nil {
		r.t.Fatal(err)
	}
	id := *r.job().ID
	j.ID, j.Name = &id, &id
	for _, g := range j.TaskGroups {
		for _, k := range g.Tasks {
			// The node's PATH may not be ours.
			k.Env["PATH"] = os.Getenv("PATH")
			k.Env["PYTHONDONTWRITEBYTECODE"] = "1"
			args := k.Config["args"].([]any)
			args[1] = strings.Replace(args[1].(string), "--pause 0.1", `--pause "$(cat "$DIARY/pause")"`, 1)
		}
	}
	if edit != nil {
		edit(j)
	}
	return j
}

// pace says how many seconds longer each step takes of a training that is started
// from now on.
func (r *rig) pace(seconds string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.diary, "pause"), []byte(seconds), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// says waits for a line in a task's output, and returns the submatches of the
// last such line.
func (r *rig) says(alloc, pattern string) []string {
	r.t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	var out []string
	r.until(fmt.Sprintf("%s says %q", alloc, pattern), func() (bool, any) {
		a := r.alloc(alloc)
		text := r.file(a, "alloc/logs/train.stdout.0")
		if all := re.FindAllStringSubmatch(text, -1); len(all) > 0 {
			out = all[len(all)-1]
			return true, nil
		}
		return false, text + "\n" + r.file(a, "alloc/logs/train.stderr.0") + strings.Join(r.events(alloc, "train"), "\n")
	})
	return out
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The example with a real training loop gives way and goes on elsewhere from the
// checkpoint that it was asked for, and ends as one that was never stopped.
func TestTraining(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		const steps = 60
		r.pace("2") // slow enough that it cannot be through before it is stopped
		id := r.submit(r.training(steps, nil))
		r.until("both members are placed", func() (bool, any) { return len(r.allocs(id)) == 2, r.allocs(id) })
		first := []string{r.allocs(id)[0].ID, r.allocs(id)[1].ID}
		zero := first[0]
		r.until("a member is rank 0", func() (bool, any) {
			for _, a := range first {
				if strings.Contains(r.file(r.alloc(a), "alloc/logs/train.stdout.0"), "rank 0 of 2 is at step 0") {
					zero = a
					return true, nil
				}
			}
			return false, r.because(nil)
		})
		r.says(zero, `^step 1 loss`)
		r.pace("0.01")
		if _, err := r.planners[0].api.Steer(t.Context(), httpapi.VerbRequeue, httpapi.SteerRequest{Namespace: "default", Job: id, Reason: "somebody else's turn"}); err != nil {
			t.Fatal(err)
		}
		r.until("both members are placed again", func() (bool, any) { return len(r.allocs(id)) == 4, r.because(nil) })
		r.told(zero, "train", "there is a new checkpoint", "after the stop began")
		saved := number(t, r.says(r.allocs(id)[2].ID, `^goes on from .*step-(\d+)\.json$`)[1])
		if saved < 1 || saved >= steps {
			t.Errorf("the checkpoint is of step %d", saved)
		}
		var digests []string
		for _, a := range r.allocs(id)[2:] {
			if at := number(t, r.says(a.ID, `^rank \d of 2 is at step (\d+)$`)[1]); at != saved {
				t.Errorf("%s begins at step %d, want %d", a.ID, at, saved)
			}
			digests = append(digests, r.says(a.ID, `^done: step 60 loss \S+ weights (\S+)$`)[1])
			r.status(a.ID, api.AllocClientStatusComplete)
		}
		if want := r.undisturbed(steps); digests[0] != want || digests[1] != want {
			t.Errorf("weights %v, want %s", digests, want)
		}
	})
}

// undisturbed trains with two ranks that nobody stops, and returns the digest
// of their weights.
func (r *rig) undisturbed(steps int) string {
	r.t.Helper()
	port, err := freeport.Take("127.0.0.1")
	if err != nil {
		r.t.Fatal(err)
	}
	var ranks [2]*exec.Cmd
	var out [2]logBuffer
	for i := range ranks {
		ranks[i] = exec.CommandContext(r.t.Context(), "python3", "train.py", "--steps", strconv.Itoa(steps), "--dir", filepath.Join(r.t.TempDir(), "ckpt"))
		ranks[i].Dir = "../../jobspecs"
		ranks[i].Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", fmt.Sprint("RANK=", i), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port))
		ranks[i].Stdout, ranks[i].Stderr = &out[i], &out[i]
		if err := ranks[i].Start(); err != nil {
			r.t.Fatal(err)
		}
	}
	digest := ""
	for i := range ranks {
		err := ranks[i].Wait()
		text, _ := out[i].from(0)
		m := regexp.MustCompile(`weights (\S+)`).FindStringSubmatch(text)
		if err != nil || m == nil {
			r.t.Fatalf("rank %d: %v\n%s", i, err, text)
		}
		digest = m[1]
	}
	return digest
}

// The training loop goes on without a restart when its gang grows and shrinks.
func TestTrainingResizes(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.pace("0.1")
		r.allFree()
		id := r.submit(r.training(100000, func(j *api.Job) {
			g := j.TaskGroups[0]
			g.Meta = map[string]string{"caravan_min": "1", "caravan_max": "3"}
			g.Tasks[0].Config["resize_signal"] = "SIGHUP"
			g.Tasks[0].KillTimeout = new(10 * time.Second)
		}))
		r.until("both members are placed", func() (bool, any) { return len(r.allocs(id)) == 2, r.allocs(id) })
		first := []string{r.allocs(id)[0].ID, r.allocs(id)[1].ID}
		for _, a := range first {
			r.says(a, `^rank \d of 2 is at step 0$`)
		}
		scale := func(n int) {
			if _, _, err := r.gate.Jobs().Scale(id, "trainer", &n, "the test says so", false, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		scale(3)
		for _, a := range first {
			r.says(a, `^the gang has 3 ranks now, not 2$`)
			r.says(a, `^rank \d of 3 is at step [1-9]\d*$`)
		}
		scale(2)
		var steps []int
		for _, a := range first {
			r.says(a, `^the gang has 2 ranks now, not 3$`)
			steps = append(steps, number(t, r.says(a, `^rank \d of 2 is at step ([1-9]\d*)$`)[1]))
		}
		if steps[0] != steps[1] {
			t.Errorf("the two go on at steps %v", steps)
		}
		for _, a := range first {
			state := r.alloc(a).TaskStates["train"]
			if n := strings.Count(strings.Join(r.events(a, "train"), "\n"), "has started with PID"); n != 1 || state.Restarts != 0 || state.State != "running" {
				t.Errorf("%s was started %d times, restarted %d times, and is %s", a, n, state.Restarts, state.State)
			}
		}
		e, err := r.planners[0].api.Progress(t.Context(), "default", id)
		if err != nil || len(e.Gangs) != 1 || len(e.Gangs[0].Members) != 2 || e.Gangs[0].Members[0].Step == nil {
			t.Errorf("the planner knows of %+v, %v", e, err)
		}
	})
}
