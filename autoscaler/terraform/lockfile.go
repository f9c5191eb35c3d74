package terraform

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// folder is where we keep what we know of a directory, inside of it.
const folder = ".caravan"

// Owner is who applies a directory.
type Owner struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

func (o Owner) String() string {
	return fmt.Sprintf("process %d on %s since %s", o.PID, o.Host, o.Since.UTC().Format(time.RFC3339))
}

// lockFile is the right to apply a directory. The kernel gives it up when its
// process ends, however that happens; what is written in it says whose it is.
type lockFile struct{ f *os.File }

// takeLock takes the directory's lock. stale is the owner that ended without
// giving it up.
func takeLock(dir string, now time.Time) (l *lockFile, stale *Owner, err error) {
	if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
		return nil, nil, fmt.Errorf("take directory's lock: %w", err)
	}
	path := filepath.Join(dir, folder, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("take directory's lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	owner := readOwner(f)
	if err != nil {
		f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil, fmt.Errorf("take directory's lock %s: %w", path, err)
		}
		who := "a process that has just begun"
		if owner != nil {
			who = owner.String()
		}
		return nil, nil, &Error{Reason: ReasonError, Kind: ErrBusy, Message: fmt.Sprintf(
			"%s applies %s: wait for it, or end it", who, dir)}
	}
	host, _ := os.Hostname()
	raw, err := json.Marshal(Owner{PID: os.Getpid(), Host: host, Since: now})
	if err == nil {
		err = rewrite(f, raw)
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("write directory's lock: %w", err)
	}
	return &lockFile{f}, owner, nil
}

func readOwner(f *os.File) *Owner {
	raw, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	var o Owner
	if err != nil || len(raw) == 0 || json.Unmarshal(raw, &o) != nil {
		return nil
	}
	return &o
}

func rewrite(f *os.File, raw []byte) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(raw, 0)
	return err
}

// release gives the lock up. It is not enough to close the file: a process that is
// being started in another place has it open for a moment too.
func (l *lockFile) release() error {
	return errors.Join(rewrite(l.f, nil), unix.Flock(int(l.f.Fd()), unix.LOCK_UN), l.f.Close())
}
