// Package taskcheck finds, before anything is placed, what the task driver would
// refuse only when a gang has taken its GPUs.
package taskcheck

import (
	"errors"
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/driver/config"
	"github.com/caravan-sched/caravan/planner/gangspec"
)

// Parse is gangspec.Parse, with what is wrong with the config blocks of the
// tasks of the caravan driver among the faults. custom names levels of the
// operator's beside the standard ones.
func Parse(job *api.Job, custom ...string) (gangspec.Spec, error) {
	spec, err := gangspec.Parse(job, custom...)
	more := faults(job)
	var known *gangspec.Error
	switch {
	case len(more) == 0:
		return spec, err
	case errors.As(err, &known):
		more = append(known.Faults, more...)
	case err != nil:
		return spec, err
	}
	return spec, &gangspec.Error{Faults: more}
}

func faults(job *api.Job) []gangspec.Fault {
	if job == nil {
		return nil
	}
	var out []gangspec.Fault
	for _, g := range job.TaskGroups {
		if g == nil {
			continue
		}
		for _, t := range g.Tasks {
			if t == nil || t.Driver != gangspec.DriverName {
				continue
			}
			name := ""
			if g.Name != nil {
				name = *g.Name
			}
			where := fmt.Sprintf("task %q of group %q", t.Name, name)
			for _, f := range config.CheckTask(t.Config) {
				out = append(out, gangspec.Fault{Where: where, Key: "config." + f.Key, Value: f.Value, Allowed: "allowed is " + f.Allowed})
			}
		}
	}
	return out
}
