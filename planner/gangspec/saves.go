package gangspec

import (
	"reflect"

	"github.com/hashicorp/nomad/api"
)

// savesWork reports whether what a job has done outlasts a stop, as far as it says: its
// author says how often it makes a checkpoint, or Caravan's driver asks one of its tasks for
// one, or looks for those that it has made.
func savesWork(job *api.Job, spec Spec) bool {
	if spec.Checkpoint > 0 {
		return true
	}
	for _, g := range job.TaskGroups {
		if g == nil {
			continue
		}
		for _, t := range g.Tasks {
			if t != nil && t.Driver == DriverName && hasBlock(t.Config["checkpoint"]) {
				return true
			}
		}
	}
	return false
}

// hasBlock reports whether a driver's configuration has a block: an object, or a list of
// them, as Nomad's parsers of HCL and JSON make of it.
func hasBlock(value any) bool {
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.Map:
		return v.Len() > 0
	case reflect.Slice:
		return v.Len() > 0 && hasBlock(v.Index(0).Interface())
	}
	return false
}
