package gangspec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Hash identifies what the user submitted: two registrations of one job file
// have the same, whether they are looked at before Nomad has seen them, as
// Nomad parsed them, or as Nomad gives them back with everything that its
// servers complete. What says where the job is (region, namespace), its state
// and indexes, the version's tag and the text for the UI do not count, nor do
// constraints that Nomad adds by itself. Gate and pins count: strip them
// first (package rewrite). A job that cannot be encoded has the hash "".
func Hash(job *api.Job) string {
	data, err := canonicalJSON(job)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// canonicalJSON writes what counts of a job in one way.
func canonicalJSON(job *api.Job) ([]byte, error) {
	c, err := Submitted(job)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, errors.New("write a canonical job: there is none")
	}
	canonical(c)
	data, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write a canonical job: %w", err)
	}
	tree, err := decodeTree(data)
	if err != nil {
		return nil, fmt.Errorf("write a canonical job: %w", err)
	}
	return json.Marshal(prune(tree))
}

func decodeTree(data []byte) (any, error) {
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	var tree any
	err := dec.Decode(&tree)
	return tree, err
}

// canonical completes the job as Nomad's servers do, and drops what they add.
func canonical(job *api.Job) {
	id := deref(job.ID)
	if deref(job.Name) == "" {
		job.Name = &id
	}
	if deref(job.Type) == "" {
		service := api.JobTypeService
		job.Type = &service
	}
	if deref(job.Priority) == 0 {
		job.Priority = nil
	}
	job.Canonicalize()
	job.Region, job.Namespace, job.UI, job.ConsulNamespace, job.VaultNamespace = nil, nil, nil, nil, nil
	if len(job.Datacenters) == 0 {
		job.Datacenters = []string{"*"}
	}
	if deref(job.NodePool) == "" {
		pool := api.NodePoolDefault
		job.NodePool = &pool
	}
	// Canonicalize has merged these into the groups.
	job.Update, job.Reschedule, job.Migrate = nil, nil, nil
	job.Constraints = explicit(job.Constraints, nil)
	for _, g := range job.TaskGroups {
		canonicalGroup(job, g)
	}
}

func canonicalGroup(job *api.Job, g *api.TaskGroup) {
	if *job.Type != api.JobTypeService {
		g.Update = nil
	}
	if g.Update != nil && deref(g.Update.MaxParallel) == 0 {
		// Nothing is rolled out step by step then, so the rest says nothing.
		g.Update = nil
	}
	g.Constraints = explicit(g.Constraints, g)
	for _, n := range g.Networks {
		canonicalNetwork(n)
	}
	for _, s := range g.Services {
		canonicalService(s, job, g, "")
	}
	kept := g.Tasks[:0]
	for _, t := range g.Tasks {
		if injected(t) {
			continue
		}
		canonicalTask(job, g, t)
		kept = append(kept, t)
	}
	g.Tasks = kept
}

// injected says whether Nomad itself added the task, for Consul Connect.
func injected(t *api.Task) bool {
	return strings.HasPrefix(t.Kind, "connect-") || strings.HasSuffix(strings.SplitN(t.Kind, ":", 2)[0], "-gateway")
}

func canonicalNetwork(n *api.NetworkResource) {
	if n.Mode == "host" {
		n.Mode = ""
	}
	n.MBits = nil
	// A job file's port with a static value is a dynamic one to some parsers.
	ports := append(n.ReservedPorts, n.DynamicPorts...)
	n.ReservedPorts, n.DynamicPorts = nil, nil
	for _, p := range ports {
		if p.HostNetwork == "default" {
			p.HostNetwork = ""
		}
		switch {
		case strings.HasPrefix(p.Label, "connect-") || strings.HasPrefix(p.Label, "svc_"):
			// Nomad's own, for Consul Connect.
		case p.Value > 0:
			n.ReservedPorts = append(n.ReservedPorts, p)
		default:
			n.DynamicPorts = append(n.DynamicPorts, p)
		}
	}
}

func canonicalService(s *api.Service, job *api.Job, g *api.TaskGroup, task string) {
	names := strings.NewReplacer(serviceNames(*job.Name, *g.Name, task)...)
	s.Name = names.Replace(s.Name)
	if s.TaskName == "" {
		s.TaskName = task
	}
	s.Identity = nil
	if s.Connect != nil && s.Connect.SidecarService != nil && s.Connect.SidecarService.Proxy != nil {
		s.Connect.SidecarService.Proxy.Expose = nil
	}
	// Merged into the checks.
	s.CheckRestart = nil
	for i := range s.Checks {
		c := &s.Checks[i]
		if c.Name == "" {
			c.Name = fmt.Sprintf("service: %q check", s.Name)
		}
		if c.TaskName == "" {
			c.TaskName = s.TaskName
		}
		if c.Expose && strings.HasPrefix(c.PortLabel, "svc_") {
			c.PortLabel = ""
		}
	}
}

// serviceNames are what Nomad's servers put into the names of services when
// the job is registered.
func serviceNames(job, group, task string) []string {
	within := task
	if within == "" {
		within = "group"
	}
	base := job + "-" + group + "-" + within
	var pairs []string
	for _, kv := range [][2]string{{"JOB", job}, {"TASKGROUP", group}, {"TASK", within}, {"BASE", base}} {
		pairs = append(pairs, "${"+kv[0]+"}", kv[1])
	}
	return pairs
}

func canonicalTask(job *api.Job, g *api.TaskGroup, t *api.Task) {
	t.Constraints = explicit(t.Constraints, g)
	for _, s := range t.Services {
		canonicalService(s, job, g, t.Name)
	}
	if r := t.Resources; r != nil {
		r.DiskMB, r.IOPS = nil, nil
		for _, n := range r.Networks {
			canonicalNetwork(n)
		}
	}
	if t.LogConfig != nil {
		t.LogConfig.Enabled = nil
	}
	canonicalIdentities(t)
	for _, tmpl := range t.Templates {
		if deref(tmpl.ChangeMode) != "script" {
			tmpl.ChangeScript = nil
		}
	}
}

// canonicalIdentities moves the default workload identity to its place, and
// drops it when it says no more than Nomad says without it.
func canonicalIdentities(t *api.Task) {
	var rest []*api.WorkloadIdentity
	for _, id := range t.Identities {
		switch {
		case id.Name == "" || id.Name == "default":
			t.Identity = id
		case strings.HasPrefix(id.Name, "consul_") || strings.HasPrefix(id.Name, "vault_"):
			// From the servers' configuration.
		case IsMemberIdentity(t, id):
			// Caravan's own.
		default:
			rest = append(rest, id)
		}
	}
	t.Identities = rest
	if id := t.Identity; id != nil && !id.Env && !id.File && id.Filepath == "" && id.TTL == 0 && id.ChangeMode == "" {
		t.Identity = nil
	} else if id != nil {
		id.Name, id.Audience = "", nil
	}
}

// opaque are the fields whose keys are the user's own: an empty value there
// is not the same as none.
var opaque = map[string]bool{
	"Meta": true, "Env": true, "Config": true, "CanaryMeta": true, "TaggedAddresses": true,
	"GetterOptions": true, "GetterHeaders": true, "Header": true, "Policy": true, "Args": true,
}

// prune drops every field that holds nothing, so that nil, empty and zero are
// one, and writes numbers in one way. A template's Uid and Gid stay: 0 is root
// there, and nil is whoever runs the task.
func prune(tree any) any {
	switch t := tree.(type) {
	case map[string]any:
		for k, v := range t {
			switch {
			case k == "Uid" || k == "Gid":
				if v == nil || v == json.Number("-1") {
					delete(t, k)
				}
				continue
			case opaque[k]:
				v = numbers(v)
			default:
				v = prune(v)
			}
			if empty(v) {
				delete(t, k)
			} else {
				t[k] = v
			}
		}
		return t
	case []any:
		for i := range t {
			t[i] = prune(t[i])
		}
		return t
	default:
		return numbers(tree)
	}
}

func empty(v any) bool {
	switch t := v.(type) {
	case nil:
		return true
	case bool:
		return !t
	case string:
		return t == ""
	case json.Number:
		return t == "0"
	case map[string]any:
		return len(t) == 0
	case []any:
		return len(t) == 0
	}
	return false
}

// numbers writes 1, 1.0 and 1e0 alike.
func numbers(v any) any {
	switch t := v.(type) {
	case json.Number:
		if _, err := t.Int64(); err == nil {
			return t
		}
		if f, err := t.Float64(); err == nil {
			return json.Number(strconv.FormatFloat(f, 'f', -1, 64))
		}
		return t
	case map[string]any:
		for k := range t {
			t[k] = numbers(t[k])
		}
	case []any:
		for i := range t {
			t[i] = numbers(t[i])
		}
	}
	return v
}
