package client

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// setup makes the task's folders and reserves its devices, both once, and
// returns its environment.
func (t *taskRunner) setup() (map[string]string, error) {
	if !t.ready {
		t.r.set(t.task.Name, nil, &api.TaskEvent{Type: api.TaskSetup, Message: api.TaskBuildingTaskDir})
		if err := t.makeDirs(); err != nil {
			return nil, fmt.Errorf("task_dir: %w", err)
		}
		tokens, err := t.startIdentities()
		if err != nil {
			return nil, fmt.Errorf("identity: %w", err)
		}
		t.tokens = tokens
		if err := t.r.c.tasks.open(t.dir); err != nil {
			t.r.c.logf("%v", err)
		}
		if len(t.task.Artifacts) > 0 {
			return nil, fmt.Errorf("artifacts: the development cluster fetches no artifacts")
		}
		if res := t.resources(); res != nil && len(res.Devices) > 0 {
			reserved, err := t.r.c.reserve(context.Background(), res.Devices)
			if err != nil {
				return nil, fmt.Errorf("devices: %w", err)
			}
			t.devices = reserved
		}
		if err := t.templates(); err != nil {
			return nil, fmt.Errorf("template: %w", err)
		}
		t.ready = true
	}
	env := t.env()
	t.tokens.env(env)
	for k, v := range t.task.Env {
		env[k] = t.interpolate(v, env)
	}
	// A plugin's word counts more than the job's.
	if t.devices != nil {
		maps.Copy(env, t.devices.Env)
	}
	return env, nil
}

func (t *taskRunner) makeDirs() error {
	shared := filepath.Join(t.r.dir(), "alloc")
	for _, d := range []string{"data", "logs", "tmp"} {
		if err := makeDir(filepath.Join(shared, d), 0o777); err != nil {
			return err
		}
	}
	for dir, mode := range map[string]os.FileMode{"": 0o777, "local": 0o777, "secrets": 0o777, "private": 0o777, "tmp": 0o777 | os.ModeSticky} {
		if err := makeDir(filepath.Join(t.dir, dir), mode); err != nil {
			return err
		}
	}
	return nil
}

// makeDir makes a folder with a mode that the process's own mask does not
// change: tasks may run as any user.
func makeDir(path string, mode os.FileMode) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	return nil
}

func (t *taskRunner) resources() *api.AllocatedTaskResources {
	if a := t.r.current(); a.AllocatedResources != nil {
		return a.AllocatedResources.Tasks[t.task.Name]
	}
	return nil
}

// templates writes template blocks without actions; the stand-in renders none.
func (t *taskRunner) templates() error {
	for _, tpl := range t.task.Templates {
		if tpl.EmbeddedTmpl == nil || tpl.DestPath == nil || strings.Contains(*tpl.EmbeddedTmpl, "{{") {
			return fmt.Errorf("the development cluster renders no templates")
		}
		path := filepath.Join(t.dir, filepath.Clean("/"+*tpl.DestPath))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write template: %w", err)
		}
		if err := os.WriteFile(path, []byte(*tpl.EmbeddedTmpl), 0o644); err != nil {
			return fmt.Errorf("write template: %w", err)
		}
	}
	return nil
}
