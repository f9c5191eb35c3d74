package join

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// The files in Options.Dir. The environment file comes last: where it is, the
// others are.
const (
	EnvFile        = "env"
	MembershipFile = "membership.json"
	HostFile       = "hostfile"
	DeepSpeedFile  = "hostfile.deepspeed"
	SocketFile     = "progress.sock"
	stateFile      = "join.json"
)

// clear takes away what an earlier run has left.
func (o Options) clear() error {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return fmt.Errorf("make directory for the rendezvous: %w", err)
	}
	var faults []error
	for _, name := range []string{EnvFile, stateFile, MembershipFile, HostFile, DeepSpeedFile} {
		if err := os.Remove(filepath.Join(o.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			faults = append(faults, fmt.Errorf("remove old file: %w", err))
		}
	}
	return errors.Join(faults...)
}

// write writes all files and returns the variables.
func (o Options) write(r Result) (map[string]string, error) {
	inTask := func(name string) string { return filepath.Join(o.DirInTask, name) }
	env, err := rendezvous.Env(r.Membership, o.Alloc, rendezvous.Local{
		Interface: o.Interface, MembershipFile: inTask(MembershipFile), HostFile: inTask(HostFile),
		DeepSpeedHostFile: inTask(DeepSpeedFile), Socket: inTask(SocketFile),
	})
	if err != nil {
		return nil, fmt.Errorf("make the environment: %w", err)
	}
	members, err := rendezvous.JSON(r.Membership)
	if err != nil {
		return nil, err
	}
	r.Env = env
	state, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the state of the join: %w", err)
	}
	for _, f := range []struct{ name, text string }{
		{HostFile, rendezvous.HostFile(r.Membership)},
		{DeepSpeedFile, rendezvous.DeepSpeedHostFile(r.Membership)},
		{MembershipFile, string(members)},
		{stateFile, string(state)},
		{EnvFile, rendezvous.EnvFile(env)},
	} {
		if err := replace(filepath.Join(o.Dir, f.name), f.text); err != nil {
			return nil, err
		}
	}
	return env, nil
}

// replace writes a file as a whole. The other tasks of the allocation can write
// to the directory too, so nothing is written through what lies there.
func replace(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("write rendezvous file: %w", err)
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		// The first error is the one to tell.
		_ = os.Remove(f.Name())
		return fmt.Errorf("write rendezvous file: %w", err)
	}
	return nil
}

// joined is what an earlier task of the same allocation has got from the
// barrier, false if there was none.
func (o Options) joined() (Result, bool) {
	b, err := os.ReadFile(filepath.Join(o.Dir, stateFile))
	if err != nil {
		return Result{}, false
	}
	var r Result
	if json.Unmarshal(b, &r) != nil || r.Alloc != o.Alloc || r.Run == "" || rendezvous.Validate(r.Membership) != nil {
		return Result{}, false
	}
	return r, true
}
