package join

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
	socket := r.Socket
	if o.DirInTask != o.Dir {
		socket = inTask(SocketFile)
	}
	env, err := rendezvous.Env(r.Membership, o.Alloc, rendezvous.Local{
		Interface: o.Interface, MembershipFile: inTask(MembershipFile), HostFile: inTask(HostFile),
		DeepSpeedHostFile: inTask(DeepSpeedFile), Socket: socket,
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

// maxSocketPath is what fits into the address of a Unix socket.
const maxSocketPath = 107

// shortRoot holds the directories, whose names begin with socketDir, for sockets
// whose own place is too deep in the file system. TMPDIR will not do: Nomad gives
// each task its own, deep down.
const (
	shortRoot = "/tmp"
	socketDir = "caravan-join-"
)

// socket is where the sidecar is to listen: with the files, unless that path is
// too long. The directory for a short one is made now, under a name that nobody
// can foresee, because the task learns it from the environment file.
func (o Options) socket() (string, error) {
	path := filepath.Join(o.Dir, SocketFile)
	if len(path) <= maxSocketPath || o.DirInTask != o.Dir {
		return path, nil
	}
	dir, err := os.MkdirTemp(shortRoot, socketDir)
	if err != nil {
		return "", fmt.Errorf("make directory for the progress socket: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", fmt.Errorf("open the directory of the progress socket: %w", err)
	}
	return filepath.Join(dir, SocketFile), nil
}

// ownSocket says whether socket can have made that path. The state is read from
// a directory that the task's code may write to, and a sidecar that runs as root
// must not be led to other places.
func (o Options) ownSocket(path string) bool {
	if path == filepath.Join(o.Dir, SocketFile) {
		return true
	}
	dir, name := filepath.Split(path)
	above, random := filepath.Split(filepath.Clean(dir))
	return name == SocketFile && filepath.Clean(above) == shortRoot && strings.HasPrefix(random, socketDir)
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
	if json.Unmarshal(b, &r) != nil || r.Alloc != o.Alloc || r.Run == "" || !o.ownSocket(r.Socket) || rendezvous.Validate(r.Membership) != nil {
		return Result{}, false
	}
	return r, true
}
