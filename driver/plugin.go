// Package driver is Nomad's task driver "caravan": it starts the members of a
// gang together, hands out ranks, asks for checkpoints before it stops a task,
// and keeps tasks across restarts of the agent. Each task has a supervisor of
// its own (package supervisor); the plugin only launches supervisors, finds
// them again, and speaks for them.
package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/driver/config"
	"github.com/caravan-sched/caravan/driver/container"
	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// Name is what jobs call the driver.
const Name = "caravan"

// Version is the plugin's.
const Version = "0.1.0"

// Plugin is the task driver.
type Plugin struct {
	log hclog.Logger
	// binary is what supervisors are started from.
	binary string
	host   container.Host
	probe  func() (exec.Facilities, error)

	mu       sync.Mutex
	cfg      config.Plugin
	compute  compute
	tasks    map[string]*task
	runtimes []container.Runtime
	// runtimeFaults says why the runtimes that are not there are not.
	runtimeFaults error
	asked         time.Time

	events *fanIn
}

var _ driver.Plugin = (*Plugin)(nil)

// New returns the driver. binary is a binary with the subcommand
// supervisor.Command, for the tasks' supervisors.
func New(log hclog.Logger, binary string) *Plugin {
	return &Plugin{
		log: log, binary: binary, host: container.Machine{}, probe: exec.Probe,
		tasks: map[string]*task{}, events: newFanIn(),
	}
}

// Info implements base.Plugin.
func (p *Plugin) Info() base.Info { return base.Info{Name: Name, Version: Version} }

// ConfigSchema implements base.Plugin.
func (p *Plugin) ConfigSchema() *hclspec.Spec { return config.PluginSchema() }

// SetConfig implements base.Plugin.
func (p *Plugin) SetConfig(_ context.Context, cfg base.Config) error {
	c, err := config.ReadPlugin(cfg, refusesSource)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg, p.compute = c, computeOf(cfg.Driver)
	return nil
}

// refusesSource says what is allowed in place of a source of GPUs, "" if it is.
func refusesSource(name string) string {
	if nvml.ValidSource(name) {
		return ""
	}
	return nvml.Sources()
}

// TaskConfigSchema implements driver.Plugin.
func (p *Plugin) TaskConfigSchema() *hclspec.Spec { return config.TaskSchema() }

// Capabilities implements driver.Plugin.
func (p *Plugin) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Signals: true, Exec: true, FSIsolation: driver.FSNone,
		NetworkModes: []driver.NetworkMode{driver.NetworkHost, driver.NetworkGroup},
	}
}

func (p *Plugin) config() config.Plugin {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cfg
}

// find returns a task that this process knows.
func (p *Plugin) find(id string) (*task, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.tasks[id]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("%w: %s", driver.ErrTaskNotFound, id)
}

// keep remembers a task, unless it is known.
func (p *Plugin) keep(t *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tasks[t.config.ID] != nil {
		return
	}
	p.tasks[t.config.ID] = t
	t.follow(p.events, p.log)
}

func (p *Plugin) forget(t *task) {
	t.stopFollowing()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tasks, t.config.ID)
}

// Shutdown implements driver.Shutdowner. The tasks run on.
func (p *Plugin) Shutdown(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tasks {
		t.stopFollowing()
	}
	return nil
}

// stateDir is where supervisors keep their state: the configured directory, or
// one below the system's for temporary files where that cannot be made.
func stateDir(cfg config.Plugin, log hclog.Logger) (string, error) {
	err := os.MkdirAll(cfg.StateDir, 0o711)
	if err == nil {
		return cfg.StateDir, nil
	}
	dir := fmt.Sprintf("%s/nomad-driver-caravan-%d", os.TempDir(), os.Getuid())
	if fallback := os.MkdirAll(dir, 0o711); fallback != nil {
		return "", errors.Join(fmt.Errorf("make state directory: %w", err), fallback)
	}
	log.Warn("the state directory cannot be made; another one is used", "error", err, "used", dir)
	return dir, nil
}
