// Package archtest holds the import rules of the whole project as a test.
package archtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/caravan-sched/caravan/"

// layer is a set of packages and what they may import within the project.
// Arrows point down: commands → adapters → pure packages → core.
type layer struct {
	prefix string
	// allowed are the project packages (prefixes) that may be imported.
	allowed []string
	// stdOnly forbids everything outside the project and the standard library.
	stdOnly bool
	// forbidden are packages outside of the project that are not to be
	// imported, by prefix.
	forbidden []string
}

// impure are the standard library's ways to the outside.
var impure = []string{"net", "os", "log", "math/rand", "context", "sync", "syscall", "io/fs", "time/"}

// layers are looked through in order: the first prefix that matches counts.
var layers = []layer{
	{prefix: "planner/core", allowed: []string{"planner/core"}, stdOnly: true, forbidden: impure},
	{prefix: "planner/history", allowed: []string{"planner/core/model"}, forbidden: impure},
	{prefix: "planner/usage", allowed: []string{"planner/core/model", "planner/core/together"}, forbidden: impure},
	{prefix: "planner/gangspec", allowed: []string{"planner/core/model"}, forbidden: impure},
	{prefix: "planner/rewrite", allowed: []string{"planner/core/model", "planner/gangspec"}, forbidden: impure},
	{prefix: "planner/record", allowed: []string{"planner/burstapi", "planner/core/model"}},
	{prefix: "planner/purchases", allowed: []string{"planner/core/burst", "planner/core/model", "planner/burstapi"}, forbidden: impure},
	{prefix: "planner/carbon", allowed: nil, stdOnly: true},
	{prefix: "planner/burstapi", allowed: nil, stdOnly: true},
	{prefix: "autoscaler/pool", allowed: nil},
	{prefix: "autoscaler/orphan", allowed: nil, stdOnly: true},
	{prefix: "autoscaler/terraform", allowed: nil},
	{prefix: "autoscaler/target", allowed: []string{"autoscaler/link", "autoscaler/pool", "autoscaler/terraform", "planner/burstapi", "planner/httpapi"}},
	{prefix: "autoscaler/link", allowed: []string{"planner/httpapi"}},
	{prefix: "autoscaler/apm", allowed: []string{"autoscaler/link", "planner/burstapi", "planner/core/model", "planner/httpapi"}},
	{prefix: "autoscaler/strategy", allowed: []string{"autoscaler/link", "planner/burstapi"}},
	{prefix: "autoscaler/cmd", allowed: []string{"autoscaler/"}},
	{prefix: "planner/config", allowed: []string{"autoscaler/pool", "planner/core", "planner/gangspec"}},
	{prefix: "planner/observe", allowed: []string{"planner/burstapi", "planner/core/model", "planner/core/feasible", "planner/core/queue", "planner/gangspec", "planner/rewrite", "planner/record", "planner/config", "devicegpu/topology"}},
	{prefix: "planner/apply", allowed: []string{"planner/core/model", "planner/core/preempt", "planner/gangspec", "planner/rewrite", "planner/record", "planner/observe"}},
	{prefix: "planner/federate", allowed: []string{"planner/core/model", "planner/record", "planner/observe", "planner/apply"}},
	{prefix: "planner/httpapi", allowed: []string{"driver/gangapi", "driver/rendezvous", "planner/barrier", "planner/burstapi", "planner/core", "planner/gangspec", "planner/rewrite", "planner/record", "planner/observe"}},
	{prefix: "planner/doctor", allowed: []string{"planner/core/model", "planner/rewrite", "planner/record", "planner/observe", "planner/config", "planner/httpapi"}},
	{prefix: "planner/taskcheck", allowed: []string{"driver/config", "planner/gangspec"}},
	{prefix: "planner/gateway", allowed: []string{"planner/core/model", "planner/taskcheck", "planner/gangspec", "planner/rewrite", "planner/record", "planner/httpapi"}},
	{prefix: "planner/daemon", allowed: []string{"autoscaler/pool", "planner/", "driver/gangapi", "driver/rendezvous"}},
	{prefix: "planner/sim/trace", allowed: nil},
	{prefix: "planner/sim/bound", allowed: nil, stdOnly: true},
	{prefix: "planner/sim/audit", allowed: nil, stdOnly: true},
	{prefix: "planner/sim", allowed: []string{"autoscaler/pool", "planner/burstapi", "planner/core", "planner/history", "planner/purchases", "planner/sim", "planner/config"}},
	{prefix: "planner/cmd", allowed: []string{"autoscaler/pool", "planner/", "internal/", "driver/gangapi", "driver/rendezvous", "driver/progress"}},
	{prefix: "devicegpu/topology", allowed: []string{"devicegpu/topology"}, forbidden: impure},
	{prefix: "devicegpu", allowed: []string{"devicegpu", "internal/nomadplugin", "planner/core/mig"}},
	{prefix: "driver/rendezvous", allowed: nil, forbidden: impure},
	{prefix: "driver/gangapi", allowed: []string{"driver/rendezvous"}},
	{prefix: "driver/ulimit", allowed: nil},
	{prefix: "driver/exec", allowed: []string{"driver/ulimit"}},
	{prefix: "driver/supervisor/machine", allowed: []string{"driver/gangapi", "driver/rendezvous"}, forbidden: impure},
	{prefix: "driver/progress", allowed: []string{"driver/gangapi"}},
	{prefix: "driver/container", allowed: []string{"driver/exec"}},
	{prefix: "driver/config", allowed: []string{"driver/ulimit", "internal/nomadplugin"}},
	{prefix: "driver", allowed: []string{"driver", "internal/nomadplugin", "devicegpu/health", "devicegpu/nvml"}},
	{prefix: "planner/barrier", allowed: []string{"planner/rewrite", "planner/core/model", "planner/gangspec", "planner/record", "planner/observe", "driver/gangapi", "driver/rendezvous"}},
	{prefix: "internal/nomadplugin", allowed: []string{"internal/nomadplugin"}},
	{prefix: "internal/jobhcl", allowed: nil},
	{prefix: "internal/devcluster", allowed: nil},
	{prefix: "internal/devnomad", allowed: []string{"internal/devnomad", "internal/devcluster", "internal/nomadplugin", "internal/jobhcl"}},
	{prefix: "internal/devjoin", allowed: []string{"internal/devcluster", "internal/devnomad", "internal/nomadproc"}},
	{prefix: "internal/nomadproc", allowed: []string{"internal/devcluster", "internal/freeport"}},
	{prefix: "internal/freeport", allowed: nil},
	{prefix: "internal/devrun", allowed: []string{"autoscaler/", "internal/", "planner/", "driver/", "devicegpu/", "jobspecs", "dist/acl"}},
	{prefix: "internal/archtest", allowed: nil},
	{prefix: "internal/optimality", allowed: []string{"planner/core"}},
	{prefix: "internal/budget/drawn", allowed: []string{"planner/core/model"}},
	{prefix: "internal/budget", allowed: []string{"planner/core", "internal/budget"}},
	{prefix: "e2e", allowed: []string{"internal/", "planner/", "driver/", "devicegpu/", "e2e"}},
	{prefix: "dist", stdOnly: true},
	{prefix: "jobspecs", allowed: []string{"autoscaler/", "internal/", "jobspecs", "planner/"}},
}

type listed struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func list(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Standard"}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("list packages: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("list packages: %v", err)
	}
	var all []listed
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("decode package list: %v", err)
		}
		all = append(all, l)
	}
}

func TestImportRules(t *testing.T) {
	packages := list(t, module+"...")
	if len(packages) < 10 {
		t.Fatalf("found %d packages only", len(packages))
	}
	for _, p := range packages {
		for _, fault := range faults(p) {
			t.Error(fault)
		}
	}
}

func TestImportRulesCatchFaults(t *testing.T) {
	tests := map[string]struct {
		pkg, imports string
		want         bool
	}{
		"core may not read the environment":  {"planner/core/place", "os", true},
		"core may not use libraries":         {"planner/core", "github.com/hashicorp/go-hclog", true},
		"core may use its own":               {"planner/core/place", module + "planner/core/model", false},
		"pure packages may not reach Nomad":  {"planner/rewrite", "net/http", true},
		"arrows point down":                  {"planner/observe", module + "planner/daemon", true},
		"nobody depends on Nomad itself":     {"planner/daemon", "github.com/hashicorp/nomad/nomad/structs", true},
		"Nomad's API module may be used":     {"planner/daemon", "github.com/hashicorp/nomad/api", false},
		"the product does not use its stand": {"planner/daemon", module + "internal/devnomad", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := faults(listed{ImportPath: module + test.pkg, Imports: []string{test.imports}})
			if (len(got) > 0) != test.want {
				t.Errorf("faults = %v, want any: %v", got, test.want)
			}
		})
	}
}

// faults lists the imports of p that break a rule.
func faults(p listed) []string {
	path := strings.TrimPrefix(p.ImportPath, module)
	at := slices.IndexFunc(layers, func(l layer) bool { return path == l.prefix || strings.HasPrefix(path, l.prefix+"/") })
	if at < 0 {
		return []string{fmt.Sprintf("%s belongs to no layer: add it to the rules", path)}
	}
	var out []string
	for _, imported := range p.Imports {
		if why := layers[at].refuses(imported); why != "" {
			out = append(out, fmt.Sprintf("%s imports %s: %s", path, imported, why))
		}
	}
	return out
}

func (l layer) refuses(imported string) string {
	if imported == "github.com/hashicorp/nomad" || (strings.HasPrefix(imported, "github.com/hashicorp/nomad/") && !strings.HasPrefix(imported, "github.com/hashicorp/nomad/api")) {
		return "Nomad itself is not a dependency"
	}
	if own, ok := strings.CutPrefix(imported, module); ok {
		if strings.HasPrefix(own, l.prefix) || slices.ContainsFunc(l.allowed, func(a string) bool { return strings.HasPrefix(own, a) }) {
			return ""
		}
		return fmt.Sprintf("%s may import only %v", l.prefix, l.allowed)
	}
	if imported == "net/netip" {
		return "" // values without I/O, whatever it stands below
	}
	for _, f := range l.forbidden {
		if imported == f || strings.HasPrefix(imported, strings.TrimSuffix(f, "/")+"/") {
			return "a pure package has no clock, I/O, logger or chance"
		}
	}
	if l.stdOnly && strings.Contains(strings.SplitN(imported, "/", 2)[0], ".") {
		return "only the standard library"
	}
	return ""
}
