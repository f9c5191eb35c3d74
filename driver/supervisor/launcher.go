package supervisor

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/driver/container"
	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// host starts workloads on this machine.
type host struct{ start Start }

// Ready implements launcher.
func (h host) Ready(ctx context.Context) error {
	if h.start.Container == nil {
		return nil
	}
	return container.Pull(ctx, container.Machine{}, *h.start.Container)
}

// Launch implements launcher.
func (h host) Launch(ctx context.Context, env map[string]string) (workload, error) {
	spec := h.start.Workload
	if h.start.Container == nil {
		spec.Env = withEnv(spec.Env, env)
		w, err := exec.Start(ctx, spec)
		if err != nil {
			return nil, err
		}
		return process{w}, nil
	}
	c := *h.start.Container
	c.Env = maps.Clone(c.Env)
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	maps.Copy(c.Env, env)
	c.Mounts = reachable(c.Mounts, env["CARAVAN_SOCKET"])
	w, err := container.Run(ctx, container.Machine{}, startClient, spec, c)
	if err != nil {
		return nil, err
	}
	return process{w}, nil
}

// reachable adds the directory of the progress socket to a container's mounts
// where the socket is below none of them: a path that is too long for a socket's
// address has made it go elsewhere.
func reachable(mounts []container.Mount, socket string) []container.Mount {
	below := func(m container.Mount) bool {
		return m.HostPath == m.TaskPath && strings.HasPrefix(socket, m.HostPath+"/")
	}
	if socket == "" || slices.ContainsFunc(mounts, below) {
		return mounts
	}
	dir := filepath.Dir(socket)
	return append(slices.Clip(mounts), container.Mount{HostPath: dir, TaskPath: dir})
}

func startClient(ctx context.Context, spec exec.Spec) (container.Workload, error) {
	w, err := exec.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// withEnv puts variables behind others, which they replace.
func withEnv(env []string, more map[string]string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(pair string) bool {
		key, _, _ := strings.Cut(pair, "=")
		_, replaced := more[key]
		return replaced
	})
	return append(out, rendezvous.Pairs(more)...)
}

// process is a workload of package exec or container.
type process struct{ container.Workload }

// Exec implements workload.
func (p process) Exec(ctx context.Context, spec exec.ExecSpec) (session, error) {
	s, err := p.Workload.Exec(ctx, spec)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// preflightSuffix is put behind the task's names to name its check's.
const preflightSuffix = "-preflight"

// examine runs the preflight's command as the user's code would be run.
func (h host) examine(ctx context.Context) (exit exec.Exit, err error) {
	check := h
	check.start.Workload.ID += preflightSuffix
	if c := h.start.Container; c != nil {
		inside := *c
		inside.Name += preflightSuffix
		inside.Entrypoint, inside.Command, inside.Args = nil, h.start.Preflight.Command, h.start.Preflight.Args
		check.start.Container = &inside
	} else {
		check.start.Workload.Command, check.start.Workload.Args = h.start.Preflight.Command, h.start.Preflight.Args
	}
	w, err := check.Launch(ctx, nil)
	if err != nil {
		return exec.Exit{}, err
	}
	defer func() {
		// Also where ctx has ended: nothing of the check may be left.
		tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), killFor)
		defer cancel()
		if killErr := w.Kill(tidy); killErr != nil && err == nil {
			err = fmt.Errorf("tidy up after the check: %w", killErr)
		}
		// That its output was not read in time says nothing about the node.
		_ = w.Close(tidy)
	}()
	return w.Wait(ctx)
}
