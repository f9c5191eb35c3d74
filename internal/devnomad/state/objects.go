package state

import (
	"github.com/hashicorp/nomad/api"
)

// PutNode stores a node that the caller gives up.
func (tx *Tx) PutNode(n *Node) {
	if old := tx.d.nodes[n.ID]; old != nil {
		n.CreateIndex = old.CreateIndex
	} else {
		n.CreateIndex = tx.Index
	}
	n.ModifyIndex = tx.Index
	tx.d.nodes[n.ID] = n
	tx.touch(Nodes)
	tx.event(api.TopicNode, n.ID, "", nil, n)
}

// EditNode changes a node: edit gets a copy of the node's own fields.
func (tx *Tx) EditNode(id string, edit func(n *Node)) {
	old := tx.d.nodes[id]
	n := &Node{Node: ptr(*old.Node), ComputedClass: old.ComputedClass}
	edit(n)
	tx.PutNode(n)
}

// DeleteNode forgets a node.
func (tx *Tx) DeleteNode(id string) {
	n := tx.d.nodes[id]
	delete(tx.d.nodes, id)
	tx.touch(Nodes)
	tx.event(api.TopicNode, id, "", nil, n)
}

// PutAlloc stores an allocation that the caller gives up, on behalf of the
// servers: AllocModifyIndex moves, so that the client looks at it.
func (tx *Tx) PutAlloc(a *api.Allocation) {
	a.AllocModifyIndex = tx.Index
	tx.putAlloc(a)
}

// PutAllocFromClient stores what a client reported.
func (tx *Tx) PutAllocFromClient(a *api.Allocation) { tx.putAlloc(a) }

func (tx *Tx) putAlloc(a *api.Allocation) {
	if old := tx.d.allocs[a.ID]; old != nil {
		a.CreateIndex, a.CreateTime = old.CreateIndex, old.CreateTime
	} else {
		a.CreateIndex, a.CreateTime = tx.Index, tx.Now.UnixNano()
	}
	a.ModifyIndex, a.ModifyTime = tx.Index, tx.Now.UnixNano()
	k := Key{a.Namespace, a.JobID}
	tx.d.allocs[a.ID] = a
	addTo(tx.d.jobAllocs, k, a.ID)
	addTo(tx.d.nodeAllocs, a.NodeID, a.ID)
	tx.touch(Allocs)
	shown := *a
	shown.Job = nil
	filter := []string{a.JobID, a.DeploymentID, a.NodeID}
	tx.event(api.TopicAllocation, a.ID, a.Namespace, filter, &shown)
	tx.refreshJob(k)
}

// DeleteAlloc forgets an allocation, as the garbage collector does.
func (tx *Tx) DeleteAlloc(id string) {
	a := tx.d.allocs[id]
	k := Key{a.Namespace, a.JobID}
	if tx.d.collected[k] == nil {
		tx.d.collected[k] = map[Ended]int{}
	}
	tx.d.collected[k][Ended{a.TaskGroup, a.ClientStatus}]++
	delete(tx.d.allocs, id)
	delete(tx.d.jobAllocs[k], id)
	delete(tx.d.nodeAllocs[a.NodeID], id)
	tx.touch(Allocs)
}

// PutEval stores an evaluation that the caller gives up. One that completed
// with everything placed cancels the job's blocked ones.
func (tx *Tx) PutEval(e *api.Evaluation) {
	tx.putEval(e)
	k := Key{e.Namespace, e.JobID}
	if e.Status == api.EvalStatusComplete && len(e.FailedTGAllocs) == 0 && e.JobID != "" {
		for id := range tx.d.jobEvals[k] {
			if b := tx.d.evals[id]; b.Status == api.EvalStatusBlocked {
				c := *b
				c.Status = api.EvalStatusCancelled
				c.StatusDescription = `evaluation "` + e.ID + `" successful`
				tx.putEval(&c)
			}
		}
	}
	tx.refreshJob(k)
}

func (tx *Tx) putEval(e *api.Evaluation) {
	if old := tx.d.evals[e.ID]; old != nil {
		e.CreateIndex, e.CreateTime = old.CreateIndex, old.CreateTime
	} else {
		e.CreateIndex, e.CreateTime = tx.Index, tx.Now.UnixNano()
	}
	e.ModifyIndex, e.ModifyTime = tx.Index, tx.Now.UnixNano()
	tx.d.evals[e.ID] = e
	for _, status := range []string{api.EvalStatusPending, api.EvalStatusBlocked} {
		delete(tx.d.evalsBy[status], e.ID)
		if e.Status == status {
			addTo(tx.d.evalsBy, status, e.ID)
		}
	}
	addTo(tx.d.jobEvals, Key{e.Namespace, e.JobID}, e.ID)
	tx.touch(Evals)
	tx.event(api.TopicEvaluation, e.ID, e.Namespace, []string{e.JobID, e.DeploymentID}, e)
}

// DeleteEval forgets an evaluation, as the garbage collector does.
func (tx *Tx) DeleteEval(id string) {
	e := tx.d.evals[id]
	delete(tx.d.evals, id)
	delete(tx.d.evalsBy[e.Status], id)
	delete(tx.d.jobEvals[Key{e.Namespace, e.JobID}], id)
	tx.touch(Evals)
}

// DeleteDeployment forgets a deployment.
func (tx *Tx) DeleteDeployment(id string) {
	delete(tx.d.deployments, id)
	tx.touch(Deployments)
}

// PutDeployment stores a deployment that the caller gives up.
func (tx *Tx) PutDeployment(d *api.Deployment) {
	if old := tx.d.deployments[d.ID]; old != nil {
		d.CreateIndex, d.CreateTime = old.CreateIndex, old.CreateTime
	} else {
		d.CreateIndex, d.CreateTime = tx.Index, tx.Now.UnixNano()
	}
	d.ModifyIndex, d.ModifyTime = tx.Index, tx.Now.UnixNano()
	tx.d.deployments[d.ID] = d
	tx.touch(Deployments)
	tx.event(api.TopicDeployment, d.ID, d.Namespace, []string{d.JobID}, d)
	tx.refreshJob(Key{d.Namespace, d.JobID})
}

// PutVariable stores a variable that the caller gives up.
func (tx *Tx) PutVariable(x *api.Variable) {
	k := Key{x.Namespace, x.Path}
	if old := tx.d.variables[k]; old != nil {
		x.CreateIndex, x.CreateTime = old.CreateIndex, old.CreateTime
	} else {
		x.CreateIndex, x.CreateTime = tx.Index, tx.Now.UnixNano()
	}
	x.ModifyIndex, x.ModifyTime = tx.Index, tx.Now.UnixNano()
	tx.d.variables[k] = x
	tx.touch(Variables)
	meta := x.Metadata()
	meta.Lock = nil
	tx.event("Variable", x.Path, x.Namespace, nil, meta)
}

// DeleteVariable forgets a variable.
func (tx *Tx) DeleteVariable(k Key) {
	x := tx.d.variables[k]
	delete(tx.d.variables, k)
	tx.touch(Variables)
	tx.event("Variable", x.Path, x.Namespace, nil, x.Metadata())
}

// PutSchedulerConfig stores the scheduler configuration.
func (tx *Tx) PutSchedulerConfig(c *api.SchedulerConfiguration) {
	c.CreateIndex, c.ModifyIndex = tx.d.config.CreateIndex, tx.Index
	tx.d.config = c
	tx.touch(Config)
}

// Terminal says whether an allocation is over for the scheduler: told to stop
// or ended.
func Terminal(a *api.Allocation) bool { return a.ServerTerminalStatus() || a.ClientTerminalStatus() }

// EvalTerminal says whether an evaluation is over.
func EvalTerminal(e *api.Evaluation) bool {
	switch e.Status {
	case api.EvalStatusComplete, api.EvalStatusFailed, api.EvalStatusCancelled:
		return true
	}
	return false
}

// DeploymentActive says whether a deployment is still going on.
func DeploymentActive(d *api.Deployment) bool {
	switch d.Status {
	case api.DeploymentStatusSuccessful, api.DeploymentStatusFailed, api.DeploymentStatusCancelled:
		return false
	}
	return true
}
