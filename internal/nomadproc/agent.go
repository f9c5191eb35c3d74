package nomadproc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caravan-sched/caravan/internal/devcluster/reaper"
)

// keptLines is how much of an agent's log an error quotes, and logGrace how
// long it waits for the last of them.
const (
	keptLines = 15
	logGrace  = time.Second
)

// agent is a Nomad agent that can be started, killed, and started again.
type agent struct {
	name    string
	bin     string
	configs []string
	// prefix is a command that runs the agent in another network.
	prefix []string
	// env is added to our environment.
	env []string
	log func(string)

	mu  sync.Mutex
	cmd *exec.Cmd
	// exited closes when the process ends, reported a little later: when the
	// end of its log was read.
	exited, reported chan struct{}
	tail             []string
}

func (a *agent) start() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cmd != nil {
		return fmt.Errorf("start agent %q: it is running", a.name)
	}
	args := append(slices.Clone(a.prefix), a.bin, "agent")
	for _, c := range a.configs {
		args = append(args, "-config", c)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(cleanEnv(), a.env...)
	// A process group of its own, so that Ctrl-C does not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start agent %q: %w", a.name, err)
	}
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start agent %q: %w", a.name, err), output.Close(), writer.Close())
	}
	writer.Close()
	exited, reported, copied := make(chan struct{}), make(chan struct{}), make(chan struct{})
	a.cmd, a.exited, a.reported, a.tail = cmd, exited, reported, nil
	go func() {
		defer close(copied)
		a.copyLog(output)
	}()
	go func() {
		// How it ended does not matter: we kill it, or its log says why.
		_ = cmd.Wait()
		close(exited)
		// Its plugins may live on and hold the log open.
		select {
		case <-copied:
		case <-time.After(logGrace):
		}
		close(reported)
	}()
	return nil
}

// cleanEnv is our environment without what would configure an agent.
func cleanEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "NOMAD_") || strings.HasPrefix(kv, reaper.Variable+"=") || strings.HasPrefix(kv, "TMPDIR=") || strings.HasPrefix(kv, "PATH=")
	})
}

// copyLog reads until the last process that writes to the pipe has ended;
// plugins may outlive their agent.
func (a *agent) copyLog(output io.ReadCloser) {
	defer output.Close()
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		a.mu.Lock()
		if a.tail = append(a.tail, line); len(a.tail) > keptLines {
			a.tail = a.tail[1:]
		}
		a.mu.Unlock()
		if a.log != nil {
			a.log(a.name + ": " + strings.TrimSpace(line))
		}
	}
	// A line too long to keep must not block the agent.
	_, _ = io.Copy(io.Discard, output)
}

// kill ends the agent without a goodbye and waits until it is gone. Tasks and
// plugins stay, as they do when an agent crashes.
func (a *agent) kill() error {
	a.mu.Lock()
	cmd, exited := a.cmd, a.exited
	a.cmd = nil
	a.mu.Unlock()
	if cmd == nil {
		return fmt.Errorf("kill agent %q: it is not running", a.name)
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill agent %q: %w", a.name, err)
	}
	<-exited
	return nil
}

// running says whether the agent was started and not killed. An agent that
// ended by itself is an error, which quotes its log.
func (a *agent) running() (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cmd == nil {
		return false, nil
	}
	select {
	case <-a.reported:
		return false, fmt.Errorf("agent %q ended by itself: %s", a.name, strings.Join(a.tail, "\n"))
	default:
		return true, nil
	}
}
