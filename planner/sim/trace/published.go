package trace

import (
	"errors"
	"fmt"
	"strings"
)

// tiresias is the list of jobs of Tiresias's simulator.
type tiresias struct{ unit float64 }

func (tiresias) columns() []string { return []string{"job_id", "num_gpu", "submit_time", "duration"} }

func (tiresias) named() named {
	return named{submit: "submit_time", duration: "duration", gpus: "num_gpu"}
}

func (p tiresias) job(r *row) (Job, error) {
	var faults []error
	j := Job{
		ID: strings.Clone(r.text("job_id")), Submit: r.number("submit_time", &faults) * p.unit, Duration: r.number("duration", &faults) * p.unit,
		GPUs: r.whole("num_gpu", &faults), Model: strings.Clone(r.text("model_name")),
	}
	return j, errors.Join(faults...)
}

// helios are the logs of SenseTime's Helios (cluster_log.csv) and of Shanghai AI
// Laboratory's Acme (trace_seren.csv, trace_kalos.csv): times of day, durations in
// numbers.
type helios struct{ unit float64 }

func (helios) columns() []string { return []string{"job_id", "gpu_num", "submit_time", "duration"} }

func (helios) named() named {
	return named{submit: "submit_time", duration: "duration", gpus: "gpu_num"}
}

func (p helios) job(r *row) (Job, error) {
	var faults []error
	j := Job{ID: strings.Clone(r.text("job_id")), GPUs: r.whole("gpu_num", &faults), Queue: strings.Clone(first(r, "vc", "type")), Model: strings.Clone(r.text("jobname"))}
	if len(faults) == 0 && j.GPUs == 0 {
		return j, leftOut("it asks for no GPU")
	}
	var known bool
	if j.Submit, known = dated(r.text("submit_time")); !known {
		faults = append(faults, fmt.Errorf("submit_time %q: want a time such as 2020-04-01 12:00:00", r.text("submit_time")))
	}
	if !r.has("duration") {
		return j, leftOut("it had not ended")
	}
	j.Duration = r.number("duration", &faults) * p.unit
	if len(faults) == 0 && j.Duration == 0 {
		return j, leftOut("it never ran")
	}
	return j, errors.Join(faults...)
}
