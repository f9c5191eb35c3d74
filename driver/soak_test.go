package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// soakEnv is how many tasks the soak starts; the default keeps the suite short.
const soakEnv = "CARAVAN_SOAK"

func soakTasks(t *testing.T) int {
	t.Helper()
	text := os.Getenv(soakEnv)
	if text == "" {
		return 60
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q: allowed is a number of tasks", soakEnv, text)
	}
	return n
}

// soaked is what a task of the soak does, and how it has to end.
type soaked struct {
	script string
	// stop ends it, 0 lets it end by itself.
	stop time.Duration
	want driver.Exit
}

func draw(rng *rand.Rand) soaked {
	code := rng.IntN(100)
	linger := fmt.Sprintf("sleep 0.%d; ", rng.IntN(10))
	switch rng.IntN(5) {
	case 0:
		return soaked{script: fmt.Sprintf("exit %d", code), want: driver.Exit{Code: code}}
	case 1: // leaves something behind in a session of its own
		return soaked{script: fmt.Sprintf("setsid sleep 300 & setsid sh -c 'setsid sleep 300 & exec sleep 300' & %s exit %d", linger, code), want: driver.Exit{Code: code}}
	case 2:
		return soaked{script: fmt.Sprintf("trap 'exit %d' TERM; while :; do sleep 0.02; done", code), stop: patience, want: driver.Exit{Code: code}}
	case 3: // ignores everything
		return soaked{script: "trap '' TERM; setsid sleep 300 & while :; do sleep 0.02; done", stop: 300 * time.Millisecond, want: driver.Exit{Signal: 9}}
	default:
		return soaked{script: linger + "kill -9 $$", want: driver.Exit{Signal: 9}}
	}
}

// TestSoak starts and stops many tasks while their plugin is killed again and
// again: no exit code is lost, and nothing is left.
func TestSoak(t *testing.T) {
	r := newRig(t)
	total, seed := soakTasks(t), rand.Uint64()
	t.Logf("%d tasks, seed %d", total, seed)
	s := &soak{r: r, handles: map[string]driver.Handle{}, marks: map[string]bool{}, seed: seed}
	var all sync.WaitGroup
	const workers = 6
	for w := range workers {
		all.Go(func() {
			for i := w; i < total; i += workers {
				s.one(i)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	kills := s.killer(done)
	t.Logf("the plugin was killed %d times", kills)
	if kills == 0 && total >= 60 {
		t.Error("the plugin was never killed")
	}
	r.fingerprint() // which also clears away what a killed plugin has left
	r.nothingLeft()
	s.leftovers()
	if n, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.plugin.Handle().PID())); err != nil || len(n) > 40 {
		t.Errorf("the plugin has %d open files, %v", len(n), err)
	}
}

type soak struct {
	r    *rig
	seed uint64
	// gate is held by whoever replaces the plugin; calls hold it for reading.
	gate    sync.RWMutex
	mu      sync.Mutex
	handles map[string]driver.Handle
	marks   map[string]bool
	over    atomic.Int64
}

// call makes a call until it was made on a plugin that lived to answer it.
func (s *soak) call(f func(*driver.Client) error) error {
	for {
		s.gate.RLock()
		plugin, client := s.r.plugin, s.r.Client
		s.gate.RUnlock()
		err := f(client)
		if err == nil || !plugin.Exited() && !strings.Contains(err.Error(), codes.Unavailable.String()) {
			return err
		}
		// Killed in the meantime: the next one knows the task.
		for {
			s.gate.RLock()
			again := s.r.plugin != plugin
			s.gate.RUnlock()
			if again {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// one is the life of a task.
func (s *soak) one(i int) {
	defer s.over.Add(1)
	what := draw(rand.New(rand.NewPCG(s.seed, uint64(i))))
	task := s.r.task(fmt.Sprintf("soak-%d", i), fmt.Sprintf("command = \"/bin/sh\"\nargs = [\"-c\", %q]\nmember = \"none\"", what.script))
	if err := s.start(task); err != nil {
		s.r.t.Errorf("task %d: %v", i, err)
		return
	}
	if what.stop > 0 {
		if err := s.call(func(c *driver.Client) error { return c.Stop(s.r.t.Context(), task.ID, what.stop, "SIGTERM") }); err != nil {
			s.r.t.Errorf("stop task %d: %v", i, err)
		}
	}
	var exit driver.Exit
	err := s.call(func(c *driver.Client) (err error) {
		ctx, cancel := context.WithTimeout(s.r.t.Context(), 2*patience)
		defer cancel()
		exit, err = c.Wait(ctx, task.ID)
		return err
	})
	// The trap of a shell that is stopped at once may not be set yet.
	early := what.stop > 0 && exit.Signal == int(syscall.SIGTERM)
	if err != nil || exit.Err != nil || !early && (exit.Code != what.want.Code || exit.Signal != what.want.Signal) {
		s.r.t.Errorf("task %d (%s): exit %+v, %v, want %+v", i, what.script, exit, err, what.want)
	}
	err = s.call(func(c *driver.Client) error { return c.Destroy(s.r.t.Context(), task.ID, false) })
	if err != nil && !errors.Is(err, driver.ErrTaskNotFound) {
		s.r.t.Errorf("destroy task %d: %v", i, err)
	}
	s.mu.Lock()
	delete(s.handles, task.ID)
	s.mu.Unlock()
}

// start starts a task. A client whose plugin died in the middle of it does not
// know whether it did, and starts the task under another ID; so does this, after
// it has cleared away what there is.
func (s *soak) start(task driver.TaskConfig) error {
	s.gate.RLock()
	defer s.gate.RUnlock()
	h, _, err := s.r.Start(s.r.t.Context(), task)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handles[task.ID] = h
	return nil
}

// killer kills the plugin and starts another one, until done.
func (s *soak) killer(done <-chan struct{}) int {
	rng := rand.New(rand.NewPCG(s.seed, 0))
	for kills := 0; ; kills++ {
		select {
		case <-done:
			return kills
		case <-time.After(time.Duration(200+rng.IntN(600)) * time.Millisecond):
		}
		s.gate.Lock()
		if err := syscall.Kill(s.r.plugin.Handle().PID(), syscall.SIGKILL); err != nil {
			s.r.t.Errorf("kill plugin: %v", err)
		}
		s.r.launch()
		s.mu.Lock()
		for id, h := range s.handles {
			if err := s.r.Recover(s.r.t.Context(), h); err != nil && !gone(h) {
				s.r.t.Errorf("recover %s: %v", id, err)
			}
		}
		s.mu.Unlock()
		s.gate.Unlock()
	}
}

// gone says that a task was destroyed just before its plugin was killed.
func gone(h driver.Handle) bool {
	var state handle
	if h.DecodeState(&state) != nil {
		return false
	}
	_, err := os.Stat(filepath.Join(state.Dir, "start.json"))
	return errors.Is(err, fs.ErrNotExist)
}

// leftovers looks for processes and cgroups of the soak's tasks.
func (s *soak) leftovers() {
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		s.r.t.Fatal(err)
	}
	for _, path := range environs {
		data, err := os.ReadFile(path)
		if err == nil && bytes.Contains(data, []byte(exec.Mark+"=")) && bytes.Contains(data, []byte(s.r.allocs)) {
			s.r.t.Errorf("process left: %s", path)
		}
	}
	for pid, line := range supervisorsOf(s.r.state) {
		s.r.t.Errorf("supervisor left: %d %s", pid, line)
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "alloc-soak-") {
			s.r.t.Errorf("cgroup left: %s", path)
		}
		return nil
	})
}

func supervisorsOf(state string) map[int]string {
	out := map[int]string{}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		data, err := os.ReadFile(path)
		if err == nil && bytes.Contains(data, []byte(state)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			out[pid] = strings.ReplaceAll(string(data), "\x00", " ")
		}
	}
	return out
}

// TestNoLeaks: the plugin keeps no goroutine and no file of a task that is gone.
func TestNoLeaks(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, planner: newPlanner(t), state: t.TempDir(), allocs: t.TempDir()}
	p := New(hclog.NewNullLogger(), path)
	raw, err := hclspec.Encode(p.ConfigSchema(), fmt.Appendf(nil, "state_dir = %q", r.state), "plugin")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SetConfig(t.Context(), base.Config{Raw: raw}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = p.Events(ctx, func(driver.Event) error { return nil }) }()
	life := func(i int) {
		task := r.task(fmt.Sprintf("leak-%d", i), "command = \"/bin/sh\"\nargs = [\"-c\", \"exit 1\"]\nmember = \"none\"")
		if _, _, err := p.Start(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(t.Context(), task.ID); err != nil {
			t.Fatal(err)
		}
		if err := p.Destroy(t.Context(), task.ID, false); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (int, int) {
		files, _ := os.ReadDir("/proc/self/fd")
		return runtime.NumGoroutine(), len(files)
	}
	life(0)
	var goroutines, files int
	r.eventually("calm", func() (bool, any) { // the first task's goroutines end
		goroutines, files = count()
		time.Sleep(50 * time.Millisecond)
		g, f := count()
		return g == goroutines && f == files, g
	})
	for i := range 15 {
		life(i + 1)
	}
	r.eventually("end of the tasks' goroutines and files", func() (bool, any) {
		g, f := count()
		return g <= goroutines+2 && f <= files+2, fmt.Sprintf("%d goroutines, %d before; %d files, %d before", g, goroutines, f, files)
	})
}
