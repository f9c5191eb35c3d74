package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// The files of a state directory.
const (
	fileStart  = "start.json"
	fileInfo   = "supervisor.json"
	fileLock   = "lock"
	fileSocket = "socket"
	fileExit   = "exit.json"
	fileEvents = "events.jsonl"
	fileLog    = "supervisor.log"
	fileOutput = "supervisor.out"
)

// info is the pidfile: which process is, or was, the supervisor. PIDs are used
// again, so the time of its start, in clock ticks after the boot, belongs to it.
type info struct {
	Version    int    `json:"version"`
	Compatible int    `json:"compatible"`
	Run        string `json:"run"`
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"start_ticks"`
	Boot       string `json:"boot"`
}

func thisProcess(run string) (info, error) {
	boot, err := bootID()
	if err != nil {
		return info{}, err
	}
	ticks, err := startTicks(os.Getpid())
	if err != nil {
		return info{}, err
	}
	return info{Version: Version, Compatible: Compatible, Run: run, PID: os.Getpid(), StartTicks: ticks, Boot: boot}, nil
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot ID: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func startTicks(pid int) (uint64, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("look up process %d: %w", pid, err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0, fmt.Errorf("look up process %d: %w", pid, err)
	}
	return stat.Starttime, nil
}

// kill ends the supervisor itself, if the process with its PID still is it.
func (i info) kill() error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	ticks, err := startTicks(i.PID)
	if boot != i.Boot || err != nil || ticks != i.StartTicks {
		return nil
	}
	if err := unix.Kill(i.PID, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill supervisor %d: %w", i.PID, err)
	}
	return nil
}

// lock takes the supervisor's lock, which it holds for as long as it lives. The
// error wraps unix.EWOULDBLOCK when somebody has it.
func lock(dir string) (*os.File, error) { return flock(dir, unix.LOCK_EX) }

// alive reports whether a supervisor holds its lock. Looking takes a shared
// lock for a moment, so that those who look do not see each other.
func alive(dir string) (bool, error) {
	f, err := flock(dir, unix.LOCK_SH)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return true, nil
	case err != nil:
		return false, err
	}
	return false, f.Close()
}

func flock(dir string, how int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, fileLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// writeFile replaces a file so that it is there whole, or as before, even if
// the machine crashes. The file is readable for its owner only.
func writeFile(path string, body []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("create file beside %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(body)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err = errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func writeJSON(path string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	return writeFile(path, append(body, '\n'))
}

// readJSON reads a file of the state directory; ok is false where there is none.
func readJSON(path string, v any) (ok bool, err error) {
	body, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return false, fmt.Errorf("decode %s: %w", path, err)
	}
	return true, nil
}
