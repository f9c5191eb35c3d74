package model

import (
	"fmt"
	"slices"
	"strings"
)

// Speed is what is known of how fast a job works, by its size and its place.
type Speed struct {
	// Declared is what its author says, by members, as multiples of any one of
	// them ("1:1,2:1.9,4:3.5"); it counts for less the more has been measured.
	Declared []SpeedPoint `json:"declared,omitempty"`
	// Unit is what the samples count: "samples" (or tokens, as the job's code
	// counts) or "steps". A step is taken to be as much work at any size.
	Unit string `json:"unit,omitempty"`
	// Samples is what was measured, one for each configuration.
	Samples []SpeedSample `json:"samples,omitempty"`
	// NoiseScale is the gradient noise scale that the job's code has told, in
	// samples: the batch size at which a sample is worth half as much as in the
	// smallest batch (McCandlish et al., An Empirical Model of Large-Batch
	// Training, 2018, section 2.2). 0 is unknown.
	NoiseScale float64 `json:"noise_scale,omitempty"`
	// BaseBatch is the batch size, in samples, that a sample is worth 1 in.
	BaseBatch float64 `json:"base_batch,omitempty"`
}

// What the rate of a sample counts.
const (
	UnitSamples = "samples"
	UnitSteps   = "steps"
)

// SpeedLevels are what a sample's Level may be, nearest first. "wider" is
// whatever is beyond a block.
var SpeedLevels = []string{LevelIsland, LevelNode, LevelDomain, LevelRack, LevelBlock, "wider"}

// The most that a Speed may hold. A rate, a batch or a time beyond MaxRate is a
// fault of whoever measured it.
const (
	MaxSpeedPoints  = 64
	MaxSpeedSamples = 64
	MaxRate         = 1e18
)

// SpeedPoint is one point of a declared curve.
type SpeedPoint struct {
	Members int     `json:"members"`
	Rate    float64 `json:"rate"`
}

// SpeedSample is what was measured in one configuration.
type SpeedSample struct {
	Members int `json:"members"`
	// GPUs is how many all members have together; 0 where they ask for none.
	GPUs int `json:"gpus,omitempty"`
	// Model is the GPUs' model, or the models, joined by "+", if they differ.
	Model string `json:"model,omitempty"`
	// Level is the tightest level that all members shared: "island", "node",
	// "domain", "rack", "block", or "wider".
	Level string `json:"level,omitempty"`
	// Rate is the median of the rates measured, per second.
	Rate float64 `json:"rate"`
	// Spread is how far one measurement is from the median, as a part of it: the
	// standard deviation of the logarithm, by a robust estimate.
	Spread float64 `json:"spread,omitempty"`
	// Count is how many measurements that is.
	Count int `json:"count"`
	// Batch is the samples in a step; 0 is unknown.
	Batch float64 `json:"batch,omitempty"`
	// FetchS, PrepareS and ComputeS are the seconds of a step that one member
	// spends on reading its input, on preparing it and on working with it, as far
	// as its code has told; they overlap.
	FetchS   float64 `json:"fetch_s,omitempty"`
	PrepareS float64 `json:"prepare_s,omitempty"`
	ComputeS float64 `json:"compute_s,omitempty"`
}

func (j *Job) validateSpeed(f *faults, i int) {
	s := j.Speed
	if s == nil {
		return
	}
	if s.Unit != "" && s.Unit != UnitSamples && s.Unit != UnitSteps {
		f.add("jobs[%d] (%s).speed.unit: %q: want %q or %q", i, j.ID, s.Unit, UnitSamples, UnitSteps)
	}
	if s.Unit == "" && len(s.Samples) > 0 {
		f.add("jobs[%d] (%s).speed.unit: empty: want what the samples count, %q or %q", i, j.ID, UnitSamples, UnitSteps)
	}
	if len(s.Declared) > MaxSpeedPoints || len(s.Samples) > MaxSpeedSamples {
		f.add("jobs[%d] (%s).speed: %d points declared and %d samples: want at most %d and %d", i, j.ID, len(s.Declared), len(s.Samples), MaxSpeedPoints, MaxSpeedSamples)
	}
	amount := func(where string, x, least float64) {
		if !(x >= least && x <= MaxRate) { // NaN too
			f.add("jobs[%d] (%s).speed.%s: %g: want %g to 1e18", i, j.ID, where, x, least)
		}
	}
	amount("noise_scale", s.NoiseScale, 0)
	amount("base_batch", s.BaseBatch, 0)
	seen := map[int]bool{}
	for k, p := range s.Declared {
		if p.Members < 1 || p.Members > MaxCount || seen[p.Members] {
			f.add("jobs[%d] (%s).speed.declared[%d].members: %d: want 1 to %d, each once", i, j.ID, k, p.Members, MaxCount)
		}
		seen[p.Members] = true
		amount(fmt.Sprintf("declared[%d].rate", k), p.Rate, leastRate)
	}
	for k := range s.Samples {
		m := &s.Samples[k]
		if m.Members < 1 || m.Members > MaxCount {
			f.add("jobs[%d] (%s).speed.samples[%d].members: %d: want 1 to %d", i, j.ID, k, m.Members, MaxCount)
		}
		if m.GPUs < 0 || m.GPUs > MaxCount*MaxGPUsPerNode {
			f.add("jobs[%d] (%s).speed.samples[%d].gpus: %d: want 0 to %d", i, j.ID, k, m.GPUs, MaxCount*MaxGPUsPerNode)
		}
		if m.Count < 1 {
			f.add("jobs[%d] (%s).speed.samples[%d].count: %d: want 1 or more", i, j.ID, k, m.Count)
		}
		if m.Level != "" && !slices.Contains(SpeedLevels, m.Level) {
			f.add("jobs[%d] (%s).speed.samples[%d].level: %q: want one of %s", i, j.ID, k, m.Level, strings.Join(SpeedLevels, ", "))
		}
		amount(fmt.Sprintf("samples[%d].rate", k), m.Rate, leastRate)
		for _, q := range []struct {
			name  string
			value float64
		}{{"spread", m.Spread}, {"batch", m.Batch}, {"fetch_s", m.FetchS}, {"prepare_s", m.PrepareS}, {"compute_s", m.ComputeS}} {
			amount(fmt.Sprintf("samples[%d].%s", k, q.name), q.value, 0)
		}
	}
}

// leastRate is the least that a speed may be: one step in thirty years.
const leastRate = 1e-9
