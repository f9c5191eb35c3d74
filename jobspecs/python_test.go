package jobspecs

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/driver/progress"
	"github.com/caravan-sched/caravan/internal/freeport"
)

func python(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 here")
	}
	if err := exec.Command(path, "-c", "import sys; sys.exit(sys.version_info < (3, 8))").Run(); err != nil {
		t.Skip("python3 here is older than 3.8")
	}
	return path
}

// rank is one process of the training loop.
type rank struct {
	t   *testing.T
	cmd *exec.Cmd

	mu    sync.Mutex
	lines []string
	grown chan struct{}
	ended chan struct{}
	err   error
}

// start runs the training loop with more variables.
func start(t *testing.T, env []string, args ...string) *rank {
	t.Helper()
	r := &rank{t: t, grown: make(chan struct{}), ended: make(chan struct{})}
	r.cmd = exec.Command(python(t), append([]string{"train.py", "--patience", "60", "--samples", "48", "--hidden", "4", "--every", "20"}, args...)...)
	r.cmd.Env = append(os.Environ(), append(env, "PYTHONDONTWRITEBYTECODE=1")...)
	pr, pw := io.Pipe()
	r.cmd.Stdout, r.cmd.Stderr = pw, pw
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(pr); s.Scan(); {
			r.mu.Lock()
			r.lines = append(r.lines, s.Text())
			close(r.grown)
			r.grown = make(chan struct{})
			r.mu.Unlock()
		}
	}()
	go func() {
		r.err = r.cmd.Wait()
		pw.Close()
		close(r.ended)
	}()
	t.Cleanup(func() {
		r.cmd.Process.Kill()
		<-r.ended
	})
	return r
}

func (r *rank) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

// says waits for a line, and returns its submatches.
func (r *rank) says(pattern string) []string {
	r.t.Helper()
	re, deadline := regexp.MustCompile("(?m)"+pattern), time.After(time.Minute)
	for {
		r.mu.Lock()
		text, grown := strings.Join(r.lines, "\n"), r.grown
		r.mu.Unlock()
		if m := re.FindStringSubmatch(text); m != nil {
			return m
		}
		select {
		case <-grown:
		case <-deadline:
			r.t.Fatalf("it does not say %q:\n%s", pattern, text)
		}
	}
}

// done waits for the end, which must be a success, and returns the loss and
// the weights' digest.
func (r *rank) done() (loss, weights string) {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(time.Minute):
		r.t.Fatalf("it does not end:\n%s", r.output())
	}
	if r.err != nil {
		r.t.Fatalf("it ended with %v:\n%s", r.err, r.output())
	}
	m := r.says(`^done: step \d+ loss (\S+) weights (\S+)$`)
	return m[1], m[2]
}

func (r *rank) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := freeport.Take("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// gang starts that many ranks, which meet by environment variables alone.
func gang(t *testing.T, world int, args ...string) []*rank {
	t.Helper()
	port, out := freePort(t), make([]*rank, world)
	for i := range out {
		out[i] = start(t, []string{
			fmt.Sprint("RANK=", i), fmt.Sprint("WORLD_SIZE=", world), fmt.Sprint("NODE_RANK=", i), fmt.Sprint("NNODES=", world),
			"MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port),
		}, args...)
	}
	return out
}

// agree waits for all and checks that they end with the same weights.
func agree(t *testing.T, ranks []*rank) (loss, weights string) {
	t.Helper()
	loss, weights = ranks[0].done()
	for i, r := range ranks[1:] {
		if _, w := r.done(); w != weights {
			t.Errorf("rank %d ends with weights %s, rank 0 with %s", i+1, w, weights)
		}
	}
	return loss, weights
}

// The loop learns, whatever the number of ranks, and a run that is killed and
// started again ends exactly as one that was not.
func TestTrainLearnsAndResumes(t *testing.T) {
	t.Parallel()
	whole := gang(t, 3, "--dir", t.TempDir(), "--steps", "160")
	loss, want := agree(t, whole)
	var first, last float64
	fmt.Sscan(whole[0].says(`^step 1 loss (\S+)$`)[1], &first)
	fmt.Sscan(loss, &last)
	if last <= 0 || last > first/3 {
		t.Errorf("the loss is %v at the start and %v at the end", first, last)
	}
	alone, _ := agree(t, gang(t, 1, "--dir", t.TempDir(), "--steps", "160"))
	if alone[:6] != loss[:6] {
		t.Errorf("loss %s with one rank, %s with three", alone, loss)
	}

	dir := t.TempDir()
	killed := gang(t, 3, "--dir", dir, "--steps", "160", "--pause", "0.01")
	killed[0].says(`^checkpoint at step 40$`)
	for _, r := range killed {
		r.signal(syscall.SIGKILL)
	}
	for _, r := range killed {
		<-r.ended
	}
	// A checkpoint that cannot be read is passed over.
	if err := os.WriteFile(filepath.Join(dir, "step-150.json"), []byte(`{"step":150,"weights":[1,`), 0o600); err != nil {
		t.Fatal(err)
	}
	again := gang(t, 3, "--dir", dir, "--steps", "160")
	if _, got := agree(t, again); got != want {
		t.Errorf("weights %s after being killed, %s otherwise", got, want)
	}
	for _, r := range again {
		r.says(`^cannot use .*step-150\.json`)
		r.says(`^goes on from .*step-(40|60|80)\.json`)
	}
}

// A checkpoint that one rank is asked for is made by all at the same step, and
// each of them tells of it.
func TestTrainCheckpointsWhenAsked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	var ranks []*rank
	var sources []*progress.Source
	for i := range 2 {
		s, err := progress.Open(progress.Config{Socket: filepath.Join(dir, fmt.Sprint("socket", i)), Fault: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		sources = append(sources, s)
		ranks = append(ranks, start(t, []string{
			fmt.Sprint("RANK=", i), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port), "CARAVAN_SOCKET=" + s.Socket(),
		}, "--dir", filepath.Join(dir, "ckpt"), "--steps", "100000", "--every", "100000", "--pause", "0.005"))
	}
	ranks[0].says(`^step 1 `)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	marks := []progress.Mark{sources[0].Mark(ctx), sources[1].Mark(ctx)}
	ranks[1].signal(syscall.SIGUSR1)
	var steps []int64
	for i, s := range sources {
		c, err := s.WaitNewer(ctx, marks[i])
		if err != nil {
			t.Fatalf("rank %d: %v\n%s", i, err, ranks[i].output())
		}
		if _, err := os.Stat(c.Path); err != nil || c.Step == nil {
			t.Fatalf("rank %d: checkpoint %+v, %v", i, c, err)
		}
		steps = append(steps, *c.Step)
	}
	p := sources[1].Progress()
	if steps[0] != steps[1] || p.Step == nil || *p.Step < steps[1] || p.Loss == nil || p.Throughput == nil {
		t.Errorf("checkpoints at steps %v, progress %+v", steps, p)
	}
}

// helper checks what the Python helper does by itself: a script of assertions.
const helper = `
import json, os, signal, sys
import caravan

gang = caravan.Gang()
me = gang.member
assert (me.rank, me.ranks, me.world_size, me.nnodes, me.address) == (4, [4, 5], 8, 3, None), vars(me)

# Files and directories, whole or not at all.
with gang.checkpoint("ckpt/step-1", step=1) as path:
    assert not os.path.exists(path)
    open(path, "w").write("one")
assert open("ckpt/step-1").read() == "one"
try:
    with gang.checkpoint("ckpt/step-1", step=2) as path:
        open(path, "w").write("torn")
        raise RuntimeError("out of memory")
except RuntimeError:
    pass
assert open("ckpt/step-1").read() == "one" and os.listdir("ckpt") == ["step-1"], os.listdir("ckpt")
for text in "two", "three":
    with gang.checkpoint("ckpt/step-2") as path:
        os.makedirs(path + "/deep")
        open(path + "/deep/x", "w").write(text)
assert open("ckpt/step-2/deep/x").read() == "three" and sorted(os.listdir("ckpt")) == ["step-1", "step-2"], os.listdir("ckpt")
try:
    with gang.checkpoint("ckpt/step-3"):
        pass
    raise SystemExit("a checkpoint of nothing was made")
except FileNotFoundError:
    pass

gang.report(step=7, loss=float("nan"), throughput=3)

# The signal asks once.
assert not gang.should_checkpoint()
os.kill(os.getpid(), signal.SIGUSR1)
assert gang.should_checkpoint() and not gang.should_checkpoint()

# A membership file that is nonsense, or of others, changes nothing.
for text in "{", "[]", json.dumps({"members": [{"alloc": "other", "processes": 1}]}):
    open(os.environ["CARAVAN_MEMBERSHIP"], "w").write(text)
    os.kill(os.getpid(), signal.SIGHUP)
    assert not gang.resized() and gang.member is me, text
`

func TestPythonHelper(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"socket", "HTTP", "nobody", "dead socket"} {
		t.Run(way, func(t *testing.T) {
			dir := t.TempDir()
			code, err := filepath.Abs(".")
			if err != nil {
				t.Fatal(err)
			}
			var faults []string
			s, err := progress.Open(progress.Config{Socket: filepath.Join(dir, "s"), HTTP: true, Fault: func(err error) { faults = append(faults, err.Error()) }})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			cmd := exec.Command(python(t), "-c", helper)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PYTHONPATH="+code, "PYTHONDONTWRITEBYTECODE=1", "RANK=4", "LOCAL_WORLD_SIZE=2", "WORLD_SIZE=8", "NNODES=3",
				"NOMAD_ALLOC_ID=me", "CARAVAN_MEMBERSHIP="+filepath.Join(dir, "membership.json"))
			cmd.Env = append(cmd.Env, map[string]string{"socket": "CARAVAN_SOCKET=" + s.Socket(), "HTTP": "CARAVAN_HTTP=" + s.URL(), "nobody": "X=", "dead socket": "CARAVAN_SOCKET=/none"}[way])
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if way == "nobody" || way == "dead socket" {
				return
			}
			waitFor(t, s, func() bool { p := s.Progress(); return p != nil && p.Throughput != nil })
			p := s.Progress()
			b, err := json.Marshal(p)
			if err != nil || *p.Step != 7 || p.Loss != nil || *p.Throughput != 3 || p.Checkpoint == nil || !strings.HasSuffix(p.Checkpoint.Path, "/ckpt/step-2") {
				t.Errorf("progress %s, %v", b, err)
			}
			if len(faults) != 1 || faults[0] != "the loss is NaN" {
				t.Errorf("faults %q", faults)
			}
		})
	}
}

func waitFor(t *testing.T, s *progress.Source, ok func() bool) {
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		changed := s.Changed()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("it does not come; progress %+v", s.Progress())
		}
	}
}
