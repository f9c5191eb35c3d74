// Package terraform makes the nodes of one pool equal to a map of names, by
// applying a Terraform or OpenTofu working directory.
//
// Every change is planned first, and the plan is read: one that touches anything
// but the chosen nodes is refused, with the resource and the action in the reason.
// One apply runs at a time in a directory, in whatever process; what an apply was
// about is written down before it starts, so that one that was killed is found and
// finished by the next.
package terraform

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The defaults of a Config.
const (
	DefaultVariable  = "nodes"
	DefaultWorkspace = "default"
	// DefaultPlanLimit and DefaultApplyLimit are how long Terraform may take before
	// it is interrupted, DefaultGrace how long after that it is killed.
	DefaultPlanLimit  = 5 * time.Minute
	DefaultApplyLimit = 30 * time.Minute
	DefaultGrace      = time.Minute
	// DefaultLockWait is how long Terraform waits for the state's lock.
	DefaultLockWait = 30 * time.Second
	// nodeResource is the name of the resources, or modules, whose instances are
	// nodes, where a Config lists none.
	nodeResource = "node"
)

// Config is a working directory and how it is applied.
type Config struct {
	// Dir is the working directory, with the *.tf files.
	Dir string
	// Binary is terraform or tofu, a path or a name to be looked for; "" looks for
	// terraform, then for tofu.
	Binary string
	// Workspace is Terraform's workspace; "" is "default".
	Workspace string
	// Variable is the variable with the map of nodes; "" is DefaultVariable.
	Variable string
	// VarFiles are files with the values of the other variables. A relative path is
	// one below Dir.
	VarFiles []string
	// Resources are the addresses, without keys, of the resources or modules whose
	// instances are nodes: "aws_instance.node", "module.pool.aws_instance.gpu". None
	// is every resource or module that is named "node".
	Resources []string
	// Init lets a directory that is not initialised be initialised, with
	// BackendConfig as in terraform init -backend-config.
	Init          bool
	BackendConfig []string
	// PlanLimit, ApplyLimit, Grace and LockWait bound what Terraform may take; 0 is
	// the default of each.
	PlanLimit, ApplyLimit, Grace, LockWait time.Duration
}

var (
	variableName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)
	workspaceName = regexp.MustCompile(`^[A-Za-z0-9_.~-]+$`)
	// NodeName is what a node may be named: it becomes a key of the map, and part of
	// a host's name.
	NodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
)

// complete fills in defaults, makes paths absolute, and says everything that is
// wrong.
func (c Config) complete() (Config, error) {
	var faults []error
	bad := func(key string, value any, want string) {
		faults = append(faults, fmt.Errorf("%s is %q: want %s", key, fmt.Sprint(value), want))
	}
	c.Workspace = cmp.Or(c.Workspace, DefaultWorkspace)
	c.Variable = cmp.Or(c.Variable, DefaultVariable)
	for _, d := range []struct {
		key   string
		value *time.Duration
		def   time.Duration
	}{
		{"plan limit", &c.PlanLimit, DefaultPlanLimit}, {"apply limit", &c.ApplyLimit, DefaultApplyLimit},
		{"grace", &c.Grace, DefaultGrace}, {"lock wait", &c.LockWait, DefaultLockWait},
	} {
		if *d.value < 0 {
			bad(d.key, *d.value, "a duration above 0")
		}
		*d.value = cmp.Or(*d.value, d.def)
	}
	if !variableName.MatchString(c.Variable) {
		bad("variable", c.Variable, "the name of the Terraform variable with the map of nodes")
	}
	if !workspaceName.MatchString(c.Workspace) {
		bad("workspace", c.Workspace, "letters, digits and . _ ~ -")
	}
	for _, r := range c.Resources {
		if !strings.Contains(r, ".") || strings.ContainsAny(r, "[] ") {
			bad("resource", r, `an address without keys, such as "aws_instance.node" or "module.node"`)
		}
	}
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		bad("working directory", c.Dir, "a directory")
	} else if info, err := os.Stat(c.Dir); err != nil || !info.IsDir() {
		bad("working directory", c.Dir, "a directory that is there")
	} else if files, _ := filepath.Glob(filepath.Join(c.Dir, "*.tf*")); len(files) == 0 {
		bad("working directory", c.Dir, "one with Terraform files (*.tf)")
	}
	c.VarFiles = slices.Clone(c.VarFiles)
	for i, f := range c.VarFiles {
		if !filepath.IsAbs(f) {
			c.VarFiles[i] = filepath.Join(c.Dir, f)
		}
		if _, err := os.Stat(c.VarFiles[i]); err != nil {
			bad("var file", f, "a file that can be read")
		}
	}
	if c.Binary, err = findBinary(c.Binary); err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return c, &Error{Reason: ReasonError, Kind: ErrConfig, Message: err.Error()}
	}
	return c, nil
}

// findBinary is the path of the program that applies.
func findBinary(name string) (string, error) {
	names := []string{"terraform", "tofu"}
	if name != "" {
		names = []string{name}
	}
	for _, n := range names {
		if path, err := exec.LookPath(n); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("no %s on the PATH: install one, or set its path", strings.Join(names, " and no "))
}

// HasBinary says whether Terraform or OpenTofu is on the PATH.
func HasBinary() bool {
	_, err := findBinary("")
	return err == nil
}
