package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/progress"
	"github.com/caravan-sched/caravan/driver/supervisor/machine"
)

// lingerFor is how long a supervisor stays after its task was over, for a
// plugin that may be away just now. The exit stays on disk after that.
const lingerFor = time.Hour

// lookAtDir is how often the state directory is looked for.
const lookAtDir = 2 * time.Second

// lockFor is how long the lock is tried for: clients take it for a moment to see
// whether it is held.
const lockFor = 2 * time.Second

// Run is the supervisor: it runs the task of a state directory that Launch has
// made, and returns when it was destroyed, or an hour after the task was over.
// The process is to do nothing else.
func Run(dir string) error {
	say := readyPipe()
	s, err := open(dir)
	if err != nil {
		err = fmt.Errorf("supervise %s: %w", dir, err)
		say(err.Error())
		return err
	}
	say(ready)
	s.run()
	return nil
}

// envReady is the variable with the number of the descriptor that Launch waits
// at.
const envReady = "CARAVAN_READY_FD"

func readyPipe() func(string) {
	fd, err := strconv.Atoi(os.Getenv(envReady))
	if err != nil || os.Unsetenv(envReady) != nil {
		return func(string) {}
	}
	unix.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "ready")
	return func(text string) {
		_, _ = f.WriteString(text) // who launched us may be gone
		_ = f.Close()
	}
}

// supervisor is the process side of one task.
type supervisor struct {
	dir      string
	lock     *os.File
	listener net.Listener
	log      *logFile
	board    *board
	store    *store
	runner   *runner
	end      chan struct{}
}

func open(dir string) (*supervisor, error) {
	var start Start
	if ok, err := readJSON(filepath.Join(dir, fileStart), &start); err != nil {
		return nil, err
	} else if !ok {
		return nil, fmt.Errorf("%w: there is no %s", ErrNoSupervisor, fileStart)
	}
	if err := start.Validate(); err != nil {
		return nil, err
	}
	held, err := patientLock(dir)
	if err != nil {
		return nil, err
	}
	s := &supervisor{dir: dir, lock: held, board: newBoard(), end: make(chan struct{})}
	me, err := thisProcess(start.Run)
	if err != nil {
		return nil, err
	}
	if s.listener, err = listenSocket(dir); err != nil {
		return nil, err
	}
	s.log = openLog(dir)
	log := s.log.logger()
	w, err := realWorld(start, s.board, log)
	if err != nil {
		return nil, err
	}
	if err := writeJSON(filepath.Join(dir, fileInfo), me); err != nil {
		return nil, err
	}
	s.store = newStore(dir, s.board, log)
	s.runner = newRunner(start, w)
	return s, nil
}

func patientLock(dir string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockFor)
	defer cancel()
	for {
		f, err := lock(dir)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return f, err
		}
		if sleep(ctx, 10*time.Millisecond) != nil {
			return nil, fmt.Errorf("%w: %w", ErrExists, err)
		}
	}
}

// realWorld puts the real parts together.
func realWorld(start Start, b *board, log hclog.Logger) (world, error) {
	here := host{start}
	w := world{launcher: here, board: b, clock: bootClock, log: log}
	if start.Role != RoleNone {
		c, err := newPlannerClient(start.Barrier)
		if err != nil {
			return world{}, err
		}
		w.planner = c
	}
	if (start.Fence.Nomad != "" || start.Fence.Socket != "") && start.Fence.After > 0 {
		w.agent = newNomadAgent(start.Fence)
	}
	if p := start.Preflight; p != nil {
		w.examiner = &preflightExam{spec: *p, gpus: start.Barrier.GPUs, look: lookAtGPUs(*p), command: here.examine}
	}
	w.release = exec.HoldOutput(start.Workload.Stdout, start.Workload.Stderr).Release
	w.preparer = newScene(start.Files, func() (source, error) { return openProgress(start, log) })
	return w, nil
}

// bootClock is the time since the boot; it goes on while the host sleeps, and
// nobody can set it.
func bootClock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		// Kernels without it are older than any that can run this.
		panic(fmt.Sprintf("read CLOCK_BOOTTIME: %v", err))
	}
	return time.Duration(t.Nano())
}

func lookAtGPUs(p Preflight) func(context.Context) (nvml.Inventory, error) {
	return func(context.Context) (nvml.Inventory, error) {
		src, err := nvml.Open(nvml.Spec{Source: p.GPUSource, Seed: p.GPUSeed, Faults: p.GPUFaults})
		if err != nil {
			return nvml.Inventory{}, fmt.Errorf("look at GPUs: %w", err)
		}
		inv, err := src.Inventory()
		if err := errors.Join(err, src.Close()); err != nil {
			return nvml.Inventory{}, fmt.Errorf("look at GPUs: %w", err)
		}
		return inv, nil
	}
}

func openProgress(start Start, log hclog.Logger) (source, error) {
	c := progress.Config{
		Checkpoints: start.Checkpoint.Paths, Socket: filepath.Join(start.Files.Dir, fileProgress),
		// Another network's 127.0.0.1 is not ours.
		HTTP:  start.Workload.NetworkNamespace == "" && (start.Container == nil || start.Container.NetworkNamespace == ""),
		Fault: func(err error) { log.Warn("the task's progress", "fault", err) },
	}
	if start.Container != nil {
		c.SocketMode = 0o666 // its users are the image's
	} else if owner, ok := ownerOf(start.Workload.User); ok {
		c.SocketOwner = owner
	}
	src, err := progress.Open(c)
	if err != nil {
		return nil, err
	}
	return src, nil
}

// ownerOf finds the workload's user. One that is not known is for the start to
// complain about.
func ownerOf(name string) (*progress.Owner, bool) {
	name, _, _ = strings.Cut(name, ":")
	if name == "" {
		return nil, false
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, false
		}
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	return &progress.Owner{UID: uid, GID: gid}, uidErr == nil && gidErr == nil
}

// run runs the task until the supervisor is destroyed.
func (s *supervisor) run() {
	var once sync.Once
	stop := func() { once.Do(func() { close(s.end) }) }
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE)
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, unix.SIGTERM)

	keeping, kept := context.WithCancel(context.Background())
	var store, others sync.WaitGroup
	store.Go(func() { s.store.run(keeping) })
	srv := &http.Server{
		Handler:           (&server{runner: s.runner, board: s.board, destroyed: stop}).handler(),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          s.log.logger().StandardLogger(nil),
		BaseContext:       func(net.Listener) context.Context { return s.runner.ctx },
	}
	others.Go(func() { _ = srv.Serve(s.listener) })
	others.Go(func() { s.watch(terms, stop) })
	others.Go(func() {
		<-s.end
		s.runner.quit()
	})
	s.runner.run()

	leave, cancel := context.WithTimeout(context.Background(), leaveFor)
	defer cancel()
	if srv.Shutdown(leave) != nil {
		_ = srv.Close()
	}
	kept()
	// A disk that hangs must not keep the supervisor.
	within(leaveFor, func() {
		store.Wait()
		others.Wait()
		s.log.Close()
	})
	_ = os.Remove(filepath.Join(s.dir, fileSocket))
	_ = s.lock.Close()
}

// reachable reports whether the state directory still is this supervisor's.
func (s *supervisor) reachable() bool {
	ours, err := s.lock.Stat()
	if err != nil {
		return true
	}
	there, err := os.Stat(s.lock.Name())
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	return err != nil || os.SameFile(ours, there)
}

// within waits for f, but not longer than limit.
func within(limit time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// watch ends the task when the host goes down, and the supervisor some time
// after the task.
func (s *supervisor) watch(terms <-chan os.Signal, stop func()) {
	var linger <-chan time.Time
	look := time.NewTicker(lookAtDir)
	defer look.Stop()
	for {
		status, _, changed := s.board.look(0)
		if status.Exit != nil && linger == nil {
			timer := time.NewTimer(lingerFor)
			defer timer.Stop()
			linger = timer.C
		}
		select {
		case <-changed:
		case <-terms:
			s.runner.post(machine.StopAsked{Timeout: s.runner.start.killAfter()})
		case <-look.C:
			if !s.reachable() {
				// To everybody else this supervisor is dead, and its task may be
				// started again.
				s.runner.post(machine.StopAsked{})
				if status.Exit != nil {
					stop()
				}
			}
		case <-linger:
			stop()
		case <-s.end:
			return
		}
	}
}

func newPlannerClient(b Barrier) (*gangapi.Client, error) {
	return gangapi.NewClient(gangapi.Config{
		Addresses: b.Planners, IdentityFile: b.IdentityFile,
		CAFile: b.TLS.CAFile, CertFile: b.TLS.CertFile, KeyFile: b.TLS.KeyFile, ServerName: b.TLS.ServerName,
	})
}
