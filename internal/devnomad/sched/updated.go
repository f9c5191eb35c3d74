package sched

import (
	"encoding/json"
	"maps"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
)

// needsRestart says whether the change of a group from one version to another
// cannot be made under running tasks. Count and constraints of job, group and
// task can; what a task sees (config, env, meta, resources, devices and their
// constraints, network) cannot.
func needsRestart(oldJob, newJob *api.Job, group string) bool {
	a, b := lookupGroup(oldJob, group), lookupGroup(newJob, group)
	if a == nil || b == nil || len(a.Tasks) != len(b.Tasks) {
		return true
	}
	if !same(a.EphemeralDisk, b.EphemeralDisk) || !same(fixedNetworks(a.Networks), fixedNetworks(b.Networks)) || !same(a.Volumes, b.Volumes) {
		return true
	}
	for _, t := range a.Tasks {
		u := lookupTask(b, t.Name)
		if u == nil || taskNeedsRestart(t, u) || !maps.Equal(taskMeta(oldJob, a, t), taskMeta(newJob, b, u)) {
			return true
		}
	}
	return false
}

func taskNeedsRestart(a, b *api.Task) bool {
	if a.Driver != b.Driver || a.User != b.User || !maps.Equal(a.Env, b.Env) {
		return true
	}
	if deref(a.LogConfig.Disabled) != deref(b.LogConfig.Disabled) {
		return true
	}
	return !same(a.Config, b.Config) || !same(a.Artifacts, b.Artifacts) || !same(a.Templates, b.Templates) ||
		!same(a.Vault, b.Vault) || !same(a.VolumeMounts, b.VolumeMounts) || !same(a.Secrets, b.Secrets) ||
		!same(a.Identities, b.Identities) || !same(resourcesSeen(a), resourcesSeen(b))
}

// resourcesSeen are a task's resources as far as a change restarts it.
func resourcesSeen(t *api.Task) *api.Resources {
	r := *t.Resources
	r.DiskMB, r.IOPS = nil, nil
	r.Networks = fixedNetworks(r.Networks)
	return &r
}

// fixedNetworks leaves out the values that the scheduler chose for dynamic
// ports.
func fixedNetworks(ns []*api.NetworkResource) []*api.NetworkResource {
	var out []*api.NetworkResource
	for _, n := range ns {
		c := *n
		c.DynamicPorts = nil
		for _, p := range n.DynamicPorts {
			p.Value = -1
			c.DynamicPorts = append(c.DynamicPorts, p)
		}
		out = append(out, &c)
	}
	return out
}

// taskMeta is what a task sees of the meta of job, group and itself.
func taskMeta(job *api.Job, tg *api.TaskGroup, t *api.Task) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{job.Meta, tg.Meta, t.Meta} {
		maps.Copy(out, m)
	}
	return out
}

func lookupTask(tg *api.TaskGroup, name string) *api.Task {
	for _, t := range tg.Tasks {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// same compares by JSON, in which a nil and an absent value are equal and a
// number is a number whatever Go type carried it here.
func same(a, b any) bool {
	x, y := plain(a), plain(b)
	return cmp.Equal(x, y)
}

func plain(v any) any {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	var out any
	if json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return prune(out)
}

// prune drops nulls and empty containers.
func prune(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			if p := prune(e); p == nil {
				delete(x, k)
			} else {
				x[k] = p
			}
		}
		if len(x) == 0 {
			return nil
		}
		return x
	case []any:
		if len(x) == 0 {
			return nil
		}
		for i := range x {
			x[i] = prune(x[i])
		}
		return x
	}
	return v
}

// SpecChanged says whether a registration changes what is stored: what the
// server sets is not compared.
func SpecChanged(old, new *api.Job) bool {
	if old == nil {
		return true
	}
	return !same(submitted(old), submitted(new))
}

func submitted(j *api.Job) *api.Job {
	c := *j
	c.Status, c.StatusDescription, c.Stable, c.Version = nil, nil, nil, nil
	c.CreateIndex, c.ModifyIndex, c.JobModifyIndex, c.SubmitTime = nil, nil, nil, nil
	return &c
}
