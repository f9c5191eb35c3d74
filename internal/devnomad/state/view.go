package state

import (
	"cmp"
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"
)

// View reads the state. Lists are sorted: jobs by namespace and ID, all else
// by creation.
type View struct{ d *data }

// Index is the index of the last change of any table.
func (v *View) Index() uint64 { return v.d.index }

// TableIndex is the index of the table's last change; like Nomad, a table
// that was never written has index 1, so that nobody blocks on 0.
func (v *View) TableIndex(t Table) uint64 { return max(v.d.tables[t], 1) }

// Job returns a job, or nil.
func (v *View) Job(k Key) *api.Job { return v.d.jobs[k] }

// JobVersions returns the versions kept, newest first.
func (v *View) JobVersions(k Key) []*api.Job { return slices.Clone(v.d.versions[k]) }

// JobVersion returns one version, or nil if it is not kept.
func (v *View) JobVersion(k Key, version uint64) *api.Job {
	for _, j := range v.d.versions[k] {
		if *j.Version == version {
			return j
		}
	}
	return nil
}

// Submission returns the source that a version was submitted with, or nil.
func (v *View) Submission(k Key, version uint64) *api.JobSubmission {
	return v.d.submissions[k][version]
}

// Jobs returns the jobs of a namespace; "*" is all namespaces.
func (v *View) Jobs(namespace string) []*api.Job {
	var out []*api.Job
	for k, j := range v.d.jobs {
		if namespace == "*" || namespace == k.Namespace {
			out = append(out, j)
		}
	}
	slices.SortFunc(out, func(a, b *api.Job) int {
		return cmp.Or(cmp.Compare(*a.Namespace, *b.Namespace), cmp.Compare(*a.ID, *b.ID))
	})
	return out
}

// Node returns a node, or nil.
func (v *View) Node(id string) *Node { return v.d.nodes[id] }

// Nodes returns all nodes.
func (v *View) Nodes() []*Node {
	return sorted(v.d.nodes, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(a.CreateIndex, b.CreateIndex), cmp.Compare(a.ID, b.ID))
	})
}

// Alloc returns an allocation, or nil.
func (v *View) Alloc(id string) *api.Allocation { return v.d.allocs[id] }

// Allocs returns all allocations.
func (v *View) Allocs() []*api.Allocation { return sorted(v.d.allocs, byCreation) }

// Collected counts the allocations of a job that are no more.
func (v *View) Collected(k Key) map[Ended]int { return maps.Clone(v.d.collected[k]) }

// AllocsOfJob returns a job's allocations, terminal ones included.
func (v *View) AllocsOfJob(k Key) []*api.Allocation { return v.pick(v.d.jobAllocs[k]) }

// AllocsOfNode returns a node's allocations, terminal ones included.
func (v *View) AllocsOfNode(id string) []*api.Allocation { return v.pick(v.d.nodeAllocs[id]) }

func (v *View) pick(ids map[string]struct{}) []*api.Allocation {
	out := make([]*api.Allocation, 0, len(ids))
	for id := range ids {
		out = append(out, v.d.allocs[id])
	}
	slices.SortFunc(out, byCreation)
	return out
}

func byCreation(a, b *api.Allocation) int {
	return cmp.Or(cmp.Compare(a.CreateIndex, b.CreateIndex), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
}

// Eval returns an evaluation, or nil.
func (v *View) Eval(id string) *api.Evaluation { return v.d.evals[id] }

// Evals returns all evaluations.
func (v *View) Evals() []*api.Evaluation { return sorted(v.d.evals, evalByCreation) }

// EvalsOfJob returns a job's evaluations.
func (v *View) EvalsOfJob(k Key) []*api.Evaluation {
	var out []*api.Evaluation
	for id := range v.d.jobEvals[k] {
		out = append(out, v.d.evals[id])
	}
	slices.SortFunc(out, evalByCreation)
	return out
}

// EvalsWith returns the evaluations with a status, pending or blocked.
func (v *View) EvalsWith(status string) []*api.Evaluation {
	var out []*api.Evaluation
	for id := range v.d.evalsBy[status] {
		out = append(out, v.d.evals[id])
	}
	slices.SortFunc(out, evalByCreation)
	return out
}

func evalByCreation(a, b *api.Evaluation) int {
	return cmp.Or(cmp.Compare(a.CreateIndex, b.CreateIndex), cmp.Compare(a.ID, b.ID))
}

// Deployment returns a deployment, or nil.
func (v *View) Deployment(id string) *api.Deployment { return v.d.deployments[id] }

// Deployments returns all deployments.
func (v *View) Deployments() []*api.Deployment {
	return sorted(v.d.deployments, func(a, b *api.Deployment) int {
		return cmp.Or(cmp.Compare(a.CreateIndex, b.CreateIndex), cmp.Compare(a.ID, b.ID))
	})
}

// DeploymentsOfJob returns a job's deployments.
func (v *View) DeploymentsOfJob(k Key) []*api.Deployment {
	var out []*api.Deployment
	for _, d := range v.Deployments() {
		if d.Namespace == k.Namespace && d.JobID == k.ID {
			out = append(out, d)
		}
	}
	return out
}

// LatestDeployment returns a job's newest deployment, or nil.
func (v *View) LatestDeployment(k Key) *api.Deployment {
	all := v.DeploymentsOfJob(k)
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// Variable returns a variable, or nil.
func (v *View) Variable(k Key) *api.Variable { return v.d.variables[k] }

// VariablesOf returns the variables of a namespace ("*" is all), by path.
func (v *View) VariablesOf(namespace string) []*api.Variable {
	var out []*api.Variable
	for k, x := range v.d.variables {
		if namespace == "*" || namespace == k.Namespace {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b *api.Variable) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Path, b.Path))
	})
	return out
}

// SchedulerConfig returns the scheduler configuration.
func (v *View) SchedulerConfig() *api.SchedulerConfiguration { return v.d.config }

// EventsFrom returns the events with an index of at least from, oldest first,
// one element per index.
func (v *View) EventsFrom(from uint64) []Events { return v.d.events.from(from) }

func sorted[T any](m map[string]T, by func(a, b T) int) []T {
	out := make([]T, 0, len(m))
	for _, x := range m {
		out = append(out, x)
	}
	slices.SortFunc(out, by)
	return out
}
