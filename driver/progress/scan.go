package progress

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// scanner finds out which entries are complete by looking at them again and
// again. Its only clock is the one that says when it looked: the times of files
// may be another machine's, or set at will.
type scanner struct {
	patterns []string
	settle   time.Duration
	faults   *faults
	// begin numbers the moment at which a new entry, or a new version of one, is
	// first seen.
	begin   func() uint64
	entries map[string]*entry
	looks   int
	// known is set once everything that was there at the start was seen.
	known bool
	// newest is the path of the entry that became complete last.
	newest string
}

// entry is a checkpoint, complete or being written.
type entry struct {
	path string
	// info is of the file itself, links followed.
	info fs.FileInfo
	sign signature
	// begun numbers the start of this version, changed is when it was last seen
	// to change.
	begun   uint64
	changed time.Time
	settled bool
	// first is set for what was there at the start and is unchanged.
	first bool
	// cut is set when the budget did not allow to look at all of it.
	cut  bool
	look int
}

// signature tells versions apart. The sum does not depend on the order in which
// a directory lists its files.
type signature struct {
	sum   uint64
	files int
	link  string
}

// outcome is what a look found.
type outcome struct {
	// complete is the newest of the checkpoints that have become complete.
	complete *checkpoint
	// unsettled says that something is being written, so that another look is
	// due after the time to settle.
	unsettled bool
	dirs      []string
}

// scan looks once. now must have a monotonic reading.
func (s *scanner) scan(now time.Time) outcome {
	l := &looker{left: maxLooked, faults: s.faults}
	s.looks++
	whole := true
	var best *entry
	for _, pattern := range s.patterns {
		paths, err := l.expand(pattern)
		for _, path := range paths {
			if err != nil {
				break
			}
			var e *entry
			if e, err = s.examine(l, path, now); e != nil && (best == nil || later(e, best)) {
				best = e
			}
		}
		if err != nil {
			whole = false
			s.faults.tell("many", err)
			break
		}
	}
	s.known = s.known || whole
	out := outcome{dirs: l.dirs}
	for path, e := range s.entries {
		if whole && e.look != s.looks {
			delete(s.entries, path) // it is gone
			continue
		}
		out.unsettled = out.unsettled || !e.settled
	}
	if best != nil {
		s.newest = best.path
		c := checkpoint{begun: best.begun, at: best.changed, step: stepOf(best.path), path: best.path}
		if best.first {
			c.at = best.info.ModTime()
		}
		out.complete = &c
	}
	return out
}

// later says which of two entries that became complete in one look is the newer.
func later(a, b *entry) bool {
	return cmp.Or(a.changed.Compare(b.changed), a.info.ModTime().Compare(b.info.ModTime()), strings.Compare(a.path, b.path)) > 0
}

// examine looks at one entry, and returns it if it has become complete.
func (s *scanner) examine(l *looker, path string, now time.Time) (*entry, error) {
	if err := l.spend(); err != nil {
		return nil, err
	}
	info, link, err := stat(path)
	if err != nil {
		l.tell(path, err)
		return nil, nil
	}
	old := s.entries[path]
	if old != nil && old.settled && path != s.newest && alike(old.info, info) && old.sign.link == link {
		old.look = s.looks
		return nil, nil // looking into each of many old ones would cost too much
	}
	sign := signature{link: link}
	err = l.sum(path, info, &sign, 0)
	e := &entry{path: path, info: info, sign: sign, look: s.looks, changed: now, cut: err != nil}
	switch {
	case err == nil && old != nil && old.sign == sign && alike(old.info, info):
		e.begun, e.changed, e.settled, e.first = old.begun, old.changed, old.settled, old.first
	case old == nil || old.settled || !os.SameFile(old.info, info):
		e.begun, e.first = s.begin(), !s.known
	default:
		e.begun, e.first = old.begun, old.first && old.cut
	}
	s.entries[path] = e
	if err == nil && !e.settled && now.Sub(e.changed) >= s.settle {
		e.settled = true
		return e, nil
	}
	return nil, err
}

func alike(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

// stat follows a link, and says where it led. A link that leads nowhere is a
// fault, not something that is still missing.
func stat(path string) (fs.FileInfo, string, error) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return info, "", err
	}
	link, err := os.Readlink(path)
	if err != nil {
		return nil, "", err
	}
	if info, err = os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("%s is a link to %s, which is not there", path, link)
	}
	return info, link, err
}

// sum adds a file, or a directory with all that is in it, to a signature. Links
// inside are not followed. Files that vanish meanwhile are not counted.
func (l *looker) sum(path string, info fs.FileInfo, sign *signature, depth int) error {
	h := fnv.New64a()
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], uint64(info.Size()))
	binary.LittleEndian.PutUint64(b[8:], uint64(info.ModTime().UnixNano()))
	binary.LittleEndian.PutUint64(b[16:], uint64(info.Mode()))
	h.Write(b[:])
	h.Write([]byte(path))
	sign.sum += h.Sum64()
	sign.files++
	if !info.IsDir() {
		return nil
	}
	if depth >= maxDepth {
		l.faults.tell("deep "+path, fmt.Errorf("look for checkpoints: %s: more than %d directories deep", path, maxDepth))
		return nil
	}
	return l.each(path, func(e fs.DirEntry) error {
		info, err := e.Info()
		if err != nil {
			return nil
		}
		return l.sum(filepath.Join(path, e.Name()), info, sign, depth+1)
	})
}

var stepPattern = regexp.MustCompile(`(?i)(?:step|iter|iteration|checkpoint|ckpt)s?[=_.-]?([0-9]{1,18})(?:[^0-9]|$)`)

// stepOf reads the step from a checkpoint's name as most trainers write it:
// step-1200, global_step1200, checkpoint-1200, epoch=3-step=1200.ckpt. Where
// the name has none, as that of a marker in a checkpoint's directory, the
// directory's is read.
func stepOf(path string) *int64 {
	for _, name := range []string{filepath.Base(path), filepath.Base(filepath.Dir(path))} {
		if m := stepPattern.FindStringSubmatch(name); m != nil {
			if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
				return &n
			}
		}
	}
	return nil
}
