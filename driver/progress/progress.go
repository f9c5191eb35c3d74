// Package progress learns from a task's own code how far it is, and when a
// checkpoint is complete: by watching for the checkpoints themselves, by lines
// on a Unix socket, and by an HTTP hook. The code that tells is not trusted:
// whatever it writes, and however much, costs a bounded amount of work, and
// what is wrong with it is told once.
package progress

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/caravan-sched/caravan/driver/gangapi"
)

// Config says where to look and listen. The zero value does neither.
type Config struct {
	// Checkpoints are absolute paths of what a checkpoint is seen by: a file
	// that is written for each checkpoint, a directory whose entries are the
	// checkpoints, or a glob (with *, ? and [], not **) whose matches are. An
	// entry counts once it has not changed for Settle; names that end in .tmp,
	// .part, .partial or .incomplete or start with a dot do not count.
	Checkpoints []string
	// Settle is how long an entry must be at rest; 0 is DefaultSettle. Poll is
	// the time between two looks where nothing else says that something has
	// changed; 0 is DefaultPoll.
	Settle time.Duration
	Poll   time.Duration

	// Socket is the path to listen at for lines; "" is nowhere. Where it is too
	// long for a Unix socket a short one below the directory for temporary files
	// is made; Source.Socket says where.
	Socket string
	// SocketMode and, if not nil, SocketOwner are given to the socket, for code
	// that runs as another user. 0 is DefaultSocketMode.
	SocketMode  fs.FileMode
	SocketOwner *Owner
	// HTTP turns the hook on. It listens on 127.0.0.1 below a path that cannot
	// be guessed, because other users of the host can reach that address.
	HTTP bool

	// Fault is called with each thing that is wrong, once, from any goroutine.
	// It must not block. nil is allowed.
	Fault func(error)
}

// Owner is a user and group, by number.
type Owner struct{ UID, GID int }

// The defaults of Config.
const (
	DefaultSettle                 = time.Second
	DefaultPoll                   = 2 * time.Second
	DefaultSocketMode fs.FileMode = 0o600
)

// Source is where progress comes from. It is safe for concurrent use.
type Source struct {
	config Config
	socket string
	url    string
	// limit bounds the bytes that are taken in through the socket.
	limit  *rate.Limiter
	faults *faults

	stop    context.CancelFunc
	closers []func()
	running sync.WaitGroup
	watch   *watcher // nil without Checkpoints

	mu    sync.Mutex
	state state
	// changed is closed and replaced whenever state changes.
	changed chan struct{}
}

// state is what is known. sequence numbers what happens, so that "newer" does
// not depend on clocks.
type state struct {
	sequence   uint64
	at         time.Time
	step       *int64
	loss       *float64
	amounts    amounts
	checkpoint *checkpoint
}

// checkpoint is the last complete one.
type checkpoint struct {
	// begun is the state's sequence when its writing was first noticed.
	begun uint64
	// at has a monotonic reading unless the checkpoint was there before the
	// source: then it is the file's time.
	at   time.Time
	step *int64
	path string
}

// Open starts to look and listen. The error has every fault of the
// configuration, or says what could not be opened.
func Open(config Config) (*Source, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("open progress: %w", err)
	}
	config.Settle = orElse(config.Settle, DefaultSettle)
	config.Poll = orElse(config.Poll, DefaultPoll)
	config.SocketMode = orElse(config.SocketMode, DefaultSocketMode)
	ctx, stop := context.WithCancel(context.Background())
	s := &Source{config: config, limit: rate.NewLimiter(maxBytesPerSecond, maxBytesPerSecond), faults: newFaults(config.Fault), stop: stop, changed: make(chan struct{})}
	var err error
	if config.Socket != "" {
		err = s.listen(ctx)
	}
	if err == nil && config.HTTP {
		err = s.hook()
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("open progress: %w", err)
	}
	if len(config.Checkpoints) > 0 {
		s.watch = newWatcher(config, s.faults, s.begin, s.found)
		s.running.Go(func() { s.watch.run(ctx, notify()) })
	}
	return s, nil
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func (c Config) validate() error {
	var faults []error
	for _, p := range c.Checkpoints {
		faults = append(faults, checkPattern(p))
	}
	if len(c.Checkpoints) > maxPatterns {
		faults = append(faults, fmt.Errorf("%d checkpoint paths: at most %d", len(c.Checkpoints), maxPatterns))
	}
	if c.Settle < 0 || c.Poll < 0 {
		faults = append(faults, fmt.Errorf("settle = %v, poll = %v: must not be negative", c.Settle, c.Poll))
	}
	return errors.Join(faults...)
}

// closeWait bounds how long Close waits for a look at a file system that hangs.
const closeWait = 2 * time.Second

// Close stops looking and listening, and takes the socket away. What is known
// stays known.
func (s *Source) Close() {
	s.stop()
	for _, f := range s.closers {
		f()
	}
	s.closers = nil
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closeWait):
	}
}

// Socket is the path of the Unix socket, "" without one.
func (s *Source) Socket() string { return s.socket }

// URL is the hook's base URL, "" without one: progress is posted to
// URL/v1/progress.
func (s *Source) URL() string { return s.url }

// Changed is closed when something new becomes known.
func (s *Source) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Progress is what is known, nil if nothing is.
func (s *Source) Progress() *gangapi.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.at.IsZero() {
		return nil
	}
	p := &gangapi.Progress{At: s.state.at.Round(0), Step: s.state.step, Loss: s.state.loss}
	s.state.amounts.apply(p)
	if s.state.checkpoint != nil {
		c := s.state.checkpoint.report()
		p.Checkpoint = &c
	}
	return p
}

func (c *checkpoint) report() gangapi.Checkpoint {
	return gangapi.Checkpoint{At: c.at.Round(0), AgeMS: max(0, time.Since(c.at).Milliseconds()), Step: c.step, Path: c.path}
}

// Mark is a moment that checkpoints are compared with. It depends on no clock.
type Mark struct{ sequence uint64 }

// Mark is now. It looks at the checkpoints once more first, so that one that
// was complete, or begun, before is not taken for newer; a file system that
// hangs delays it no longer than ctx.
func (s *Source) Mark(ctx context.Context) Mark {
	if s.watch != nil {
		s.watch.look(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.sequence++
	return Mark{s.state.sequence}
}

// Newer returns the last checkpoint if its writing began after the mark, or,
// where the code itself told of it, if it told so after the mark.
func (s *Source) Newer(m Mark) (gangapi.Checkpoint, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.state.checkpoint; c != nil && c.begun > m.sequence {
		return c.report(), true
	}
	return gangapi.Checkpoint{}, false
}

// WaitNewer waits for a checkpoint that Newer returns. The error is the
// context's.
func (s *Source) WaitNewer(ctx context.Context, m Mark) (gangapi.Checkpoint, error) {
	for {
		changed := s.Changed()
		if c, ok := s.Newer(m); ok {
			return c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return gangapi.Checkpoint{}, fmt.Errorf("wait for a checkpoint: %w", ctx.Err())
		}
	}
}

// apply takes in what the code told.
func (s *Source) apply(t told) {
	now := time.Now()
	s.update(func(st *state) {
		st.at = now
		if t.step != nil {
			st.step = t.step
		}
		if t.loss != nil {
			st.loss = t.loss
			if !finite(*t.loss) {
				st.loss = nil
				s.faults.tell("loss", fmt.Errorf("the loss is %v", *t.loss))
			}
		}
		for i, x := range t.amounts {
			if x != nil {
				st.amounts[i] = x
			}
		}
		if c := t.checkpoint; c != nil {
			st.checkpoint = &checkpoint{begun: st.sequence, at: now, step: c.step, path: c.path}
		}
	})
}

func finite(x float64) bool { return x-x == 0 }

// found takes in a checkpoint that was seen.
func (s *Source) found(c checkpoint) {
	s.update(func(st *state) {
		if last := st.checkpoint; last != nil && (last.at.After(c.at) || last.path == c.path && last.begun > c.begun) {
			return // the code itself has told of a newer one, or of this one
		}
		if c.at.After(st.at) {
			st.at = c.at
		}
		st.checkpoint = &c
	})
}

// update changes the state under a new sequence number.
func (s *Source) update(change func(*state)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.sequence++
	change(&s.state)
	close(s.changed)
	s.changed = make(chan struct{})
}

// begin returns the sequence number of something that has just been noticed.
func (s *Source) begin() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.sequence++
	return s.state.sequence
}

// maxFaults bounds how many different faults are told.
const maxFaults = 64

// faults tells each fault once.
type faults struct {
	mu   sync.Mutex
	told map[string]bool
	out  func(error)
}

func newFaults(f func(error)) *faults {
	if f == nil {
		f = func(error) {}
	}
	return &faults{told: map[string]bool{}, out: f}
}

// tell passes a fault on unless one of the same kind was.
func (f *faults) tell(kind string, err error) {
	f.mu.Lock()
	known := f.told[kind] || len(f.told) >= maxFaults
	if !known {
		f.told[kind] = true
	}
	f.mu.Unlock()
	if !known {
		f.out(err)
	}
}
