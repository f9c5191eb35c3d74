package model

// validateService checks what the job has had.
func (j *Job) validateService(f *faults, i int) {
	if !(j.AttainedGPUs >= 0 && j.AttainedGPUs <= MaxQuantity) { // NaN too
		f.add("jobs[%d] (%s).attained_gpu_s: %g: want 0 to %d", i, j.ID, j.AttainedGPUs, MaxQuantity)
	} else if !(j.ForgottenGPUs >= 0 && j.ForgottenGPUs <= j.AttainedGPUs) {
		f.add("jobs[%d] (%s).forgotten_gpu_s: %g: want 0 to attained_gpu_s, %g", i, j.ID, j.ForgottenGPUs, j.AttainedGPUs)
	}
	if j.Ran < 0 {
		f.add("jobs[%d] (%s).ran_ns: %d: want 0 or more", i, j.ID, j.Ran)
	} else if j.ForgottenRan < 0 || j.ForgottenRan > j.Ran {
		f.add("jobs[%d] (%s).forgotten_ran_ns: %d: want 0 to ran_ns, %d", i, j.ID, j.ForgottenRan, j.Ran)
	}
	rest := j.Ran
	for _, name := range sortedKeys(j.RanByModel) {
		ran := j.RanByModel[name]
		if ran < 0 || ran > rest {
			f.add("jobs[%d] (%s).%s: %d: want 0 or more, and with the others at most ran_ns, %d", i, j.ID, key("ran_by_model_ns", name), ran, j.Ran)
		} else {
			rest -= ran
		}
	}
}

// validateEstimate checks what others like the job have done.
func (j *Job) validateEstimate(f *faults, i int) {
	for _, n := range []struct {
		name  string
		value int64
	}{{"estimate_ns", int64(j.Estimate)}, {"estimate_spread_ns", int64(j.EstimateSpread)}, {"estimate_runs", int64(j.EstimateRuns)}} {
		if n.value < 0 {
			f.add("jobs[%d] (%s).%s: %d: want 0 (unknown) or more", i, j.ID, n.name, n.value)
		}
	}
}

func (h *History) validate(f *faults) {
	if len(h.Demands) > MaxDemands {
		f.add("history.demands_gpu_s: %d of them: want at most %d", len(h.Demands), MaxDemands)
	}
	for i, d := range h.Demands {
		if !(d >= 0 && d <= MaxQuantity) { // NaN too
			f.add("history.demands_gpu_s[%d]: %g: want 0 to %d", i, d, MaxQuantity)
		}
	}
}
