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
			if t != nil && t.Driver == DriverName && savesAs(t.Config["checkpoint"]) {
				return true
			}
		}
	}
	return false
}

// savesAs reports whether a checkpoint block has the driver ask for checkpoints, or look
// for them: by itself, say with a grace alone, it does neither. It is an object, or a list
// of them, as Nomad's parsers of HCL and JSON make of it.
func savesAs(block any) bool {
	v := reflect.ValueOf(block)
	switch v.Kind() {
	case reflect.Slice:
		return v.Len() > 0 && savesAs(v.Index(0).Interface())
	case reflect.Map:
		return v.Type().Key().Kind() == reflect.String && (holds(v, "signal") || holds(v, "paths"))
	}
	return false
}

// holds reports whether there is a text or a list of that name, and it is not empty.
func holds(block reflect.Value, name string) bool {
	v := block.MapIndex(reflect.ValueOf(name).Convert(block.Type().Key()))
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return (v.Kind() == reflect.String || v.Kind() == reflect.Slice) && v.Len() > 0
}
