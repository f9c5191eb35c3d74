package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/history"
)

// epoch is second 0 of every simulation.
var epoch = time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)

func clock(s float64) time.Time { return epoch.Add(lasting(s)) }

// planner is the Scheduler that decides as the daemon does: core.Prepared, kept
// up to date by changes.
type planner struct {
	cluster  Cluster
	policy   core.Policy
	prepared *core.Prepared
	nodes    map[string]int
	gpus     map[string]device
	dividing dividing
	jobs     map[int]*model.Job
	numbers  map[string]int
	change   core.Change
	waiting  int
	// stirred is when something happened last, in seconds.
	stirred float64
	queues  []model.Queue
	learner *learner
	history model.History
	buying  *buying
	// past is what the queues have used, as the daemon keeps it, by halfLife.
	past     history.Queues
	halfLife time.Duration
	// growth is how elastic jobs grow faster; nil: as they have nodes.
	growth Growth
}

// trusts: what happens in a simulation is taken to be valid, as it is made here. Tests check it.
var trusts = true

// NewPlanner is the Scheduler of a policy. What the queues have used counts half after
// as long as the planner's configuration has it unless it says otherwise.
func NewPlanner(c Cluster, policy core.Policy, queues []model.Queue) (Scheduler, error) {
	return newPlanner(c, policy, queues, config.DefaultHalfLife)
}

func newPlanner(c Cluster, policy core.Policy, queues []model.Queue, halfLife time.Duration) (Scheduler, error) {
	p := &planner{cluster: c, halfLife: halfLife, policy: policy, nodes: map[string]int{}, gpus: map[string]device{}, dividing: newDividing(&c), jobs: map[int]*model.Job{}, numbers: map[string]int{}, queues: queues, learner: newLearner(), buying: newBuying(&c, policy)}
	nodes := slices.Clone(c.Nodes[:c.homes()])
	for i := range nodes {
		p.nodes[nodes[i].ID] = i
		nodes[i] = p.node(i)
	}
	// When gangs start is of interest to people; what the order itself needs to
	// know it finds out all the same.
	if policy.Forecasts == 0 {
		policy.Forecasts = 1
	}
	var err error
	p.prepared, err = core.Prepare(&model.Snapshot{Now: epoch, Levels: c.Levels, Nodes: nodes, Jobs: []model.Job{}, Queues: queues, Burst: c.Burst}, policy)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	p.prepared.Terse()
	if trusts {
		p.prepared.Trust()
	}
	return p, nil
}

// put notes a job as it is now; what the core has seen is never changed.
func (p *planner) put(i int, j model.Job) {
	p.jobs[i] = &j
	p.change.PutJobs = slices.DeleteFunc(p.change.PutJobs, func(k model.Job) bool { return k.ID == j.ID })
	p.change.PutJobs = append(p.change.PutJobs, j)
}

// Submit implements Scheduler.
func (p *planner) Submit(now float64, ask Ask) error {
	p.stirred = now
	id := fmt.Sprintf("%08d", ask.Job)
	j := model.Job{
		Namespace: "default", ID: id, Type: "batch", State: model.StateQueued, Submitted: clock(ask.Submitted), Priority: 50, Queue: ask.Queue,
		Gang: model.GangJob, Duration: lasting(ask.Estimate), Groups: p.groups(ask), Usage: usageOf(&ask), Models: p.models(&ask),
		Saves: !ask.Unsaved,
	}
	if ask.Interactive && p.policy.Interactive.Any() {
		j.PriorityClass = interactiveClass
	}
	if ask.Deadline > 0 {
		j.Deadline = clock(ask.Deadline)
	}
	if p.buying != nil && !ask.Unsaved { // it counts where nodes may be taken away
		j.Checkpoint = time.Duration(DefaultCheckpoints.Every) * time.Second
	}
	p.learner.estimate(&ask, &j)
	j.Speed = p.told(&ask)
	p.numbers[id] = ask.Job
	p.waiting++
	p.put(ask.Job, j)
	return nil
}

// groups cuts a job into members. An elastic one has nodes to itself.
func (p *planner) groups(ask Ask) []model.TaskGroup {
	group := func(name string, count, gpus int) model.TaskGroup {
		g := model.TaskGroup{Name: name, Count: count, Devices: []model.DeviceAsk{p.cluster.askFor(&ask, gpus)}}
		if ask.Models != nil && p.cluster.InParts() {
			g.Constraints = []model.Constraint{{Left: "${" + modelAttribute + "}", Operand: "set_contains_any", Right: strings.Join(ask.Models, ",")}}
		}
		return g
	}
	perNode := p.cluster.largest(ask.Models)
	whole, rest := members(ask.GPUs, perNode)
	var out []model.TaskGroup
	if whole > 0 {
		out = append(out, group("nodes", whole, perNode))
	}
	if rest > 0 {
		return append(out, group("rest", 1, rest))
	}
	if ask.Max > 0 {
		// It has whole nodes: as many as hold its bounds.
		out[0].Min, out[0].Max = max(1, (ask.Min+perNode-1)/perNode), ask.Max/perNode
	}
	return out
}

// models are those that a job may run on, where devices are called after them.
func (p *planner) models(ask *Ask) []model.ModelSpeed {
	if p.cluster.InParts() {
		return nil // its groups say it
	}
	return speeds(ask.Models)
}

// Finish implements Scheduler.
func (p *planner) Finish(now float64, i int) error {
	p.stirred = now
	p.learner.add(now, i, p.jobs[i])
	p.change.DropJobs = append(p.change.DropJobs, core.JobRef{Namespace: "default", ID: p.jobs[i].ID})
	p.change.PutJobs = slices.DeleteFunc(p.change.PutJobs, func(k model.Job) bool { return k.ID == p.jobs[i].ID })
	delete(p.numbers, p.jobs[i].ID)
	delete(p.jobs, i)
	return nil
}

// Left implements Scheduler.
func (p *planner) Left(now float64, i int) error {
	j := *p.jobs[i]
	for k := range j.Members {
		p.change.DropAllocs = append(p.change.DropAllocs, allocID(j.ID, k))
	}
	// What came and went between two decisions is neither put nor there.
	p.change.PutAllocs = slices.DeleteFunc(p.change.PutAllocs, func(a model.Alloc) bool { return a.Job == j.ID })
	p.back(now, i)
	return nil
}

// back puts a job that was placed among those that wait.
func (p *planner) back(now float64, i int) {
	p.stirred = now
	j := *p.jobs[i]
	ran := max(0, clock(now).Sub(j.Started))
	j.Ran += ran
	j.AttainedGPUs += ran.Seconds() * float64(gpusOf(j.Members))
	j.State, j.Members, j.Started, j.Accounted, j.Backfilled = model.StateQueued, nil, time.Time{}, clock(now), nil
	p.waiting++
	p.put(i, j)
}

// Fail implements Scheduler.
func (p *planner) Fail(now float64, node int, down bool, victims []int) error {
	p.stirred, p.dividing.down[node] = now, down
	p.putNode(node)
	for _, i := range victims {
		if p.jobs[i].State == model.StateStopping {
			if err := p.Left(now, i); err != nil {
				return err
			}
			continue
		}
		p.back(now, i)
	}
	return nil
}

// Decide implements Scheduler.
func (p *planner) Decide(now float64) ([]Action, float64, error) {
	if past, news := p.learner.past(now); news || p.buying != nil || len(p.queues) > 0 {
		if news {
			p.history = past
		}
		p.change.Rest = p.rest(now, p.history)
	}
	p.buying.noteKnown(p.change.PutNodes)
	if err := p.prepared.Apply(p.change); err != nil {
		return nil, 0, fmt.Errorf("bring the snapshot up to date: %w", err)
	}
	p.change = core.Change{}
	plan := p.prepared.Decide(clock(now))
	if len(p.queues) > 0 {
		p.past = p.past.Note(clock(now), p.halfLife, plan.Queues)
	}
	var out []Action
	for i := range plan.Preemptions {
		actions, err := p.preempt(now, &plan.Preemptions[i])
		if err != nil {
			return nil, 0, err
		}
		out = append(out, actions...)
	}
	for i := range plan.Decisions {
		d := &plan.Decisions[i]
		if d.Action == model.ActionAdmit {
			out = append(out, p.admit(now, d))
		}
	}
	for i := range plan.Resizes {
		out = append(out, p.resize(now, &plan.Resizes[i]))
	}
	p.remember(plan.Promises)
	for i := range plan.Repartitions {
		out = append(out, p.repartition(now, &plan.Repartitions[i]))
	}
	out = append(out, p.buy(now, plan)...)
	if len(out) > 0 {
		p.stirred = now
	}
	again := 0.0
	if p.waiting > 0 {
		again = now + tick(now-p.stirred)
	}
	if p.buying != nil && len(p.buying.book.Purchases) > 0 {
		again = now + lookEvery
	}
	return out, again, nil
}

// remember keeps which deadlines are promised.
func (p *planner) remember(list []model.Promise) {
	for i := range list {
		at := p.numbers[list[i].Job]
		j := *p.jobs[at]
		j.Promised = list[i].Promised
		p.put(at, j)
	}
}

func (p *planner) admit(now float64, d *model.Decision) Action {
	i := p.numbers[d.Job]
	j := *p.jobs[i]
	if j.State == model.StateRunning {
		if j.Members = append(slices.Clone(j.Members), d.Members...); len(j.Members) < j.Groups[0].Count {
			j.Resized = append(slices.Clone(j.Resized), clock(now))
		}
		p.put(i, j)
		return Action{Act: Resize, Job: i, Pieces: p.pieces(j.Members), Reason: d.Reason}
	}
	if d.Forgets {
		j.ForgottenGPUs, j.ForgottenRan = j.AttainedGPUs, j.Ran
	}
	j.State, j.Members, j.Started, j.Moving, j.Backfilled = model.StateRunning, slices.Clone(d.Members), clock(now), nil, d.Backfill
	p.waiting--
	p.put(i, j)
	return Action{Act: Start, Job: i, Pieces: p.pieces(j.Members), Reason: d.Reason}
}

func (p *planner) preempt(now float64, v *model.Preemption) ([]Action, error) {
	i, known := p.numbers[v.Job]
	if !known {
		return nil, fmt.Errorf("preempt %s: no such job", v.Job)
	}
	j := *p.jobs[i]
	gave := model.Preempted{At: clock(now), Namespace: v.For.Namespace, By: v.For.ID, ByGroup: v.ForGroup, Returned: v.Returned, Moved: v.Action == model.ActionMove}
	j.Preempted = append(slices.Clone(j.Preempted), gave)
	if gave.Moved {
		j.Moving = append(slices.Clone(j.Moving), model.Moving{At: gave.At, Until: gave.At.Add(time.Hour), Namespace: gave.Namespace, For: gave.By, Members: v.To})
	}
	if v.Action == model.ActionShrink {
		j.Members = without(j.Members, v.Members)
		p.put(i, j)
		return []Action{{Act: Resize, Job: i, Pieces: p.pieces(j.Members), Reason: v.Reason}}, nil
	}
	j.State = model.StateStopping
	for k := range j.Members {
		m := &j.Members[k]
		p.change.PutAllocs = append(p.change.PutAllocs, model.Alloc{ID: allocID(j.ID, k), Namespace: j.Namespace, Job: j.ID, Group: m.Group, Index: m.Index, Node: m.Node, GPUs: m.GPUs, Stopping: true})
	}
	p.put(i, j)
	return []Action{{Act: Stop, Job: i, Reason: v.Reason}}, nil
}

func (p *planner) resize(now float64, v *model.Resize) Action {
	i := p.numbers[v.Job]
	j := *p.jobs[i]
	if v.Action == model.ActionGrow {
		j.Members = append(slices.Clone(j.Members), v.Members...)
	} else {
		j.Members = without(j.Members, v.Members)
	}
	j.Resized = append(slices.Clone(j.Resized), clock(now))
	p.put(i, j)
	return Action{Act: Resize, Job: i, Pieces: p.pieces(j.Members), Reason: v.Reason}
}

// without leaves members out.
func without(list, gone []model.Member) []model.Member {
	return slices.DeleteFunc(slices.Clone(list), func(m model.Member) bool {
		return slices.ContainsFunc(gone, func(g model.Member) bool { return g.Group == m.Group && g.Index == m.Index })
	})
}

// pieces are the GPUs of members, by node.
func (p *planner) pieces(list []model.Member) []Piece {
	byNode := map[int]uint64{}
	for i := range list {
		for _, uuid := range list[i].GPUs {
			d, node := p.gpus[uuid], p.nodes[list[i].Node]
			if d.part > 0 { // who asks for one has no more than that
				return []Piece{{Node: node, GPUs: []int8{d.gpu}, Part: d.part}}
			}
			byNode[node] |= 1 << uint(d.gpu)
		}
	}
	out := make([]Piece, 0, len(byNode))
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		out = append(out, Piece{Node: node, GPUs: indexes(byNode[node])})
	}
	return out
}

func gpusOf(list []model.Member) int {
	n := 0
	for i := range list {
		n += len(list[i].GPUs)
	}
	return n
}

func allocID(job string, member int) string { return fmt.Sprintf("%s.%d", job, member) }
