package devrun

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/caravan-sched/caravan/autoscaler/terraform/modules"
	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devcluster/reaper"
	"github.com/caravan-sched/caravan/internal/devjoin"
)

// burstFiles are the pools file, and the autoscaler's configuration and policy.
//
//go:embed burst/*.hcl
var burstFiles embed.FS

// autoscalerName is the Nomad Autoscaler's program.
const autoscalerName = "nomad-autoscaler"

// autoscalerPlugins are ours.
var autoscalerPlugins = []string{"caravan-apm", "caravan-strategy", "caravan-terraform"}

// stopTime is how long the autoscaler may take to end.
const stopTime = 20 * time.Second

// cloud is the autoscaler, and the directory in which Terraform makes nodes.
type cloud struct {
	dir    string
	cmd    *exec.Cmd
	reaper *reaper.Reaper
	ended  chan error
}

// startCloud sets up a pool whose nodes are processes on this machine, and starts the
// autoscaler.
func (r *run) startCloud(ctx context.Context) error {
	dir := filepath.Join(r.dir, "cloud")
	c := &cloud{dir: dir}
	if err := c.writeModule(r.cluster.Joining(), r.opts); err != nil {
		return err
	}
	if err := c.writeAutoscaler(r.cluster.Address(), r.planner.address, r.opts); err != nil {
		return err
	}
	var err error
	if c.reaper, err = reaper.Start(dir); err != nil {
		return err
	}
	r.cloud = c
	if err := r.startAutoscaler(ctx); err != nil {
		return err
	}
	r.step("autoscaler", "runs with caravan-apm, caravan-strategy and caravan-terraform; its pool is empty")
	return nil
}

// startAutoscaler starts the autoscaler, also one after another.
func (r *run) startAutoscaler(ctx context.Context) error {
	program, err := exec.LookPath(autoscalerName)
	if err != nil {
		return fmt.Errorf("find autoscaler: no %s on the PATH; build it with `make tools`", autoscalerName)
	}
	c := r.cloud
	c.ended = make(chan error, 1)
	// It stays for as long as the cluster, which may be longer than the scenario.
	c.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, "agent", "-config", filepath.Join(c.dir, "agent.hcl"))
	c.cmd.Env = c.environment()
	out, in := io.Pipe()
	c.cmd.Stdout, c.cmd.Stderr = in, in
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start autoscaler: %w", err)
	}
	go r.logLines(out)
	go func() {
		err := c.cmd.Wait()
		c.ended <- errors.Join(err, in.Close())
	}()
	return nil
}

// environment is that of the autoscaler: nothing that is meant for others, and the
// mark by which what it starts is found.
func (c *cloud) environment() []string {
	env := []string{c.reaper.Mark(), "CHECKPOINT_DISABLE=1"}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "NOMAD_") && !strings.HasPrefix(kv, reaper.Variable+"=") {
			env = append(env, kv)
		}
	}
	return env
}

// logLines passes the autoscaler's log on.
func (r *run) logLines(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if r.opts.Log != nil {
			r.opts.Log("autoscaler: " + lines.Text())
		}
	}
	_, _ = io.Copy(io.Discard, out)
}

// writeModule writes the module and its variables.
func (c *cloud) writeModule(joining devcluster.Joining, opts Options) error {
	local, err := fs.Sub(modules.Local, "local")
	if err != nil {
		return fmt.Errorf("read module: %w", err)
	}
	to := filepath.Join(c.dir, "terraform")
	if err := os.CopyFS(to, local); err != nil {
		return fmt.Errorf("write module: %w", err)
	}
	plugin, err := findBinary(pluginName, opts.Plugin)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	// The seed makes each node's GPUs its own.
	config := fmt.Sprintf("source = \"mock:dgxh100\"\nmock_seed = %q", devjoin.NodeName)
	joining.Node.Plugins = []devcluster.Plugin{{Name: pluginName, Path: plugin, Config: config}}
	file := filepath.Join(c.dir, "client.json")
	vars := map[string]any{"pool": "cloud", "directory": filepath.Join(c.dir, "nodes"), "client": []string{self, "dev-client", file}}
	return errors.Join(writeJSON(file, joining), writeJSON(filepath.Join(to, "terraform.tfvars.json"), vars))
}

func writeJSON(path string, v any) error {
	raw, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// writeAutoscaler writes the autoscaler's files.
func (c *cloud) writeAutoscaler(nomad, planner string, opts Options) error {
	port, err := anyPort()
	if err != nil {
		return err
	}
	dirs := []string{}
	if opts.Plugin != "" {
		dirs = append(dirs, filepath.Dir(opts.Plugin))
	}
	plugins := filepath.Join(c.dir, "plugins")
	if err := errors.Join(os.MkdirAll(plugins, 0o755), os.MkdirAll(filepath.Join(c.dir, "policies"), 0o755)); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	for _, name := range autoscalerPlugins {
		path, err := findBinary(name, "", dirs...)
		if err != nil {
			return err
		}
		if err := os.Symlink(path, filepath.Join(plugins, name)); err != nil {
			return fmt.Errorf("link plugin: %w", err)
		}
	}
	values := map[string]string{"Plugins": plugins, "Port": port, "Nomad": nomad, "Dir": c.dir, "Planner": planner}
	for name, to := range map[string]string{"pools.hcl": "pools.hcl", "agent.hcl": "agent.hcl", "policy.hcl": "policies/cloud.hcl"} {
		text, err := template.ParseFS(burstFiles, "burst/"+name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		var b strings.Builder
		if err := text.Execute(&b, values); err != nil {
			return fmt.Errorf("fill in %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(c.dir, to), []byte(b.String()), 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// stop ends the autoscaler, and whatever there is left of it and its nodes.
func (c *cloud) stop() error {
	var errs []error
	if c.cmd != nil && c.cmd.Process != nil {
		// Ctrl-C in a terminal has ended it already.
		if err := c.cmd.Process.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
		select {
		case err := <-c.ended:
			if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
				errs = append(errs, fmt.Errorf("stop autoscaler: %w", err))
			}
		case <-time.After(stopTime):
			errs = append(errs, fmt.Errorf("stop autoscaler: it did not end within %v", stopTime))
		}
	}
	return errors.Join(append(errs, c.reaper.Run())...)
}

// made are the nodes that Terraform's state knows.
func (c *cloud) made() ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(c.dir, "terraform", "terraform.tfstate"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var state struct {
		Resources []struct {
			Instances []struct {
				Key string `json:"index_key"`
			} `json:"instances"`
		} `json:"resources"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &state)
	}
	if err != nil {
		return nil, fmt.Errorf("read Terraform's state: %w", err)
	}
	var out []string
	for _, r := range state.Resources {
		for _, i := range r.Instances {
			out = append(out, i.Key)
		}
	}
	return out, nil
}
