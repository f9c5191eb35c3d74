package client

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var notEnv = regexp.MustCompile(`[^A-Za-z0-9_]`)

// hidden are the variables of the agent that tasks do not inherit.
var hidden = []string{
	"AWS_ACCESS_KEY_ID", "AWS_METADATA_URL", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
	"CONSUL_HTTP_TOKEN", "CONSUL_HTTP_TOKEN_FILE", "CONSUL_LICENSE", "CONSUL_LICENSE_PATH", "CONSUL_TOKEN",
	"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_OAUTH_ACCESS_TOKEN", "VAULT_LICENSE", "VAULT_LICENSE_PATH", "VAULT_TOKEN",
}

// hostEnv is what tasks inherit of the agent's environment. An agent has no
// NOMAD_ variables here, but a developer may.
func hostEnv() map[string]string {
	env := map[string]string{}
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		if !slices.Contains(hidden, k) && !strings.HasPrefix(k, "NOMAD_") {
			env[k] = v
		}
	}
	return env
}

// env is what Nomad puts into a task's environment, without devices and the
// task's own env block.
func (t *taskRunner) env() map[string]string {
	a := t.r.current()
	job := a.Job
	shared := filepath.Join(t.r.dir(), "alloc")
	env := hostEnv()
	for _, kv := range t.r.c.cfg.TaskEnv {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	maps.Copy(env, map[string]string{
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
	})
	if job.ParentID != nil && *job.ParentID != "" {
		env["NOMAD_JOB_PARENT_ID"] = *job.ParentID
	}
	if res := t.resources(); res != nil {
		env["NOMAD_CPU_LIMIT"] = strconv.FormatInt(res.Cpu.CpuShares, 10)
		env["NOMAD_MEMORY_LIMIT"] = strconv.FormatInt(res.Memory.MemoryMB, 10)
		if res.Memory.MemoryMaxMB > 0 {
			env["NOMAD_MEMORY_MAX_LIMIT"] = strconv.FormatInt(res.Memory.MemoryMaxMB, 10)
		}
		if cores := coreList(res.Cpu.ReservedCores); cores != "" {
			env["NOMAD_CPU_CORES"] = cores
		}
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
	var node map[string]string
	return reference.ReplaceAllStringFunc(s, func(ref string) string {
		key := ref[2 : len(ref)-1]
		if inner, ok := strings.CutPrefix(key, `env["`); ok {
			key = strings.TrimSuffix(inner, `"]`)
		}
		key = strings.TrimPrefix(key, "env.")
		if v, ok := env[key]; ok {
			return v
		}
		if node == nil {
			node = map[string]string{}
			nodeVars(t.r.c.cfg.Region, t.r.c.fingerprint(), func(name, value string) { node[name] = value })
		}
		if v, ok := node[key]; ok {
			return v
		}
		return ref
	})
}

// LogFile is where a task's output goes, without the number of the file; kind
// is stdout or stderr.
func (c *Client) LogFile(alloc, task, kind string) string {
	return filepath.Join(c.cfg.Dir, "alloc", alloc, "alloc", "logs", task+"."+kind)
}

// AllocDir is the root of an allocation's files.
func (c *Client) AllocDir(alloc string) string { return filepath.Join(c.cfg.Dir, "alloc", alloc) }
