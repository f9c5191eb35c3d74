package record

import (
	"maps"
	"time"
)

// Service is what a job has had of the cluster since it was submitted. A new
// submission begins with none; one that changes only counts goes on.
type Service struct {
	// GPUSeconds and Ran add up all of its runs up to At.
	GPUSeconds float64       `json:"gpu_s,omitempty"`
	Ran        time.Duration `json:"ran_ns,omitempty"`
	// RanByModel is what of Ran it was on which GPU model.
	RanByModel map[string]time.Duration `json:"ran_by_model_ns,omitempty"`
	// GPUs is what its members in force hold since At, and Model of which model;
	// Runs is whether it has any.
	GPUs  int    `json:"gpus,omitempty"`
	Model string `json:"model,omitempty"`
	Runs  bool   `json:"runs,omitempty"`
	// At is when this was brought up to date last.
	At time.Time `json:"at,omitzero"`
	// ForgottenGPUSeconds and ForgottenRan are what of GPUSeconds and Ran the
	// order does not hold against the job any more.
	ForgottenGPUSeconds float64       `json:"forgotten_gpu_s,omitempty"`
	ForgottenRan        time.Duration `json:"forgotten_ran_ns,omitempty"`
}

// Account brings what the job has had up to date: until now it held what was
// noted last, from now on it holds what its members in force do. Whoever changes
// phase or members calls it before the record is written.
func (r *Record) Account(now time.Time) {
	s := &r.Service
	gpus, runs := r.holds()
	of := ""
	if gpus > 0 {
		of = r.Model
	}
	if s.At.IsZero() && !runs || s.GPUs == gpus && s.Runs == runs && s.Model == of {
		return
	}
	*s = s.UpTo(now)
	s.GPUs, s.Runs, s.Model = gpus, runs, of
}

// UpTo is the service up to a time, with what is held since it was noted.
func (s Service) UpTo(now time.Time) Service {
	if more := max(0, now.Sub(s.At)); s.Runs && !s.At.IsZero() {
		s.GPUSeconds += more.Seconds() * float64(s.GPUs)
		s.Ran += more
		if s.Model != "" && more > 0 {
			s.RanByModel = maps.Clone(s.RanByModel)
			if s.RanByModel == nil {
				s.RanByModel = map[string]time.Duration{}
			}
			s.RanByModel[s.Model] += more
		}
	}
	if now.After(s.At) {
		s.At = now
	}
	return s
}

// Forget makes the order forget what the job has had so far.
func (s *Service) Forget() { s.ForgottenGPUSeconds, s.ForgottenRan = s.GPUSeconds, s.Ran }

// holds counts the GPUs of the members in force.
func (r *Record) holds() (gpus int, runs bool) {
	if r.Phase != PhaseAdmitted && r.Phase != PhaseRunning {
		return 0, false
	}
	for i := range r.Members {
		if m := &r.Members[i]; !m.Ended {
			gpus, runs = gpus+len(m.GPUs), true
		}
	}
	return gpus, runs
}
