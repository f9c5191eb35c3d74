package target

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad-autoscaler/sdk"

	"github.com/caravan-sched/caravan/autoscaler/link"
	"github.com/caravan-sched/caravan/autoscaler/pool"
	"github.com/caravan-sched/caravan/autoscaler/terraform"
)

// The keys of the target block in the autoscaler's configuration. Nomad's own
// (nomad_address, nomad_token, …) are understood too, and come from the autoscaler
// by themselves.
const (
	// KeyPools is the pools file; it must be set.
	KeyPools = "pools_file"
	// KeyPlanner is the planner's address, beside which all other keys of package
	// link count; without it nodes are numbered, and as many as the policy says.
	KeyPlanner = link.KeyAddress
	// KeyBinary is terraform or tofu, by name or path.
	KeyBinary = "terraform_binary"
	// KeyInit lets directories be initialised, and workspaces be made.
	KeyInit = "terraform_init"
	// KeyBackend is what terraform init needs, as KEY=VALUE with commas between.
	KeyBackend = "terraform_backend_config"
	// KeyPlanLimit, KeyApplyLimit and KeyGrace bound Terraform's time.
	KeyPlanLimit  = "terraform_plan_timeout"
	KeyApplyLimit = "terraform_apply_timeout"
	KeyGrace      = "terraform_kill_after"
	// KeySettle is the least time between two passes that Status starts.
	KeySettle = "settle_interval"
)

// The keys of the target block in a policy. Of the autoscaler's own, dry-run,
// node_drain_deadline, node_drain_ignore_system_jobs and node_purge count.
const (
	// KeyPool is the pool's name in the pools file; it must be set.
	KeyPool = "pool"
	// KeyResources are the addresses of the resources whose instances are nodes, with
	// commas between; see terraform.Config.
	KeyResources = "terraform_resources"
	keyDryRun    = "dry-run"
)

const (
	defaultDrainDeadline = 15 * time.Minute
	defaultSettle        = 5 * time.Second
)

// settings are the plugin's configuration.
type settings struct {
	pools            *pool.File
	planner          Planner // nil: none
	binary           string
	init             bool
	backend          []string
	plan, apply, end time.Duration
	settle           time.Duration
}

// faults gathers what is wrong with a map of settings.
type faults struct {
	config map[string]string
	errs   []error
}

func (f *faults) bad(key, want string) {
	f.errs = append(f.errs, fmt.Errorf("%s is %q: want %s", key, f.config[key], want))
}

func (f *faults) bool(key string, def bool) bool {
	v, set := f.config[key]
	if !set || v == "" {
		return def
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		f.bad(key, "true or false")
		return def
	}
	return b
}

func (f *faults) duration(key string) time.Duration {
	v := f.config[key]
	if v == "" {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		f.bad(key, `a duration above 0 such as "10m"`)
		return 0
	}
	return d
}

// known are the plugin's own keys: another that begins as they do is a slip.
var known = append(link.Keys(), KeyPools, KeyBinary, KeyInit, KeyBackend, KeyPlanLimit, KeyApplyLimit, KeyGrace, KeySettle)

// readSettings reads the plugin's configuration and says everything that is wrong.
func readSettings(config map[string]string) (settings, error) {
	f := &faults{config: config}
	s := settings{binary: config[KeyBinary]}
	var err error
	if config[KeyPools] == "" {
		f.bad(KeyPools, "the path of the pools file")
	} else if s.pools, err = pool.Load(config[KeyPools]); err != nil {
		f.errs = append(f.errs, err)
	}
	if config[KeyPlanner] != "" {
		client, err := link.Open(config)
		if err != nil {
			f.errs = append(f.errs, err)
		}
		s.planner = client
	}
	s.init = f.bool(KeyInit, false)
	if config[KeyBackend] != "" {
		s.backend = strings.Split(config[KeyBackend], ",")
	}
	s.plan, s.apply, s.end = f.duration(KeyPlanLimit), f.duration(KeyApplyLimit), f.duration(KeyGrace)
	s.settle = cmp.Or(f.duration(KeySettle), defaultSettle)
	for key := range config {
		for _, prefix := range []string{"terraform_", "planner_", "pools_", "settle_"} {
			if strings.HasPrefix(key, prefix) && !slices.Contains(known, key) {
				f.bad(key, "one of "+strings.Join(known, ", "))
			}
		}
	}
	return s, errors.Join(f.errs...)
}

// request is a policy's target block.
type request struct {
	pool         *pool.Pool
	resources    string
	dryRun       bool
	drain        time.Duration
	ignoreSystem bool
	purge        bool
}

// readRequest reads a policy's target block and says everything that is wrong.
func (s settings) readRequest(config map[string]string) (request, error) {
	f := &faults{config: config}
	r := request{resources: config[KeyResources]}
	if r.pool = s.pools.Find(config[KeyPool]); r.pool == nil {
		var names []string
		for _, p := range s.pools.Pools {
			names = append(names, p.Name)
		}
		f.bad(KeyPool, "a pool of "+s.pools.Path+": "+strings.Join(names, ", "))
	}
	r.dryRun = f.bool(keyDryRun, false)
	r.drain = cmp.Or(f.duration(sdk.TargetConfigKeyDrainDeadline), defaultDrainDeadline)
	r.ignoreSystem = f.bool(sdk.TargetConfigKeyIgnoreSystemJobs, false)
	r.purge = f.bool(sdk.TargetConfigKeyNodePurge, true)
	return r, errors.Join(f.errs...)
}

// directory is the working directory of a request. Paths of a pools file are from
// where the process runs.
func (s settings) directory(r request) (terraform.Config, error) {
	c := terraform.Config{
		Dir: r.pool.WorkingDirectory, Binary: s.binary, Workspace: r.pool.Workspace, Variable: r.pool.Variable,
		Init: s.init, BackendConfig: s.backend, PlanLimit: s.plan, ApplyLimit: s.apply, Grace: s.end,
	}
	for _, f := range r.pool.VarFiles {
		path, err := filepath.Abs(f)
		if err != nil {
			return c, fmt.Errorf("find var file %s: %w", f, err)
		}
		c.VarFiles = append(c.VarFiles, path)
	}
	for word := range strings.SplitSeq(r.resources, ",") {
		if word = strings.TrimSpace(word); word != "" {
			c.Resources = append(c.Resources, word)
		}
	}
	return c, nil
}
