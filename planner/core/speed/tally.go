package speed

import (
	"math"
	"slices"
	"strconv"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// What a Tally keeps at most, and when it starts anew.
const (
	// Window is how many measurements of a configuration it keeps, the latest.
	Window = 15
	// MaxConfigs is how many configurations it keeps, those measured last.
	MaxConfigs = 48
	// changedAfter is how many measurements in a row must all be faster or all be
	// slower, by a factor of changedBy, than those before them, for the job to be
	// another one: then what was measured before is forgotten.
	changedAfter, changedBy = 5, 1.25
)

// What a rate, a batch or a part of a step may be: beyond it something is wrong
// with the job's code, and not with its speed.
const leastRate, mostRate = 1e-9, 1e18

// Tally is what was measured of one job and of others like it, in memory that
// does not grow. It is written to JSON and read from it.
type Tally struct {
	Unit string `json:"unit,omitempty"`
	// Configs are those measured, the one measured last comes last.
	Configs    []Kept  `json:"configs,omitempty"`
	NoiseScale float64 `json:"noise_scale,omitempty"`
}

// Kept is what is kept of one configuration.
type Kept struct {
	Members int    `json:"members"`
	GPUs    int    `json:"gpus,omitempty"`
	Model   string `json:"model,omitempty"`
	Level   string `json:"level,omitempty"`
	// Count is how often it was measured in all, and Rates are the latest.
	Count    int       `json:"count"`
	Rates    []float64 `json:"rates"`
	Batch    float64   `json:"batch,omitempty"`
	FetchS   float64   `json:"fetch_s,omitempty"`
	PrepareS float64   `json:"prepare_s,omitempty"`
	ComputeS float64   `json:"compute_s,omitempty"`
}

// Measured is one measurement: a SpeedSample with a Count of 1, and what the
// job's code told meanwhile.
type Measured struct {
	model.SpeedSample
	Unit       string
	NoiseScale float64
}

// Add takes a measurement in, and says whether it did: one that cannot be is left
// out, and so is one in steps where samples are counted. The first one in samples
// ends all that were in steps.
func (t *Tally) Add(m Measured) bool {
	if !(m.Rate >= leastRate && m.Rate <= mostRate) || m.Members < 1 || m.GPUs < 0 || m.Unit != model.UnitSamples && m.Unit != model.UnitSteps {
		return false
	}
	if m.Unit != t.Unit {
		if t.Unit == model.UnitSamples {
			return false
		}
		t.Unit, t.Configs = m.Unit, nil
	}
	at := slices.IndexFunc(t.Configs, func(k Kept) bool {
		return k.Members == m.Members && k.GPUs == m.GPUs && k.Model == m.Model && k.Level == m.Level && alike(k.Batch, m.Batch)
	})
	k := Kept{Members: m.Members, GPUs: m.GPUs, Model: m.Model, Level: m.Level}
	configs := slices.Clone(t.Configs)
	if at >= 0 {
		k = configs[at]
		configs = slices.Delete(configs, at, at+1)
	}
	k.Count++
	k.Rates = append(slices.Clone(k.Rates), rounded(m.Rate))
	k.Rates = k.Rates[max(0, len(k.Rates)-Window):]
	k.Batch = smoothed(k.Batch, m.Batch)
	k.FetchS, k.PrepareS, k.ComputeS = smoothed(k.FetchS, m.FetchS), smoothed(k.PrepareS, m.PrepareS), smoothed(k.ComputeS, m.ComputeS)
	if changed(k.Rates) {
		configs, k.Rates, k.Count = nil, k.Rates[len(k.Rates)-changedAfter:], changedAfter
		t.NoiseScale = 0
	}
	configs = append(configs, k)
	t.Configs = configs[max(0, len(configs)-MaxConfigs):]
	t.NoiseScale = smoothed(t.NoiseScale, m.NoiseScale)
	return true
}

// changed reports whether the latest rates are all those of another job.
func changed(rates []float64) bool {
	at := len(rates) - changedAfter
	if at < changedAfter {
		return false
	}
	usual, _ := middle(rates[:at])
	latest := rates[at:]
	return slices.Min(latest) > usual*changedBy || slices.Max(latest) < usual/changedBy
}

// alike: two batch sizes count as one configuration, as less than a factor of √2
// is between them.
func alike(a, b float64) bool {
	if a <= 0 || b <= 0 {
		return a <= 0 && b <= 0
	}
	return math.Abs(math.Log2(a/b)) < 0.5
}

// rounded keeps four digits, which is more than a measurement has.
func rounded(x float64) float64 {
	out, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64)
	if err != nil {
		return x
	}
	return out
}

// smoothed moves a value an eighth of the way to a new one; what was not told
// changes nothing.
func smoothed(was, is float64) float64 {
	switch {
	case !(is >= leastRate && is <= mostRate):
		return was
	case !(was > 0):
		return rounded(is)
	}
	return rounded(was + (is-was)/8)
}

// Samples are what the measurements say, in the order of the configurations.
func (t *Tally) Samples() []model.SpeedSample {
	var out []model.SpeedSample
	for _, k := range t.Configs {
		if len(k.Rates) == 0 {
			continue
		}
		rate, spread := middle(k.Rates)
		out = append(out, model.SpeedSample{Members: k.Members, GPUs: k.GPUs, Model: k.Model, Level: k.Level, Rate: rate, Spread: spread,
			Count: max(k.Count, len(k.Rates)), Batch: k.Batch, FetchS: k.FetchS, PrepareS: k.PrepareS, ComputeS: k.ComputeS})
	}
	return out
}

// middle is the median of rates, and the standard deviation of their logarithms
// by the median of the distances from it, which half of them being wrong does
// not change much.
func middle(rates []float64) (median, spread float64) {
	logs := make([]float64, len(rates))
	for i, r := range rates {
		logs[i] = math.Log(r)
	}
	at := medianOf(logs)
	for i := range logs {
		logs[i] = math.Abs(logs[i] - at)
	}
	return rounded(math.Exp(at)), rounded(1.4826 * medianOf(logs))
}

func medianOf(x []float64) float64 {
	slices.Sort(x)
	n := len(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}

// Clean takes out what no Add has put there, as may be in a tally that was kept
// elsewhere.
func (t *Tally) Clean() {
	if t.Unit != model.UnitSamples && t.Unit != model.UnitSteps {
		*t = Tally{}
	}
	amount := func(x float64) float64 {
		if x >= leastRate && x <= mostRate {
			return x
		}
		return 0
	}
	t.NoiseScale = amount(t.NoiseScale)
	var sound []Kept
	for _, k := range t.Configs {
		k.Rates = slices.DeleteFunc(slices.Clone(k.Rates), func(x float64) bool { return amount(x) == 0 })
		k.Rates = k.Rates[max(0, len(k.Rates)-Window):]
		if k.Members < 1 || k.Members > model.MaxCount || k.GPUs < 0 || k.GPUs > model.MaxCount || len(k.Rates) == 0 || !slices.Contains(model.SpeedLevels, k.Level) {
			continue
		}
		k.Count = max(k.Count, len(k.Rates))
		k.Batch, k.FetchS, k.PrepareS, k.ComputeS = amount(k.Batch), amount(k.FetchS), amount(k.PrepareS), amount(k.ComputeS)
		sound = append(sound, k)
	}
	t.Configs = sound[max(0, len(sound)-MaxConfigs):]
}
