package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/progress"
	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// The files for the user's code, in Files.Dir.
const (
	fileMembership = "membership.json"
	fileHosts      = "hostfile"
	fileDeepSpeed  = "hostfile.deepspeed"
	fileProgress   = "progress.sock"
)

// source is where progress comes from; *progress.Source is one.
type source interface {
	Socket() string
	URL() string
	Changed() <-chan struct{}
	Progress() *gangapi.Progress
	Mark(ctx context.Context) progress.Mark
	Newer(m progress.Mark) (gangapi.Checkpoint, bool)
	Close()
}

// scene is what the user's code finds: files, variables, and somebody to tell
// its progress to.
type scene struct {
	files Files
	// open opens the source of progress.
	open func() (source, error)

	mu     sync.Mutex
	source source
	mark   progress.Mark
	marked bool
	// opened is closed when there is a source.
	opened chan struct{}
}

func newScene(files Files, open func() (source, error)) *scene {
	return &scene{files: files, open: open, opened: make(chan struct{})}
}

// Prepare implements preparer. The source is opened once: what was told in the
// attempt before stays known.
func (s *scene) Prepare(ctx context.Context, p plan) (map[string]string, error) {
	if s.files.Dir == "" {
		return map[string]string{}, nil
	}
	if err := os.MkdirAll(s.files.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make directory for the task's files: %w", err)
	}
	src, err := s.theSource()
	if err != nil {
		return nil, err
	}
	local := rendezvous.Local{Interface: s.files.Interface, Socket: s.seen(src.Socket()), HTTP: src.URL()}
	if p.membership == nil {
		return withoutGang(local), nil
	}
	local.MembershipFile = s.seen(s.path(fileMembership))
	local.HostFile = s.seen(s.path(fileHosts))
	local.DeepSpeedHostFile = s.seen(s.path(fileDeepSpeed))
	env, err := rendezvous.Env(*p.membership, p.alloc, local)
	if err != nil {
		return nil, fmt.Errorf("make environment of the rendezvous: %w", err)
	}
	return env, s.Update(p)
}

// withoutGang are the variables for a task that has no rank.
func withoutGang(local rendezvous.Local) map[string]string {
	env := map[string]string{}
	for key, value := range map[string]string{"CARAVAN_SOCKET": local.Socket, "CARAVAN_HTTP": local.HTTP} {
		if value != "" {
			env[key] = value
		}
	}
	return env
}

// Update implements preparer. The membership comes last: who watches it finds
// the others up to date.
func (s *scene) Update(p plan) error {
	m, err := rendezvous.JSON(*p.membership)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		body []byte
	}{
		{fileHosts, []byte(rendezvous.HostFile(*p.membership))},
		{fileDeepSpeed, []byte(rendezvous.DeepSpeedHostFile(*p.membership))},
		{fileMembership, m},
	} {
		if err := writePublic(s.path(f.name), f.body); err != nil {
			return err
		}
	}
	return nil
}

// writePublic replaces a file that the user's code reads.
func writePublic(path string, body []byte) (err error) {
	// The directory is the user's, too: nothing is written through what lies
	// there already.
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	_, err = tmp.Write(body)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

func (s *scene) path(name string) string { return filepath.Join(s.files.Dir, name) }

// seen is a path as the user's code has it.
func (s *scene) seen(path string) string {
	rel, err := filepath.Rel(s.files.Dir, path)
	if s.files.SeenAs == "" || err != nil || !filepath.IsLocal(rel) {
		return path
	}
	return filepath.Join(s.files.SeenAs, rel)
}

func (s *scene) theSource() (source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.source != nil {
		return s.source, nil
	}
	src, err := s.open()
	if err != nil {
		return nil, err
	}
	s.source = src
	close(s.opened)
	return src, nil
}

func (s *scene) current() source {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source
}

// Changed implements preparer.
func (s *scene) Changed() <-chan struct{} {
	if src := s.current(); src != nil {
		return src.Changed()
	}
	return s.opened
}

// Progress implements preparer.
func (s *scene) Progress() *gangapi.Progress {
	if src := s.current(); src != nil {
		return src.Progress()
	}
	return nil
}

// Ask implements preparer.
func (s *scene) Ask(ctx context.Context) {
	src := s.current()
	if src == nil {
		return
	}
	mark := src.Mark(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark, s.marked = mark, true
}

// Answer implements preparer.
func (s *scene) Answer() (gangapi.Checkpoint, bool) {
	s.mu.Lock()
	src, mark, marked := s.source, s.mark, s.marked
	s.mu.Unlock()
	if src == nil || !marked {
		return gangapi.Checkpoint{}, false
	}
	return src.Newer(mark)
}

// Close implements preparer.
func (s *scene) Close() {
	if src := s.current(); src != nil {
		src.Close()
	}
}
