package differ

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// script runs until it is told to stop, and ends as a test wants it: well with
// USR1, badly with USR2. The shell waits for its child, because it looks at
// signals at once only then.
const script = `end() { kill $!; exit $1; }; trap 'end 0' TERM INT USR1; trap 'end 7' USR2; sleep 86400 & wait`

// minHealthy is how long a member runs before it is healthy: long enough for a
// task that fails at once to be seen failing.
const minHealthy = time.Second

// rules are constraints by name.
var rules = map[string]api.Constraint{
	"class":       {LTarget: "${node.class}", Operand: "=", RTarget: "gpu"},
	"other class": {LTarget: "${node.class}", Operand: "!=", RTarget: "gpu"},
	"distinct":    {Operand: api.ConstraintDistinctHosts, RTarget: "true"},
	"rack":        {LTarget: "${meta.caravan_rack}", Operand: api.ConstraintDistinctProperty, RTarget: "1"},
	"nobody":      {LTarget: "${attr.unique.hostname}", Operand: "=", RTarget: "nobody"},
	"invalid":     {LTarget: "${attr.kernel.name}", Operand: "regexp", RTarget: "("},
}

// deviceRules are constraints on devices by name.
var deviceRules = map[string]api.Constraint{
	"memory": {LTarget: "${device.attr.memory}", Operand: ">=", RTarget: "200 GiB"},
	"model":  {LTarget: "${device.model}", Operand: "regexp", RTarget: "^nothing"},
}

// job makes a job of a shape, as its user would write it.
func (s *shape) job(id string) *api.Job {
	j := api.NewServiceJob(id, id, "global", cmp.Or(s.Priority, 50))
	j.Type, j.Datacenters = ptr(s.Type), []string{"dc1"}
	// A preference for some nodes over others has Nomad look at all of them;
	// otherwise it looks at a few by chance.
	for i, weight := range []int8{47, 31, 22} {
		j.Affinities = append(j.Affinities, api.NewAffinity("${node.unique.name}", "=", nodeName(i), weight))
	}
	if s.Type == api.JobTypeSystem || s.Type == api.JobTypeSysbatch {
		j.Affinities = nil // they may have none
	}
	j.Meta = map[string]string{"caravan_gang": "group"}
	if c, ok := rules[s.Rule]; ok {
		j.Constraints = append(j.Constraints, &c)
	}
	if s.Param {
		j.ParameterizedJob = &api.ParameterizedJobConfig{Payload: "forbidden", MetaRequired: []string{"input"}}
	}
	for i, g := range s.Groups {
		j.AddTaskGroup(s.group(groupName(i), g))
	}
	return j
}

func (s *shape) group(name string, shape groupShape) *api.TaskGroup {
	body := script
	switch shape.Ends {
	case endsWell:
		body = "exit 0"
	case endsBadly:
		body = "exit 7"
	}
	task := api.NewTask("main", "raw_exec").SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", body})
	task.Resources = &api.Resources{CPU: ptr(100), MemoryMB: ptr(32)}
	task.Env = map[string]string{"VERSION": strconv.Itoa(s.Version)}
	if shape.GPUs > 0 {
		ask := &api.RequestedDevice{Name: "nvidia/gpu", Count: ptr(uint64(shape.GPUs))}
		if c, ok := deviceRules[s.Rule]; ok {
			ask.Constraints = []*api.Constraint{&c}
		}
		task.Resources.Devices = []*api.RequestedDevice{ask}
	}
	g := api.NewTaskGroup(name, shape.Count).AddTask(task)
	g.RestartPolicy = &api.RestartPolicy{Attempts: ptr(0), Mode: ptr("fail")}
	switch s.Type {
	case api.JobTypeService:
		g.Migrate = &api.MigrateStrategy{MaxParallel: ptr(1), MinHealthyTime: ptr(minHealthy), HealthyDeadline: ptr(time.Minute)}
		fallthrough
	case api.JobTypeBatch:
		g.ReschedulePolicy = &api.ReschedulePolicy{Attempts: ptr(0), Unlimited: ptr(false)}
		if s.Again {
			// Nomad takes no shorter delay.
			*g.ReschedulePolicy.Attempts, g.ReschedulePolicy.Interval = 1, ptr(time.Hour)
			g.ReschedulePolicy.Delay, g.ReschedulePolicy.DelayFunction = ptr(5*time.Second), ptr("constant")
		}
	}
	if s.Type == api.JobTypeService || s.Type == api.JobTypeSystem {
		g.Update = &api.UpdateStrategy{
			MaxParallel: ptr(s.Parallel), MinHealthyTime: ptr(minHealthy),
			HealthyDeadline: ptr(time.Minute), ProgressDeadline: ptr(time.Hour), AutoRevert: ptr(s.Revert), Canary: ptr(s.Canary),
		}
	}
	if s.Lost != "" {
		g.Disconnect = &api.DisconnectStrategy{LostAfter: ptr(time.Hour), Replace: ptr(s.Lost == "replace")}
	}
	return g
}

// written is the job as it is registered: gated or pinned by the planner's own
// code when the shape says so.
func (w *world) written(s *shape, id string) (*api.Job, error) {
	job := s.job(id)
	switch {
	case s.Gate:
		return rewrite.Gate(job)
	case s.Pin > 0:
		members, ok := w.place(s)
		if !ok {
			return rewrite.Gate(job)
		}
		return rewrite.Pin(job, members, w.cluster)
	}
	return job, nil
}

// place gives each member the next GPUs that no other member of the job has,
// beginning with the node that the shape names; false if there are not enough.
func (w *world) place(s *shape) (members []model.Member, ok bool) {
	free := make([][]string, len(w.nodes))
	for i, n := range w.nodes {
		free[i] = n.gpus
	}
	for gi, g := range s.Groups {
		for k := range g.Count {
			at := -1
			for try := range w.nodes {
				if i := (s.Pin - 1 + k + try) % len(w.nodes); len(free[i]) >= g.GPUs {
					at = i
					break
				}
			}
			if at < 0 {
				return nil, false
			}
			members = append(members, model.Member{
				Group: groupName(gi), Index: k, Rank: len(members), Node: w.nodes[at].id, GPUs: free[at][:g.GPUs],
			})
			free[at] = free[at][g.GPUs:]
		}
	}
	return members, true
}

// clone is a deep copy of a job.
func clone(job *api.Job) *api.Job {
	raw, err := json.Marshal(job)
	out := new(api.Job)
	if err == nil {
		err = json.Unmarshal(raw, out)
	}
	if err != nil {
		panic(fmt.Sprintf("copy a job of the test's own: %v", err))
	}
	return out
}

func ptr[T any](v T) *T { return &v }

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
