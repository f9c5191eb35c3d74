package trace

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

// The bounds of what a row may say: a time of 300 years, a million GPUs. What takes less
// than a microsecond would end when it begins: to times of a hundred years nothing less
// can be added.
const (
	maxSeconds = 1e10
	minSeconds = 1e-6
	maxGPUs    = 1 << 20
	maxModels  = 32
)

// profiles is the form of the names of MIG instances.
var profiles = regexp.MustCompile(`^[1-9]g\.[1-9][0-9]{0,3}gb$`)

// check looks at what every job must be.
func check(j *Job, of named) error {
	// In events and results names are UTF-8, and are to be found again in the trace.
	for _, name := range []*string{&j.ID, &j.Model, &j.Queue, &j.GPUModels} {
		*name = strings.ToValidUTF8(*name, "\ufffd")
	}
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !(math.Abs(j.Submit) <= maxSeconds) {
		add("%s %g s: want a time within %g s of zero", of.submit, j.Submit, float64(maxSeconds))
	}
	if !(j.Duration >= minSeconds && j.Duration <= maxSeconds) {
		add("%s %g s: want %g to %g", of.duration, j.Duration, minSeconds, float64(maxSeconds))
	}
	if j.GPUs < 1 || j.GPUs > maxGPUs {
		add("%s %d: want 1 to %d", of.gpus, j.GPUs, maxGPUs)
	}
	if j.Min != 0 || j.Max != 0 {
		if j.Min == 0 {
			j.Min = j.GPUs
		}
		if j.Max == 0 {
			j.Max = j.GPUs
		}
		if j.Min < 1 || j.Min > j.GPUs || j.Max < j.GPUs || j.Max > maxGPUs {
			add("min_gpus %d, max_gpus %d: want the %d of %s between them, and at most %d", j.Min, j.Max, j.GPUs, of.gpus, maxGPUs)
		}
	}
	if !(math.Abs(j.Deadline) <= maxSeconds) {
		add("deadline_s %g s: want a time within %g s of zero", j.Deadline, float64(maxSeconds))
	}
	if j.Deadline != 0 && j.Deadline <= j.Submit {
		add("deadline_s %g s: want a time after %s, %g s, on the same clock", j.Deadline, of.submit, j.Submit)
	}
	if j.Share == 1 {
		j.Share = 0
	}
	partial := j.Share != 0 || j.Profile != ""
	if !(j.Share >= 0 && j.Share < 1) {
		add("gpu_share %g: want more than 0, at most 1", j.Share)
	}
	if j.Profile != "" && !profiles.MatchString(j.Profile) {
		add("mig_profile %q: want one such as 1g.10gb", j.Profile)
	}
	if partial && (j.GPUs != 1 || j.Min != 0 || j.Max != 0 || j.Share != 0 && j.Profile != "") {
		add("a part of a GPU (gpu_share, mig_profile) of %d GPUs: want one of both, of 1 GPU, without min_gpus and max_gpus", j.GPUs)
	}
	if j.GPUModels != "" && (slices.Contains(strings.Split(j.GPUModels, "|"), "") || strings.Count(j.GPUModels, "|") >= maxModels) {
		add("%s %q: want names of GPU models with a | between them, at most %d", of.models, j.GPUModels, maxModels)
	}
	if j.Class != "" && !slices.Contains(classes[:], j.Class) {
		add("class %q: want one of %s", j.Class, strings.Join(classes[:], ", "))
	}
	return errors.Join(faults...)
}
