package client

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
)

// renewGap is the least time between two tokens of one identity.
const renewGap = 10 * time.Second

// identities are a task's tokens. Those that expire are renewed, all together,
// when half of the shortest's time is over.
type identities struct {
	t *taskRunner

	mu     sync.Mutex
	tokens map[string]string // by name
}

func (t *taskRunner) all() []*api.WorkloadIdentity {
	var out []*api.WorkloadIdentity
	if t.task.Identity != nil {
		out = append(out, t.task.Identity)
	}
	return append(out, t.task.Identities...)
}

// startIdentities signs a task's identities for the first time.
func (t *taskRunner) startIdentities() (*identities, error) {
	out := &identities{t: t, tokens: map[string]string{}}
	wait := time.Duration(0)
	for _, w := range t.all() {
		expires, err := out.sign(w)
		if err != nil {
			return nil, err
		}
		out.sooner(&wait, expires)
	}
	if wait > 0 {
		go out.renew(wait)
	}
	return out, nil
}

// sooner shortens the wait for an identity that expires.
func (i *identities) sooner(wait *time.Duration, expires time.Time) {
	if expires.IsZero() {
		return
	}
	if half := max(expires.Sub(i.t.r.c.cfg.Clock.Now())/2, renewGap); *wait == 0 || half < *wait {
		*wait = half
	}
}

func (i *identities) sign(w *api.WorkloadIdentity) (time.Time, error) {
	token, expires, err := i.t.r.c.cfg.Server.SignIdentity(i.t.r.current(), i.t.task.Name, w)
	if err != nil {
		return expires, err
	}
	i.mu.Lock()
	i.tokens[w.Name] = token
	i.mu.Unlock()
	if !w.File {
		return expires, nil
	}
	path := filepath.Join(i.t.dir, "secrets", "nomad_"+w.Name+".jwt")
	if w == i.t.task.Identity {
		path = filepath.Join(i.t.dir, "secrets", "nomad_token")
	}
	if w.Filepath != "" {
		path = filepath.Join(i.t.dir, w.Filepath)
	}
	return expires, writeFor(path, token, i.t.task.User)
}

// writeFor writes a secret that only a user may read; anybody, where the task
// has none.
func writeFor(path, text, owner string) error {
	mode := fs.FileMode(0o644)
	uid := -1
	if owner != "" {
		if u, err := user.Lookup(owner); err == nil {
			if n, err := strconv.Atoi(u.Uid); err == nil {
				uid, mode = n, 0o600
			}
		}
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		return fmt.Errorf("write token: %w", err)
	}
	if uid >= 0 {
		if err := os.Chown(path, uid, -1); err != nil {
			return fmt.Errorf("write token: %w", err)
		}
	}
	return nil
}

// renew signs anew until the task is over.
func (i *identities) renew(wait time.Duration) {
	t := i.t
	for {
		select {
		case <-t.done:
			return
		case <-t.r.after(wait):
		}
		if !t.r.c.awaitUp(t.r.now) {
			return
		}
		wait = 0
		for _, w := range t.task.Identities {
			if w.TTL <= 0 {
				continue
			}
			expires, err := i.sign(w)
			if err != nil {
				t.r.c.logf("renew identity %s of task %s: %v", w.Name, t.task.Name, err)
				continue
			}
			i.sooner(&wait, expires)
			i.tell(w)
		}
		wait = max(wait, renewGap)
	}
}

// tell does with the task what its identity block wants after a renewal.
func (i *identities) tell(w *api.WorkloadIdentity) {
	p := i.t.running()
	if p == nil {
		return
	}
	switch w.ChangeMode {
	case "restart":
		i.t.r.set(i.t.task.Name, nil, &api.TaskEvent{
			Type: api.TaskRestartSignal, DisplayMessage: fmt.Sprintf("Identity[%s]: new token acquired", w.Name),
		})
		i.t.askRestart()
	case "signal":
		i.t.r.set(i.t.task.Name, nil, &api.TaskEvent{
			Type: api.TaskSignaling, TaskSignal: w.ChangeSignal, DisplayMessage: fmt.Sprintf("Identity[%s]: new Identity token acquired", w.Name),
		})
		if err := p.signal(w.ChangeSignal); err != nil {
			i.t.r.c.logf("signal task %s: %v", i.t.task.Name, err)
		}
	}
}

// env adds the tokens that a task wants in its environment.
func (i *identities) env(env map[string]string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, w := range i.t.all() {
		if !w.Env {
			continue
		}
		name := "NOMAD_TOKEN_" + w.Name
		if w == i.t.task.Identity {
			name = "NOMAD_TOKEN"
		}
		env[name] = i.tokens[w.Name]
		env["NOMAD_UNIX_ADDR"] = "unix://" + filepath.Join(i.t.dir, "secrets", "api.sock")
	}
}
