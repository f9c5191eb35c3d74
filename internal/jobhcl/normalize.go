package jobhcl

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
)

// normalize fills in what Nomad's parser fills in, so that a job parsed here
// and one parsed by Nomad are equal.
func normalize(job *api.Job, name string, tasks []*api.Task, vault *api.Vault, secrets []*api.Secret) {
	if job.Name == nil {
		job.Name = &name
	}
	if job.ID == nil {
		job.ID = &name
	}
	if job.Periodic != nil && (job.Periodic.Spec != nil || job.Periodic.Specs != nil) {
		job.Periodic.SpecType = new("cron")
	}
	var alone []*api.TaskGroup
	for _, t := range tasks {
		alone = append(alone, &api.TaskGroup{Name: &t.Name, Tasks: []*api.Task{t}})
	}
	job.TaskGroups = append(alone, job.TaskGroups...)
	normalizeVault(vault)
	for _, g := range job.TaskGroups {
		normalizePorts(g.Networks)
		for _, t := range g.Tasks {
			normalizeTask(t)
			if t.Vault == nil {
				t.Vault = vault
			}
			t.Secrets = append(t.Secrets, secrets...)
		}
	}
}

func normalizeTask(t *api.Task) {
	if t.Resources != nil {
		normalizePorts(t.Resources.Networks)
	}
	for _, tpl := range t.Templates {
		normalizeTemplate(tpl)
	}
	normalizeVault(t.Vault)
	// The default identity has a field of its own.
	i := slices.IndexFunc(t.Identities, func(w *api.WorkloadIdentity) bool { return w.Name == "" || w.Name == "default" })
	if i >= 0 {
		t.Identity = t.Identities[i]
		t.Identities = slices.Delete(t.Identities, i, i+1)
	}
}

// setDefault sets *p to a value unless it has one.
func setDefault[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

func normalizeVault(v *api.Vault) {
	if v == nil {
		return
	}
	setDefault(&v.Env, true)
	setDefault(&v.DisableFile, false)
	setDefault(&v.ChangeMode, "restart")
}

// normalizePorts moves ports with a static number to the reserved ones.
func normalizePorts(networks []*api.NetworkResource) {
	for _, n := range networks {
		if len(n.DynamicPorts) == 0 {
			continue
		}
		var dynamic, reserved []api.Port
		for _, port := range n.DynamicPorts {
			if port.Value > 0 {
				reserved = append(reserved, port)
			} else {
				dynamic = append(dynamic, port)
			}
		}
		n.DynamicPorts, n.ReservedPorts = dynamic, reserved
	}
}

func normalizeTemplate(t *api.Template) {
	setDefault(&t.ChangeMode, "restart")
	setDefault(&t.Perms, "0644")
	setDefault(&t.Splay, 5*time.Second)
	setDefault(&t.ErrMissingKey, false)
	if c := t.ChangeScript; c != nil {
		if c.Args == nil {
			c.Args = []string{}
		}
		setDefault(&c.Timeout, 5*time.Second)
		setDefault(&c.FailOnError, false)
		setDefault(&c.RunOnFirstRender, false)
	}
}
