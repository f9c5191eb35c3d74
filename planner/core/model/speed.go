package model

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
