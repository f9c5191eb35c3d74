package trace

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// itp are Microsoft's ITP jobs: job_id, submission_time, duration, num_gpu, and
// in the test bed's file model_name and deadline.
type itp struct{ unit float64 }

func (itp) columns() []string { return []string{"job_id", "submission_time", "duration", "num_gpu"} }

func (itp) named() named {
	return named{submit: "submission_time", duration: "duration", gpus: "num_gpu"}
}

func (p itp) job(r *row) (Job, error) {
	var faults []error
	j := Job{
		ID: strings.Clone(r.text("job_id")), Submit: r.number("submission_time", &faults) * p.unit, Duration: r.number("duration", &faults) * p.unit,
		GPUs: r.whole("num_gpu", &faults), Deadline: r.optional("deadline", &faults) * p.unit, Model: strings.Clone(r.text("model_name")),
	}
	return j, errors.Join(faults...)
}

// gavel are Philly's jobs with the model types that Gavel gave them: VC, type,
// command, name of the steps' argument, whether data is needed, steps, arrival
// from the VC's first job, GPUs. What a job runs is its steps by the throughput
// measured on V100s.
type gavel struct{ throughputs map[string]float64 }

func (gavel) columns() []string {
	return []string{"vc", "type", "command", "argument", "needs_data", "steps", "arrival", "gpus"}
}

func (gavel) named() named {
	return named{submit: "arrival", duration: "steps by the throughput", gpus: "gpus"}
}

func (p gavel) job(r *row) (Job, error) {
	var faults []error
	j := Job{Submit: r.number("arrival", &faults), GPUs: r.whole("gpus", &faults), Model: strings.Clone(r.text("type")), Queue: strings.Clone(r.text("vc"))}
	steps := r.number("steps", &faults)
	if err := errors.Join(faults...); err != nil {
		return j, err
	}
	rate, known := p.throughputs[fmt.Sprintf("('%s', %d)", j.Model, j.GPUs)]
	if !known {
		return j, leftOut("no throughput was measured for its type and number of GPUs")
	}
	if !(rate > 0) {
		return j, leftOut("the throughput measured for it is 0: it did not fit into memory")
	}
	j.Duration = steps / rate
	return j, nil
}

// openb are the tasks of Alibaba's cluster-trace-gpu-v2023. gpu_milli is what part of
// its one GPU a task needs, in thousandths, and gpu_spec the models that it may run on.
type openb struct{ unit float64 }

func (openb) columns() []string {
	return []string{"name", "num_gpu", "creation_time", "deletion_time", "scheduled_time"}
}

func (openb) named() named {
	return named{submit: "creation_time", duration: "deletion_time less scheduled_time", gpus: "num_gpu", models: "gpu_spec"}
}

func (p openb) job(r *row) (Job, error) {
	var faults []error
	j := Job{ID: strings.Clone(r.text("name")), GPUs: r.whole("num_gpu", &faults), Submit: r.number("creation_time", &faults) * p.unit, Queue: strings.Clone(r.text("qos"))}
	if len(faults) == 0 && j.GPUs == 0 {
		return j, leftOut("it asks for no GPU")
	}
	if milli := r.optional("gpu_milli", &faults); r.has("gpu_milli") && j.GPUs == 1 {
		if !(milli >= 1 && milli <= 1000) {
			faults = append(faults, fmt.Errorf("gpu_milli %g: want 1 to 1000 of a task of one GPU", milli))
		}
		j.Share = milli / 1000
	}
	if !r.has("scheduled_time") {
		return j, leftOut("it was never scheduled")
	}
	if !r.has("deletion_time") {
		return j, leftOut("it had not ended")
	}
	j.Duration = r.number("deletion_time", &faults)*p.unit - r.number("scheduled_time", &faults)*p.unit
	j.GPUModels = strings.Clone(r.text("gpu_spec"))
	if len(faults) == 0 && j.Duration == 0 {
		return j, leftOut("it ended in the second in which it was scheduled")
	}
	return j, errors.Join(faults...)
}

// sacct is Slurm's accounting: sacct --parsable2 with at least JobID or JobIDRaw, Submit,
// AllocTRES or ReqTRES, and ElapsedRaw or Elapsed. shards is how many of a GPU
// gres/shard counts; 0: nobody has said.
type sacct struct{ shards int }

func (sacct) columns() []string { return []string{"JobID", "Submit", "ElapsedRaw", "AllocTRES"} }

// instead is what may stand in the place of a column.
func (sacct) instead() map[string][]string {
	return map[string][]string{"JobID": {"JobIDRaw"}, "ElapsedRaw": {"Elapsed"}, "AllocTRES": {"ReqTRES", "AllocGRES", "ReqGRES"}}
}

func (sacct) named() named {
	return named{submit: "Submit", duration: "Elapsed", gpus: "AllocTRES", models: "ReqTRES"}
}

func (p sacct) job(r *row) (Job, error) {
	id := strings.Clone(first(r, "JobID", "JobIDRaw"))
	if strings.Contains(id, ".") {
		return Job{ID: id}, leftOut("it is a step of a job")
	}
	j := Job{ID: id, Queue: strings.Clone(first(r, "Account", "Partition")), Model: strings.Clone(r.text("JobName"))}
	gpus := readTRES(first(r, "AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES"))
	if err := gpus.ask(&j, p.shards); err != nil {
		return j, err
	}
	// What it was given says nothing of what else it could have run on.
	wish := readTRES(first(r, "ReqTRES", "ReqGRES"))
	j.GPUModels = strings.Clone(wish.models)
	var faults []error
	var known bool
	if j.Submit, known = slurmTime(r.text("Submit")); !known {
		faults = append(faults, fmt.Errorf("Submit %q: want a time such as 2031-05-17T12:00:00", r.text("Submit")))
	}
	var err error
	if text := r.text("ElapsedRaw"); text != "" {
		j.Duration = r.number("ElapsedRaw", &faults)
	} else if j.Duration, err = slurmDuration(r.text("Elapsed")); err != nil {
		faults = append(faults, err)
	}
	switch {
	case len(faults) > 0:
	case j.Duration == 0:
		return j, leftOut("it never ran")
	case r.text("End") == "Unknown", slices.Contains(running[:], r.text("State")):
		return j, leftOut("it had not ended")
	}
	return j, errors.Join(faults...)
}

// slurmTime reads a time of day, or, as with SLURM_TIME_FORMAT=%s, seconds since 1970.
func slurmTime(text string) (seconds float64, known bool) {
	if n, err := strconv.ParseUint(text, 10, 63); err == nil {
		return float64(n), true
	}
	return dated(text)
}

// running are Slurm's states of jobs that have run and go on.
var running = [...]string{"RUNNING", "SUSPENDED", "COMPLETING", "RESIZING", "STOPPED", "SIGNALING", "STAGE_OUT"}

func first(r *row, names ...string) string {
	for _, name := range names {
		if r.has(name) {
			return r.text(name)
		}
	}
	return ""
}

// slurmDuration reads [DD-]HH:MM:SS and MM:SS.
func slurmDuration(text string) (float64, error) {
	fault := fmt.Errorf("elapsed %q: want [DAYS-]HH:MM:SS", text)
	days, rest, hasDays := strings.Cut(text, "-")
	total := 0.0
	if hasDays {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 {
			return 0, fault
		}
		total = float64(n) * 86400
	} else {
		rest = text
	}
	parts := strings.Split(rest, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return 0, fault
	}
	seconds := 0.0
	for _, part := range parts {
		n, err := strconv.ParseFloat(part, 64)
		if err != nil || n < 0 || math.IsInf(n, 0) {
			return 0, fault
		}
		seconds = seconds*60 + n
	}
	return total + seconds, nil
}

// own is the project's own form, described in docs/simulator.md.
type own struct{ unit float64 }

func (own) columns() []string { return []string{"job", "submit_s", "duration_s", "gpus"} }

func (own) named() named {
	return named{submit: "submit_s", duration: "duration_s", gpus: "gpus", models: "gpu_models"}
}

func (p own) job(r *row) (Job, error) {
	var faults []error
	j := Job{
		ID: strings.Clone(r.text("job")), Submit: r.number("submit_s", &faults) * p.unit, Duration: r.number("duration_s", &faults) * p.unit,
		GPUs: r.whole("gpus", &faults), Deadline: r.optional("deadline_s", &faults) * p.unit,
		Model: strings.Clone(r.text("model")), Queue: strings.Clone(r.text("queue")), Class: strings.Clone(r.text("class")),
		Profile: strings.Clone(r.text("mig_profile")), GPUModels: strings.Clone(r.text("gpu_models")),
	}
	if r.has("gpu_share") {
		if j.Share = r.number("gpu_share", &faults); j.Share == 0 {
			faults = append(faults, errors.New("gpu_share 0: want more than 0, at most 1"))
		}
	}
	if r.has("min_gpus") {
		j.Min = r.whole("min_gpus", &faults)
	}
	if r.has("max_gpus") {
		j.Max = r.whole("max_gpus", &faults)
	}
	return j, errors.Join(faults...)
}
