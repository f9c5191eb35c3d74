package terraform

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// The phases of a run.
const (
	phasePlan  = "plan"
	phaseApply = "apply"
)

// Journal is what an apply is about. It is written before Terraform starts and
// removed when the state was read afterwards: one that is found tells of a run
// that was killed.
type Journal struct {
	// Mark is in the environment of every process of the run.
	Mark     string    `json:"mark"`
	Started  time.Time `json:"started"`
	Owner    Owner     `json:"owner"`
	Variable string    `json:"variable"`
	// Phase is phasePlan or phaseApply: of a plan nothing can be half-done.
	Phase string `json:"phase"`
	// From are the nodes that were there, To those that were wanted.
	From []string         `json:"from"`
	To   map[string]Value `json:"to"`
}

// Value is what is told to Terraform of a node.
type Value struct {
	// Purchase is the ID of the purchase that the node belongs to.
	Purchase string `json:"purchase"`
	// Market is "on_demand" or "spot".
	Market string `json:"market"`
}

// store is the folder with our files of a workspace.
type store struct{ dir string }

func (s store) path(name string) string { return filepath.Join(s.dir, name) }

func (s store) read(name string, to any) (found bool, err error) {
	raw, err := os.ReadFile(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, to)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", s.path(name), err)
	}
	return true, nil
}

// write replaces a file whole, or not at all, whatever happens meanwhile.
func (s store) write(name string, from any) error {
	raw, err := json.MarshalIndent(from, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", s.path(name), err)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("write %s: %w", s.path(name), err)
	}
	f, err := os.CreateTemp(s.dir, "."+name+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", s.path(name), err)
	}
	_, err = f.Write(append(raw, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.path(name))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", s.path(name), err), os.Remove(f.Name()))
	}
	if d, err := os.Open(s.dir); err == nil {
		_ = d.Sync() // a folder's sync is not known to all file systems
		d.Close()
	}
	return nil
}

// install writes a script, unless it is there as it is to be.
func (s store) install(name, text string) (path string, err error) {
	path = s.path(name)
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		return path, nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	// A process that is started meanwhile would have the file open for writing until
	// it is another program, and nothing can run a file that somebody writes to.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := os.CreateTemp(s.dir, "."+name+"-*")
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(0o700), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return path, nil
}

func (s store) remove(name string) error {
	if err := os.Remove(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", s.path(name), err)
	}
	return nil
}
