package target

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
)

// Parts are what a plugin works on, besides the planner. A nil one is the machine's
// own: its clock, the Nomad of the configuration, and Terraform.
type Parts struct {
	Now   func() time.Time
	Nomad Nomad
	Open  func(terraform.Config, hclog.Logger) (Directory, error)
}

// Directory is a working directory of Terraform, as terraform.Directory is one.
type Directory interface {
	Config() terraform.Config
	Nodes(ctx context.Context) (terraform.State, error)
	Interrupted() (*terraform.Journal, error)
	Doubts() (map[string]terraform.Doubt, error)
	Hold(ctx context.Context) (Held, error)
	ReadNote(name string, to any) (bool, error)
	WriteNote(name string, from any) error
}

// Held is a directory that nobody else can apply until Release.
type Held interface {
	Nodes(ctx context.Context) (terraform.State, error)
	Apply(ctx context.Context, want map[string]terraform.Value) (terraform.Change, error)
	Look(ctx context.Context, names []string) (terraform.Change, error)
	Resolve(names ...string) error
	Interrupted() *terraform.Journal
	Release() error
}

// real is a directory in which Terraform runs.
type real struct{ *terraform.Directory }

// Hold implements Directory.
func (d real) Hold(ctx context.Context) (Held, error) {
	h, err := d.Directory.Hold(ctx)
	if err != nil {
		return nil, err
	}
	return h, nil
}

func openReal(cfg terraform.Config, log hclog.Logger) (Directory, error) {
	d, err := terraform.Open(cfg, log)
	if err != nil {
		return nil, err
	}
	return real{d}, nil
}

// NewOn returns a plugin on parts that is not configured.
func NewOn(log hclog.Logger, parts Parts) *Plugin {
	p := &Plugin{log: log, now: parts.Now, fixed: parts.Nomad, open: parts.Open, pools: map[string]*worker{}}
	if p.now == nil {
		p.now = time.Now
	}
	if p.open == nil {
		p.open = openReal
	}
	return p
}

// New returns a plugin that is not configured.
func New(log hclog.Logger) *Plugin { return NewOn(log, Parts{}) }
