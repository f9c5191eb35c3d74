package progress

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxPatterns = 64
	// maxLooked bounds the files that one look at the checkpoints touches.
	maxLooked = 20_000
	// maxDepth bounds how far below a checkpoint its files may be.
	maxDepth = 32
)

// errTooMany ends a look that has touched maxLooked files.
var errTooMany = fmt.Errorf("more than %d files to look at for checkpoints: name narrower paths", maxLooked)

// checkPattern says what is wrong with a checkpoint path.
func checkPattern(pattern string) error {
	_, syntax := path.Match(pattern, "")
	switch {
	case !filepath.IsAbs(pattern):
		return fmt.Errorf("checkpoint path %q: must be absolute", pattern)
	case syntax != nil:
		return fmt.Errorf("checkpoint path %q: %w", pattern, syntax)
	case strings.Contains(pattern, "**"):
		return fmt.Errorf("checkpoint path %q: ** is not known; write one * for each level", pattern)
	case len(pattern) > maxPath || strings.ContainsRune(pattern, 0):
		return fmt.Errorf("checkpoint path %.40q…: at most %d bytes, without NUL", pattern, maxPath)
	}
	return nil
}

func magic(s string) bool { return strings.ContainsAny(s, `*?[\`) }

// partial says whether a name is, by custom, that of something half-written.
func partial(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") {
		return true
	}
	return slices.Contains([]string{".tmp", ".temp", ".part", ".partial", ".incomplete"}, strings.ToLower(path.Ext(name)))
}

// looker is one look at the file system.
type looker struct {
	left   int
	faults *faults
	// dirs are the directories whose changes make another look worth while.
	dirs []string
}

// spend takes from the budget.
func (l *looker) spend() error {
	if l.left--; l.left < 0 {
		return errTooMany
	}
	return nil
}

// expand returns the entries that a pattern stands for. What is missing is not
// there yet; anything else that is wrong is told.
func (l *looker) expand(pattern string) ([]string, error) {
	clean := filepath.Clean(pattern)
	if !magic(clean) {
		info, err := os.Lstat(clean)
		if err == nil && info.Mode()&fs.ModeSymlink != 0 && strings.HasSuffix(pattern, "/") {
			// A link counts by itself, unless it is said to be a directory.
			info, err = os.Stat(clean)
		}
		if err == nil && info.IsDir() {
			return l.list(clean, "*")
		}
		l.dirs = append(l.dirs, filepath.Dir(clean))
		l.tell(clean, err)
		return []string{clean}, nil
	}
	found := []string{"/"}
	for part := range strings.SplitSeq(strings.TrimPrefix(clean, "/"), "/") {
		var next []string
		for _, dir := range found {
			if !magic(part) {
				next = append(next, filepath.Join(dir, part))
				continue
			}
			matches, err := l.list(dir, part)
			if err != nil {
				return nil, err
			}
			next = append(next, matches...)
		}
		found = next
	}
	return found, nil
}

// list returns the entries of a directory that match, sorted.
func (l *looker) list(dir, pattern string) ([]string, error) {
	l.dirs = append(l.dirs, dir)
	var out []string
	err := l.each(dir, func(e fs.DirEntry) error {
		if ok, err := path.Match(pattern, e.Name()); err == nil && ok && !partial(e.Name()) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
		return nil
	})
	slices.Sort(out)
	return out, err
}

// each reads a directory in pieces, so that one that is too large is left
// before it is read whole. Only errTooMany, and f's errors, are returned.
func (l *looker) each(dir string, f func(fs.DirEntry) error) error {
	// Stat first: opening something else, a named pipe for instance, may block.
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		l.tell(dir, err)
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		l.tell(dir, err)
		return nil
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(256)
		for _, e := range entries {
			if err := l.spend(); err != nil {
				return err
			}
			if err := f(e); err != nil {
				return err
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				l.tell(dir, err)
			}
			return nil
		}
	}
}

// tell passes on what is wrong with a path. That it is missing is not: it may
// be made later, or has just gone.
func (l *looker) tell(path string, err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.faults.tell("path "+path, fmt.Errorf("look for checkpoints: %w", err))
	}
}
