package state

import (
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"
)

// trackedVersions is how many versions of a job are kept, Nomad's default;
// tagged ones come on top.
const trackedVersions = 6

// The states of a job.
const (
	JobPending = "pending"
	JobRunning = "running"
	JobDead    = "dead"
)

// PutJob stores a new version of a job. The job must be canonical and is
// taken over: the caller must not touch it again. sub is the source that came
// with it; nil keeps the source of the version that job was copied from.
func (tx *Tx) PutJob(job *api.Job, sub *api.JobSubmission) {
	k := JobKey(job)
	old := tx.d.jobs[k]
	from := deref(job.Version)
	job.ModifyIndex, job.JobModifyIndex = ptr(tx.Index), ptr(tx.Index)
	if old == nil {
		job.CreateIndex = ptr(tx.Index)
		job.Version = ptr(uint64(0))
	} else {
		job.CreateIndex = old.CreateIndex
		job.Version = ptr(*old.Version + 1)
	}
	if sub == nil {
		sub = tx.d.submissions[k][from]
	}
	job.Stable = ptr(false)
	tx.d.jobs[k] = job
	job.Status = ptr(tx.jobStatus(job))
	tx.d.versions[k] = append([]*api.Job{job}, tx.d.versions[k]...)
	tx.trimVersions(k)
	if sub != nil {
		if tx.d.submissions[k] == nil {
			tx.d.submissions[k] = map[uint64]*api.JobSubmission{}
		}
		tx.d.submissions[k][*job.Version] = sub
	}
	tx.touch(Jobs)
	tx.event(api.TopicJob, k.ID, k.Namespace, nil, job)
}

// trimVersions drops the oldest version beyond the limit; the newest stable
// one is spared once, and tagged ones are not counted.
func (tx *Tx) trimVersions(k Key) {
	var counted []*api.Job
	for _, j := range tx.d.versions[k] {
		if j.VersionTag == nil {
			counted = append(counted, j)
		}
	}
	if len(counted) <= trackedVersions {
		return
	}
	drop := counted[trackedVersions]
	stable := slices.IndexFunc(counted, func(j *api.Job) bool { return deref(j.Stable) })
	if stable == trackedVersions {
		drop = counted[trackedVersions-1]
	}
	tx.d.versions[k] = slices.DeleteFunc(tx.d.versions[k], func(j *api.Job) bool { return j == drop })
	delete(tx.d.submissions[k], *drop.Version)
}

// EditJob changes fields of the current version without making a new one:
// edit gets a shallow copy.
func (tx *Tx) EditJob(k Key, edit func(j *api.Job)) {
	old := tx.d.jobs[k]
	job := *old
	edit(&job)
	job.ModifyIndex = ptr(tx.Index)
	tx.replaceVersion(k, old, &job)
	tx.d.jobs[k] = &job
	tx.touch(Jobs)
	tx.event(api.TopicJob, k.ID, k.Namespace, nil, &job)
}

// EditVersion does the same to any version kept; it reports whether there is
// such a version.
func (tx *Tx) EditVersion(k Key, version uint64, edit func(j *api.Job)) bool {
	if cur := tx.d.jobs[k]; cur != nil && *cur.Version == version {
		tx.EditJob(k, edit)
		return true
	}
	old := tx.JobVersion(k, version)
	if old == nil {
		return false
	}
	job := *old
	edit(&job)
	tx.replaceVersion(k, old, &job)
	tx.touch(Jobs)
	return true
}

func (tx *Tx) replaceVersion(k Key, old, job *api.Job) {
	versions := slices.Clone(tx.d.versions[k])
	if i := slices.Index(versions, old); i >= 0 {
		versions[i] = job
	}
	tx.d.versions[k] = versions
}

// Children counts the jobs launched from a periodic or parameterized one by
// their status; those that are no more count as dead.
func (v *View) Children(parent *api.Job) *api.JobChildrenSummary {
	k := JobKey(parent)
	out := &api.JobChildrenSummary{Dead: v.d.deadChildren[k]}
	for _, j := range v.d.jobs {
		if *j.Namespace != k.Namespace || deref(j.ParentID) != k.ID {
			continue
		}
		switch deref(j.Status) {
		case JobPending:
			out.Pending++
		case JobRunning:
			out.Running++
		case JobDead:
			out.Dead++
		}
	}
	return out
}

// DeleteJob purges a job, all its versions, and its allocations: what runs of
// them, their clients end, and nobody sees that it still holds anything.
func (tx *Tx) DeleteJob(k Key) {
	job := tx.d.jobs[k]
	for id := range maps.Clone(tx.d.jobAllocs[k]) {
		tx.DeleteAlloc(id)
	}
	for id := range maps.Clone(tx.d.jobEvals[k]) {
		if e := *tx.d.evals[id]; e.Status == api.EvalStatusPending {
			e.Status, e.StatusDescription = api.EvalStatusComplete, "job "+k.ID+" deleted"
			tx.putEval(&e)
		}
	}
	delete(tx.d.deadChildren, k)
	delete(tx.d.collected, k)
	if parent := (Key{k.Namespace, deref(job.ParentID)}); tx.d.jobs[parent] != nil {
		tx.d.deadChildren[parent]++
	}
	delete(tx.d.jobs, k)
	delete(tx.d.versions, k)
	delete(tx.d.submissions, k)
	for id, d := range tx.d.deployments {
		if d.Namespace == k.Namespace && d.JobID == k.ID {
			delete(tx.d.deployments, id)
		}
	}
	tx.touch(Jobs)
	tx.event(api.TopicJob, k.ID, k.Namespace, nil, job)
}

// refreshJob recomputes a job's status after its allocations, evaluations or
// deployments changed.
func (tx *Tx) refreshJob(k Key) {
	job := tx.d.jobs[k]
	if job == nil {
		return
	}
	if status := tx.jobStatus(job); status != deref(job.Status) {
		tx.EditJob(k, func(j *api.Job) { j.Status = &status })
	}
}

func (tx *Tx) jobStatus(job *api.Job) string {
	k := JobKey(job)
	stopped := deref(job.Stop)
	if deref(job.Type) == api.JobTypeSystem || job.IsPeriodic() || job.IsParameterized() {
		if stopped {
			return JobDead
		}
		return JobRunning
	}
	for _, d := range tx.d.deployments {
		if d.Namespace == k.Namespace && d.JobID == k.ID && DeploymentActive(d) {
			return JobRunning
		}
	}
	for id := range tx.d.jobAllocs[k] {
		if !Terminal(tx.d.allocs[id]) {
			return JobRunning
		}
	}
	for id := range tx.d.jobEvals[k] {
		if !EvalTerminal(tx.d.evals[id]) {
			return JobPending
		}
	}
	if len(tx.d.jobEvals[k]) > 0 || stopped {
		return JobDead
	}
	return JobPending
}

// JobKey is a canonical job's key.
func JobKey(job *api.Job) Key { return Key{*job.Namespace, *job.ID} }

func ptr[T any](v T) *T { return &v }

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
