package terraform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/terraform-exec/tfexec"
)

// Directory is a working directory and the map of nodes in it.
type Directory struct {
	cfg    Config
	log    hclog.Logger
	redact *redactor
	store  store
	now    func() time.Time
}

// Open checks a configuration and returns its directory. Nothing is run. The error
// joins every fault.
func Open(cfg Config, log hclog.Logger) (*Directory, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	return &Directory{
		cfg: cfg, log: log.With("directory", cfg.Dir), redact: newRedactor(os.Environ()), now: time.Now,
		store: store{filepath.Join(cfg.Dir, folder, cfg.Workspace)},
	}, nil
}

// Config is the configuration with its defaults.
func (d *Directory) Config() Config { return d.cfg }

// Node is a node of the state.
type Node struct {
	Name string
	// Addresses are its resources.
	Addresses []string
	// Tainted says that it was not made to the end: it is to go.
	Tainted bool
	// Value is what Terraform was told of it, as far as we know.
	Value Value
}

// State is the nodes by name.
type State map[string]Node

// Names are the nodes' names in order.
func (s State) Names() []string { return slices.Sorted(maps.Keys(s)) }

// Nodes reads the state. It applies nothing and takes no lock, unless another
// workspace is selected in the directory.
func (d *Directory) Nodes(ctx context.Context) (State, error) {
	if d.selected() != d.cfg.Workspace {
		h, err := d.Hold(ctx)
		if err != nil {
			return nil, err
		}
		state, err := h.Nodes(ctx)
		return state, errors.Join(err, h.Release())
	}
	r, err := d.newRun()
	if err != nil {
		return nil, err
	}
	return r.nodes(ctx)
}

// Interrupted is the run that was killed and not finished, if there is one. While
// another process applies the directory there is none.
func (d *Directory) Interrupted() (*Journal, error) {
	j, err := d.journal()
	if j == nil || err != nil || d.underWay(j) {
		return nil, err
	}
	l, _, err := takeLock(d.cfg.Dir, d.now())
	if errors.Is(err, ErrBusy) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return j, l.release()
}

func (d *Directory) journal() (*Journal, error) {
	var j Journal
	found, err := d.store.read(d.journalName(), &j)
	if err != nil || !found {
		return nil, err
	}
	return &j, nil
}

// underWay says that an apply whose owner was killed still runs, and may: Terraform
// then ends it properly.
func (d *Directory) underWay(j *Journal) bool {
	limit := d.cfg.PlanLimit + d.cfg.ApplyLimit + d.cfg.Grace
	return j.Phase == phaseApply && d.now().Before(j.Started.Add(limit)) && applying(j.Mark, d.cfg.Binary)
}

func (d *Directory) outputName() string  { return d.cfg.Variable + ".output" }
func (d *Directory) journalName() string { return d.cfg.Variable + ".journal.json" }
func (d *Directory) valuesName() string  { return d.cfg.Variable + ".tfvars.json" }
func (d *Directory) nextName() string    { return d.cfg.Variable + ".next.json" }
func (d *Directory) planName() string    { return d.cfg.Variable + ".plan" }

// values are what Terraform was told last. A file that cannot be read counts as
// lost: the plan's check then finds what that changes.
func (d *Directory) values() map[string]Value {
	var file map[string]map[string]Value
	if _, err := d.store.read(d.valuesName(), &file); err != nil {
		d.log.Warn("what Terraform was told last cannot be read", "error", err)
	}
	return file[d.cfg.Variable]
}

func (d *Directory) writeValues(name string, v map[string]Value) error {
	return d.store.write(name, map[string]map[string]Value{d.cfg.Variable: v})
}

// varFiles are all files with variables' values: the operator's, those of other
// pools in the same directory, and ours.
func (d *Directory) varFiles() []string {
	out := slices.Clone(d.cfg.VarFiles)
	others, _ := filepath.Glob(d.store.path("*.tfvars.json"))
	for _, o := range others {
		if filepath.Base(o) != d.valuesName() {
			out = append(out, o)
		}
	}
	return append(out, d.store.path(d.nextName()))
}

// nodes reads the state.
func (r *run) nodes(ctx context.Context) (State, error) {
	out := State{}
	values := r.d.values()
	err := r.step(ctx, "show", r.d.cfg.PlanLimit, func(ctx context.Context, _ io.Writer) error {
		state, err := r.tf.Show(ctx)
		if err != nil || state.Values == nil {
			return err
		}
		for _, res := range resourcesOf(state.Values.RootModule) {
			name, ok := parseAddress(res.Address).node(r.d.cfg.Resources)
			if !ok {
				continue
			}
			n := out[name]
			n.Name, n.Value = name, values[name]
			n.Addresses = append(n.Addresses, res.Address)
			n.Tainted = n.Tainted || res.Tainted
			out[name] = n
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// prepare initialises the directory if it may be, and selects the workspace.
func (r *run) prepare(ctx context.Context) error {
	if r.d.selected() == r.d.cfg.Workspace {
		return nil
	}
	r.d.log.Info("selecting workspace", "workspace", r.d.cfg.Workspace, "was", r.d.selected())
	return r.step(ctx, "workspace", r.d.cfg.PlanLimit, func(ctx context.Context, _ io.Writer) error {
		err := r.tf.WorkspaceSelect(ctx, r.d.cfg.Workspace)
		if err != nil && r.d.cfg.Init && ctx.Err() == nil {
			return r.tf.WorkspaceNew(ctx, r.d.cfg.Workspace)
		}
		return err
	})
}

// init runs terraform init.
func (r *run) init(ctx context.Context) error {
	r.d.log.Info("initialising the directory")
	return r.step(ctx, "init", r.d.cfg.ApplyLimit, func(ctx context.Context, _ io.Writer) error {
		opts := []tfexec.InitOption{}
		for _, b := range r.d.cfg.BackendConfig {
			opts = append(opts, tfexec.BackendConfig(b))
		}
		if err := r.tf.Init(ctx, opts...); err != nil {
			return fmt.Errorf("initialise: %w", err)
		}
		return nil
	})
}

// ReadNote reads what WriteNote has kept beside the directory's own records, and
// says whether there is any.
func (d *Directory) ReadNote(name string, to any) (bool, error) {
	return d.store.read(d.cfg.Variable+"."+name+".json", to)
}

// WriteNote keeps something of the pool with the directory: whole, or not at all.
func (d *Directory) WriteNote(name string, from any) error {
	return d.store.write(d.cfg.Variable+"."+name+".json", from)
}
