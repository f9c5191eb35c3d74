package rewrite

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
)

// rollingPrefix starts the value that a job in the middle of an update carries
// in a constraint which every node fulfils: the name of the version that it is
// on its way to.
const rollingPrefix = "rolling-"

// Update is a service job in the middle of an update.
type Update struct {
	// Before and Next are the versions, which ask for the same members.
	Before, Next *api.Job
	// Members are those of the job, and Rolled the ones that are of the version
	// Next; the others are of the version Before.
	Members []model.Member
	Rolled  []Place
	// Canaries are of the version Next and run beside the members whose place
	// they may take, each in a slot in which no member is.
	Canaries []model.Member
	// Done are members that have ended and are left out.
	Done []Place
}

// Roll returns a service job in the middle of an update, pinned. cur is the job
// as it is in Nomad; see Repin.
//
// The meta of the job is written into every group instead, since another job
// meta would restart those that are not rolled yet.
func Roll(cur *api.Job, u Update, c *Cluster) (*api.Job, error) {
	old, err := Repin(cur, u.Before, u.Members, c, u.Done...)
	if err != nil {
		return nil, fmt.Errorf("pin the version before: %w", err)
	}
	job, err := repin(cur, u.Next, u.Members, u.Canaries, c, u.Done)
	if err != nil {
		return nil, err
	}
	is := map[Place]bool{}
	for _, p := range u.Rolled {
		is[p] = true
	}
	for i, g := range job.TaskGroups {
		group, index, split := Origin(g)
		own := u.Next
		// The version before knows no canaries.
		if from := lookup(old, nameOf(g)); from != nil && hasMarker(g.Constraints) && !is[Place{group, index}] {
			// Members of an unsplit group are rolled together; index is 0 then.
			if split || !anyOf(is, group) {
				job.TaskGroups[i], own = from, u.Before
			}
		}
		meta := maps.Clone(own.Meta)
		if meta == nil {
			meta = map[string]string{}
		}
		maps.Copy(meta, job.TaskGroups[i].Meta)
		job.TaskGroups[i].Meta = meta
	}
	job.Meta = nil
	if !hasMarker(job.Constraints) {
		job.Constraints = append(job.Constraints, marker())
	}
	job.Constraints = append(job.Constraints, api.NewConstraint(GateAttribute, "!=", rollingPrefix+gangspec.Hash(u.Next)))
	return job, nil
}

func anyOf(rolled map[Place]bool, group string) bool {
	for p := range rolled {
		if p.Group == group {
			return true
		}
	}
	return false
}

// RollingTo names the version that a job in the middle of an update is on its
// way to, by its hash; "" for any other job.
func RollingTo(job *api.Job) string {
	if job == nil {
		return ""
	}
	for _, c := range job.Constraints {
		if c != nil && c.LTarget == GateAttribute && c.Operand == "!=" {
			if hash, ok := strings.CutPrefix(c.RTarget, rollingPrefix); ok {
				return hash
			}
		}
	}
	return ""
}

// watchHealth has Nomad's clients say whether a member is healthy, by the
// rules of the user's update block. Without a deployment they go by the
// migrate block.
func watchHealth(orig, job *api.Job) {
	if gangspec.Type(job) != api.JobTypeService {
		return
	}
	job.Migrate = nil
	for _, g := range job.TaskGroups {
		group, _, _ := Origin(g)
		u := gangspec.UpdateOf(orig, group)
		m := api.DefaultMigrateStrategy()
		if check := orEmpty(u.HealthCheck); check == "checks" || check == "task_states" {
			m.HealthCheck = &check
		} else {
			// Nobody can be asked while Caravan rolls.
			m.HealthCheck = new("task_states")
		}
		minimum, deadline := deref(u.MinHealthyTime), deref(u.HealthyDeadline)
		if minimum >= 0 && deadline > minimum {
			m.MinHealthyTime, m.HealthyDeadline = new(minimum), new(deadline)
		}
		g.Migrate = m
	}
}

func deref(d *time.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return *d
}
