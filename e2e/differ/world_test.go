package differ

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// world is a cluster on which sequences are played, one after another.
type world struct {
	c       devcluster.Cluster
	api     *api.Client
	nodes   []*node
	cluster *rewrite.Cluster
	// played counts the sequences: each has IDs of its own, so that what was
	// left by the one before it is not seen.
	played int
}

type node struct {
	name, id string
	gpus     []string
	up       bool
	// since is when the sequence began: drains from before are not its own.
	since time.Time
}

func newWorld(ctx context.Context, c devcluster.Cluster) (*world, error) {
	if err := c.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	w := &world{c: c, api: c.Client()}
	list, _, err := w.api.Nodes().List(nil)
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	slices.SortFunc(list, func(a, b *api.NodeListStub) int { return cmp.Compare(a.Name, b.Name) })
	var known []rewrite.Node
	for _, s := range list {
		info, _, err := w.api.Nodes().Info(s.ID, nil)
		if err != nil {
			return nil, errors.Join(err, c.Stop())
		}
		n := &node{name: s.Name, id: s.ID, up: true}
		for _, d := range info.NodeResources.Devices {
			for _, x := range d.Instances {
				n.gpus = append(n.gpus, x.ID)
			}
		}
		slices.Sort(n.gpus)
		w.nodes = append(w.nodes, n)
		known = append(known, rewrite.Node{ID: n.id, GPUs: len(n.gpus)})
	}
	w.cluster = rewrite.NewCluster(known, nil)
	return w, nil
}

func (w *world) prefix() string { return fmt.Sprintf("q%d-", w.played) }

func (w *world) id(key string) string { return w.prefix() + key }

// play plays a sequence from a clean start and returns what was seen after
// each step.
func (w *world) play(ctx context.Context, script []step) ([]string, error) {
	w.played++
	for _, n := range w.nodes {
		n.since = time.Now().Truncate(time.Second) // Nomad tells whole seconds
	}
	var seen []string
	for i, s := range script {
		answer := w.do(ctx, s)
		if err := w.settle(ctx); err != nil {
			return seen, fmt.Errorf("after step %d, %s (%s): %w", i+1, s, answer, err)
		}
		state, err := w.state()
		if err != nil {
			return seen, fmt.Errorf("after step %d, %s: %w", i+1, s, err)
		}
		seen = append(seen, w.plain("answer: "+answer)+"\n"+state)
	}
	return seen, w.clean(ctx)
}

// clean purges what a sequence has made and heals what it has broken.
func (w *world) clean(ctx context.Context) error {
	for _, n := range w.nodes {
		if err := w.start(n); err != nil {
			return err
		}
	}
	if err := w.settle(ctx); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	for _, n := range w.nodes {
		if _, err := w.api.Nodes().UpdateDrain(n.id, nil, true, nil); err != nil {
			return fmt.Errorf("end the drain of %s: %w", n.name, err)
		}
		if _, err := w.api.Nodes().ToggleEligibility(n.id, true, nil); err != nil {
			return fmt.Errorf("make %s eligible: %w", n.name, err)
		}
	}
	jobs, _, err := w.api.Jobs().PrefixList(w.prefix())
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if _, _, err := w.api.Jobs().Deregister(j.ID, true, nil); err != nil {
			return fmt.Errorf("purge %s: %w", j.ID, err)
		}
	}
	if err := w.settle(ctx); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return w.api.System().GarbageCollect()
}

func (w *world) start(n *node) error {
	if n.up {
		return nil
	}
	n.up = true
	return w.c.StartNode(n.name)
}

// do takes a step and says what the answer was.
func (w *world) do(ctx context.Context, s step) string {
	answer, err := w.take(ctx, s)
	if err == nil {
		return cmp.Or(answer, "ok")
	}
	var refused api.UnexpectedResponseError
	if errors.As(err, &refused) {
		return fmt.Sprintf("%d %s", refused.StatusCode(), strings.TrimSpace(refused.Body()))
	}
	return err.Error()
}

func (w *world) take(ctx context.Context, s step) (string, error) {
	n := w.nodes[s.Node]
	switch s.Do {
	case "register", "plan", "change", "start", "scale", "stop", "purge", "revert", "evaluate", "force", "dispatch":
		return w.takeJob(s)
	case "alloc stop", "alloc restart", "finish", "fail":
		return w.takeAlloc(ctx, s)
	case "fail deployment", "pause deployment", "resume deployment", "promote":
		return "", w.takeDeployment(s)
	case "drain", "drain force":
		spec := &api.DrainSpec{Deadline: time.Hour}
		if s.Do == "drain force" {
			spec.Deadline = -1
		}
		_, err := w.api.Nodes().UpdateDrain(n.id, spec, false, nil)
		return "", err
	case "drain off":
		_, err := w.api.Nodes().UpdateDrain(n.id, nil, s.Flag, nil)
		return "", err
	case "eligible", "ineligible":
		_, err := w.api.Nodes().ToggleEligibility(n.id, s.Do == "eligible", nil)
		return "", err
	case "evaluate node":
		_, _, err := w.api.Nodes().ForceEvaluate(n.id, nil)
		return "", err
	case "stop node":
		if !n.up {
			return "it is stopped", nil
		}
		n.up = false
		return "", w.c.StopNode(n.name)
	case "start node":
		return "", w.start(n)
	case "odd":
		return w.askOddly(s.Job)
	case "gc":
		return "", w.api.System().GarbageCollect()
	}
	return "", fmt.Errorf("nobody knows how to %q", s.Do)
}

func (w *world) takeJob(s step) (string, error) {
	id, jobs := w.id(s.Job), w.api.Jobs()
	switch s.Do {
	case "register":
		job, err := w.written(s.Shape, id)
		if err != nil {
			return "", err
		}
		return w.register(job)
	case "plan":
		job, err := w.written(s.Shape, id)
		if err != nil {
			return "", err
		}
		resp, _, err := jobs.Plan(job, true, nil)
		if err != nil {
			return "", err
		}
		return w.planned(job, resp), nil
	case "change", "start":
		job, _, err := jobs.Info(id, nil)
		if err != nil {
			return "", err
		}
		if s.Do == "start" {
			job.Stop = ptr(false)
		} else if job, err = change(job, s); err != nil {
			return "", err
		}
		return w.register(job)
	case "scale":
		_, _, err := jobs.Scale(id, groupName(0), ptr(s.N), "", false, nil, nil)
		return "", err
	case "stop", "purge":
		_, _, err := jobs.Deregister(id, s.Do == "purge", nil)
		return "", err
	case "revert":
		_, _, err := jobs.Revert(id, uint64(s.N/2), nil, nil, "", "")
		return "", err
	case "evaluate", "force":
		_, _, err := jobs.EvaluateWithOpts(id, api.EvalOptions{ForceReschedule: s.Do == "force"}, nil)
		return "", err
	case "dispatch":
		meta := map[string]string{"input": "x"}
		if s.N == 0 {
			meta = nil
		}
		_, _, err := jobs.Dispatch(id, meta, nil, "", nil)
		return "", err
	}
	return "", fmt.Errorf("nobody knows how to %q", s.Do)
}

func (w *world) register(job *api.Job) (string, error) {
	resp, _, err := w.api.Jobs().Register(job, nil)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(resp.Warnings), nil
}

// change is what somebody does who edits the job that is there.
func change(job *api.Job, s step) (*api.Job, error) {
	g := job.TaskGroups[s.N%len(job.TaskGroups)]
	switch s.N % 5 {
	case 0:
		g.Count = ptr(1 + *g.Count)
	case 1:
		g.Count = ptr(*g.Count / 2)
	case 2:
		v := &g.Tasks[0].Env
		if *v == nil {
			*v = map[string]string{}
		}
		(*v)["VERSION"] += "'"
	case 3:
		return rewrite.GateCurrent(job)
	}
	return job, nil // the same again
}

// takeAlloc does something to one of the allocations that run: in the order of
// their names and nodes, which is the same on both back ends.
func (w *world) takeAlloc(ctx context.Context, s step) (string, error) {
	var live []*api.AllocationListStub
	list, _, err := w.api.Jobs().Allocations(w.id(s.Job), true, nil)
	if err != nil {
		return "", err
	}
	for _, a := range list {
		i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.id == a.NodeID })
		if a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun && i >= 0 && w.nodes[i].up {
			live = append(live, a)
		}
	}
	if len(live) == 0 {
		return "nothing runs", nil
	}
	slices.SortFunc(live, func(a, b *api.AllocationListStub) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.NodeName, b.NodeName), cmp.Compare(a.CreateIndex, b.CreateIndex))
	})
	a := &api.Allocation{ID: live[s.N%len(live)].ID, NodeID: live[s.N%len(live)].NodeID}
	switch s.Do {
	case "alloc stop":
		_, err = w.api.Allocations().Stop(a, nil)
	case "alloc restart":
		err = w.api.Allocations().Restart(a, "", nil)
	case "finish":
		err = errors.Join(w.api.Allocations().Signal(a, nil, "", "SIGUSR1"), w.awaitEnd(ctx, a.ID))
	case "fail":
		err = errors.Join(w.api.Allocations().Signal(a, nil, "", "SIGUSR2"), w.awaitEnd(ctx, a.ID))
	}
	return "", err
}

// awaitEnd waits until an allocation that was asked to end has ended.
func (w *world) awaitEnd(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, poll := w.quiet()
	for {
		a, _, err := w.api.Allocations().Info(id, nil)
		if err != nil || a.ClientTerminalStatus() {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("allocation %s does not end: %w", a.Name, ctx.Err())
		case <-time.After(poll):
		}
	}
}

func (w *world) takeDeployment(s step) error {
	d, _, err := w.api.Jobs().LatestDeployment(w.id(s.Job), nil)
	if err != nil {
		return err
	}
	if d == nil {
		return errors.New("there is no deployment")
	}
	switch s.Do {
	case "fail deployment":
		_, _, err = w.api.Deployments().Fail(d.ID, nil)
	case "promote":
		_, _, err = w.api.Deployments().PromoteAll(d.ID, nil)
	default:
		_, _, err = w.api.Deployments().Pause(d.ID, s.Do == "pause deployment", nil)
	}
	return err
}
