package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// ExecSpec describes a command that is run inside a running workload: in its
// cgroups, namespaces and directory, as its user, with its environment and
// limits.
type ExecSpec struct {
	// Command is the command and its arguments, looked up as the workload's is.
	Command []string
	// Env is added to the workload's environment.
	Env []string

	// TTY gives the command a terminal; Stderr is then not used.
	TTY bool
	// Size is the terminal's first size; zero is 24 × 80.
	Size Size

	// Stdin is read until it ends; nil is empty. A reader that blocks after the
	// command ended holds nothing up, but a goroutine until it returns. Stdout
	// and Stderr may be nil.
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Size is a terminal's, in characters.
type Size struct {
	Rows, Columns uint16
}

// Session is a command running in a workload.
type Session struct {
	workload *Workload
	child    *child
	// terminal is nil without a TTY.
	terminal *os.File
	// ours are this side's ends of what the command reads and writes.
	ours []*os.File
	// copied is closed when all output was written.
	copied chan struct{}
	finish func()
}

// outputGrace is how long output is waited for after a command ended; another
// process may have inherited its end for ever.
const outputGrace = 2 * time.Second

// endGrace is how long an ending workload may take to have ended.
const endGrace = time.Second

// Exec runs a command in the workload; ErrNotRunning once it has ended. The
// context only bounds the start. Wait must be called.
func (w *Workload) Exec(ctx context.Context, spec ExecSpec) (*Session, error) {
	if w.Frozen() {
		return nil, errors.New("run in workload: it is suspended")
	}
	config, err := w.sessionConfig(spec)
	if err != nil {
		return nil, err
	}
	namespaces, err := w.joinable(&config)
	if err != nil {
		return nil, fmt.Errorf("run in workload: %w", err)
	}
	defer closeAll(namespaces)
	s := &Session{workload: w, copied: make(chan struct{})}
	s.finish = sync.OnceFunc(s.giveBack)
	theirs, err := s.connect(spec, config.User)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, startDeadline)
		defer cancel()
		s.child, err = launch{
			config: config, namespaces: namespaces, groups: w.groups, mark: w.ID(),
			stdin: theirs[0], stdout: theirs[1], stderr: theirs[2],
		}.start(ctx, w.host)
	}
	closeAll(theirs)
	if err != nil {
		closeAll(s.ours)
		return nil, fmt.Errorf("run in workload: %w", w.orEnded(err))
	}
	w.mu.Lock()
	w.sessions[s] = struct{}{}
	w.tree.roots[s.child.outer] = s.child.start
	w.mu.Unlock()
	go s.copy(spec)
	return s, nil
}

// orEnded is ErrNotRunning if the reason of a failure is that the workload is
// about to end: what is started in its PID namespace then fails in many ways,
// before the end shows.
func (w *Workload) orEnded(err error) error {
	var fault *SpecError
	if errors.As(err, &fault) {
		return err
	}
	moment := time.NewTimer(endGrace)
	defer moment.Stop()
	select {
	case <-w.main.done:
		return ErrNotRunning
	case <-moment.C:
		return err
	}
}

// sessionConfig is the workload's, for another command.
func (w *Workload) sessionConfig(spec ExecSpec) (childConfig, error) {
	config := w.plan.child
	config.OwnMounts, config.MountProc, config.Mounts, config.NetworkNamespace = false, false, nil, ""
	config.TTY = spec.TTY
	var faults, more []Fault
	config.Env, faults = mergeEnv(config.Env, spec.Env)
	config.Env, _ = mergeEnv(config.Env, []string{Mark + "=" + w.ID()})
	if spec.TTY {
		config.Env, _ = mergeEnv([]string{"TERM=xterm"}, config.Env)
	}
	command := ""
	if len(spec.Command) > 0 {
		command = spec.Command[0]
		more = checkArgs(spec.Command[1:])
	}
	faults = append(faults, more...)
	config.Path, more = lookCommand(command, config.Dir, config.Env)
	if faults = append(faults, more...); len(faults) > 0 {
		return childConfig{}, &SpecError{Faults: faults}
	}
	config.Args = spec.Command
	return config, nil
}

// joinable opens the namespaces in which the workload is and this process is
// not.
func (w *Workload) joinable(config *childConfig) ([]*os.File, error) {
	var open []*os.File
	for _, n := range namespaceKinds {
		theirs, err := os.Open(filepath.Join(w.host.proc, strconv.Itoa(w.main.pid), "ns", n.name))
		if errors.Is(err, os.ErrNotExist) {
			continue // checked below: either it has ended, or the kernel has none
		}
		if err != nil {
			closeAll(open)
			return nil, err
		}
		if own, err := os.Stat(filepath.Join(w.host.proc, "self/ns", n.name)); err == nil && sameFile(own, theirs) {
			_ = theirs.Close()
			continue
		}
		open = append(open, theirs)
		config.Join = append(config.Join, n.kind)
		config.Between = config.Between || n.kind == unix.CLONE_NEWPID
	}
	// While it lives its PID is its own, so what was opened was its.
	if err := w.main.signal(0); err != nil {
		closeAll(open)
		return nil, err
	}
	return open, nil
}

func sameFile(info os.FileInfo, f *os.File) bool {
	other, err := f.Stat()
	return err == nil && os.SameFile(info, other)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// connect makes the terminal or the pipes; theirs are the command's ends of its
// input, output and errors.
func (s *Session) connect(spec ExecSpec, id *identity) (theirs []*os.File, err error) {
	if spec.TTY {
		terminal, tty, err := pty.Open()
		if err != nil {
			return make([]*os.File, 3), fmt.Errorf("open terminal: %w", err)
		}
		s.terminal, s.ours = terminal, []*os.File{terminal}
		size := spec.Size
		if size == (Size{}) {
			size = Size{Rows: 24, Columns: 80}
		}
		err = pty.Setsize(terminal, &pty.Winsize{Rows: size.Rows, Cols: size.Columns})
		if id != nil {
			err = errors.Join(err, tty.Chown(id.UID, -1))
		}
		// One file for all three; closing it thrice does no harm.
		return []*os.File{tty, tty, tty}, err
	}
	theirs, s.ours = make([]*os.File, 3), make([]*os.File, 3)
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return theirs, fmt.Errorf("make pipe: %w", err)
		}
		if theirs[i], s.ours[i] = w, r; i == 0 {
			theirs[i], s.ours[i] = r, w
		}
	}
	return theirs, nil
}

// copy moves input and output until the command has ended and all was written.
func (s *Session) copy(spec ExecSpec) {
	go s.copyInput(spec)
	var outputs sync.WaitGroup
	write := func(to io.Writer, from *os.File) {
		if to == nil {
			to = io.Discard
		}
		outputs.Go(func() {
			if _, err := io.Copy(to, from); err != nil {
				// Nobody listens any more, or a terminal has no more writers
				// (EIO). The command must not get stuck.
				_, _ = io.Copy(io.Discard, from)
			}
		})
	}
	if spec.TTY {
		write(spec.Stdout, s.terminal)
	} else {
		write(spec.Stdout, s.ours[1])
		write(spec.Stderr, s.ours[2])
	}
	outputs.Wait()
	close(s.copied)
}

// endOfInput is what a terminal takes for the end of input (^D).
const endOfInput = 4

func (s *Session) copyInput(spec ExecSpec) {
	to := s.ours[0]
	if spec.Stdin != nil {
		// The command may end or close its input before all was read.
		_, _ = io.Copy(to, spec.Stdin)
	}
	if spec.TTY {
		if spec.Stdin != nil {
			_, _ = to.Write([]byte{endOfInput})
		}
		return
	}
	_ = to.Close()
}

// PID is the command's process ID on the host.
func (s *Session) PID() int { return s.child.pid }

// Resize changes the size of the command's terminal.
func (s *Session) Resize(size Size) error {
	if s.terminal == nil {
		return errors.New("resize terminal: the command has none")
	}
	if err := pty.Setsize(s.terminal, &pty.Winsize{Rows: size.Rows, Cols: size.Columns}); err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	return nil
}

// Signal sends a signal to the command; ErrNotRunning once it has ended.
func (s *Session) Signal(sig syscall.Signal) error {
	if err := s.child.signal(sig); err != nil {
		return fmt.Errorf("signal command: %w", err)
	}
	return nil
}

// Wait returns how the command ended, after its output was written; output that
// others hold open is waited for briefly. When the context ends first, the
// command is killed.
func (s *Session) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-s.child.done:
	case <-ctx.Done():
		_ = s.child.signal(unix.SIGKILL)
		<-s.child.done
		s.finish()
		return Exit{}, fmt.Errorf("wait for command: %w", ctx.Err())
	}
	grace := time.NewTimer(outputGrace)
	defer grace.Stop()
	select {
	case <-s.copied:
	case <-grace.C:
	case <-ctx.Done():
	}
	s.finish()
	return exitOf(s.child.status), nil
}

// abandon ends a session that nobody waits for any more.
func (s *Session) abandon() {
	<-s.child.done
	s.finish()
}

func (s *Session) giveBack() {
	closeAll(s.ours)
	s.child.release()
	s.workload.mu.Lock()
	defer s.workload.mu.Unlock()
	delete(s.workload.sessions, s)
	delete(s.workload.tree.roots, s.child.outer)
}
