package client

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

var notEnv = regexp.MustCompile(`[^A-Za-z0-9_]`)

// env is what Nomad puts into a task's environment, without devices and the
// task's own env block.
func (t *taskRunner) env() map[string]string {
	t.r.mu.Lock()
	a := t.r.alloc
	t.r.mu.Unlock()
	job := a.Job
	shared := filepath.Join(t.r.dir(), "alloc")
	env := map[string]string{
		"NOMAD_ALLOC_DIR":      shared,
		"NOMAD_TASK_DIR":       filepath.Join(t.dir, "local"),
		"NOMAD_SECRETS_DIR":    filepath.Join(t.dir, "secrets"),
		"NOMAD_ALLOC_ID":       a.ID,
		"NOMAD_SHORT_ALLOC_ID": a.ID[:8],
		"NOMAD_ALLOC_NAME":     a.Name,
		"NOMAD_ALLOC_INDEX":    strconv.Itoa(index(a.Name)),
		"NOMAD_TASK_NAME":      t.task.Name,
		"NOMAD_GROUP_NAME":     a.TaskGroup,
		"NOMAD_JOB_ID":         a.JobID,
		"NOMAD_JOB_NAME":       *job.Name,
		"NOMAD_NAMESPACE":      a.Namespace,
		"NOMAD_REGION":         *job.Region,
		"NOMAD_DC":             t.r.c.fingerprint().Datacenter,
		"NOMAD_PARENT_CGROUP":  "nomad.slice",
		"PATH":                 os.Getenv("PATH"),
		"HOME":                 os.Getenv("HOME"),
		"TMPDIR":               filepath.Join(t.dir, "tmp"),
	}
	if job.ParentID != nil && *job.ParentID != "" {
		env["NOMAD_JOB_PARENT_ID"] = *job.ParentID
	}
	if res := t.resources(); res != nil {
		env["NOMAD_CPU_LIMIT"] = strconv.FormatInt(res.Cpu.CpuShares, 10)
		env["NOMAD_MEMORY_LIMIT"] = strconv.FormatInt(res.Memory.MemoryMB, 10)
		for _, p := range a.AllocatedResources.Shared.Ports {
			port, label := strconv.Itoa(p.Value), notEnv.ReplaceAllString(p.Label, "_")
			env["NOMAD_PORT_"+label] = port
			env["NOMAD_HOST_PORT_"+label] = port
			env["NOMAD_IP_"+label] = p.HostIP
			env["NOMAD_ADDR_"+label] = p.HostIP + ":" + port
			env["NOMAD_HOST_ADDR_"+label] = p.HostIP + ":" + port
		}
	}
	for _, m := range []map[string]string{job.Meta, t.r.group.Meta, t.task.Meta} {
		for k, v := range m {
			clean := notEnv.ReplaceAllString(k, "_")
			env["NOMAD_META_"+clean] = v
			env["NOMAD_META_"+strings.ToUpper(clean)] = v
		}
	}
	return env
}

func index(name string) int {
	i := strings.LastIndexByte(name, '[')
	n, err := strconv.Atoi(strings.TrimSuffix(name[i+1:], "]"))
	if err != nil {
		return 0
	}
	return n
}

var reference = regexp.MustCompile(`\$\{[^}]*\}`)

// interpolate replaces ${…} as Nomad's client does: environment variables,
// node attributes and meta. What is unknown stays.
func (t *taskRunner) interpolate(s string, env map[string]string) string {
	if !strings.Contains(s, "${") {
		return s
	}
	var n *state.Node
	return reference.ReplaceAllStringFunc(s, func(ref string) string {
		key := ref[2 : len(ref)-1]
		if inner, ok := strings.CutPrefix(key, `env["`); ok {
			key = strings.TrimSuffix(inner, `"]`)
		}
		key = strings.TrimPrefix(key, "env.")
		if v, ok := env[key]; ok {
			return v
		}
		if n == nil {
			n = t.r.c.fingerprint()
		}
		if v, ok := nodeValue(n.Node, key); ok {
			return v
		}
		return ref
	})
}

func nodeValue(n *api.Node, key string) (string, bool) {
	switch key {
	case "node.unique.id":
		return n.ID, true
	case "node.unique.name":
		return n.Name, true
	case "node.datacenter":
		return n.Datacenter, true
	case "node.class":
		return n.NodeClass, true
	case "node.pool":
		return n.NodePool, true
	case "node.region":
		return "global", true
	}
	if k, ok := strings.CutPrefix(key, "attr."); ok {
		v, ok := n.Attributes[k]
		return v, ok
	}
	if k, ok := strings.CutPrefix(key, "meta."); ok {
		v, ok := n.Meta[k]
		return v, ok
	}
	return "", false
}

// LogFile is where a task's output goes; kind is stdout or stderr.
func (c *Client) LogFile(alloc, task, kind string) string {
	return filepath.Join(c.cfg.Dir, "alloc", alloc, "alloc", "logs", fmt.Sprintf("%s.%s.0", task, kind))
}

// AllocDir is the root of an allocation's files.
func (c *Client) AllocDir(alloc string) string { return filepath.Join(c.cfg.Dir, "alloc", alloc) }
