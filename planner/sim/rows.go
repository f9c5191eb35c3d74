package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// variant is what is known of the jobs, or what they are, in the runs of one row,
// where that differs from the others: it stands behind the policy and an @.
type variant struct {
	sigma   float64
	elastic float64
	unsaved float64
}

// variants are all of them, by name.
var variants = map[string]func(*variant){
	"oracle":       func(v *variant) { v.sigma = 0 },
	"no-estimates": func(v *variant) { v.sigma = NoEstimates },
	"elastic30":    func(v *variant) { v.elastic = 0.3 },
	"elastic100":   func(v *variant) { v.elastic = 1 },
	"unsaved25":    func(v *variant) { v.unsaved = 0.25 },
	"unsaved50":    func(v *variant) { v.unsaved = 0.5 },
	"unsaved75":    func(v *variant) { v.unsaved = 0.75 },
	"unsaved100":   func(v *variant) { v.unsaved = 1 },
}

// Variants are the names that may stand behind a policy and an @.
func Variants() []string { return slices.Sorted(maps.Keys(variants)) }

// variantOf divides the name of a row into its policy and the rest.
func (c *Comparison) variantOf(row string) (policy string, v variant, err error) {
	policy, words, some := strings.Cut(row, "@")
	v = variant{sigma: c.Sigma, elastic: c.Elastic}
	if !some {
		return policy, v, nil
	}
	kinds := map[string]string{}
	for word := range strings.SplitSeq(words, "@") {
		set, known := variants[word]
		if first, more, plus := strings.Cut(word, "+"); !known && plus {
			return "", v, fmt.Errorf("%w: policy %s: +%s goes before the @: want %s+%s@%s", ErrSetup, row, more, policy, more, first)
		}
		if !known {
			return "", v, fmt.Errorf("%w: policy %s: %q: want one of %s behind an @", ErrSetup, row, word, strings.Join(Variants(), ", "))
		}
		kind := strings.TrimRight(word, "0123456789")
		if word == "oracle" {
			kind = "no-estimates" // both are of what is known
		}
		if kinds[kind] != "" {
			return "", v, fmt.Errorf("%w: policy %s: want %s or %s behind the @, not both", ErrSetup, row, kinds[kind], word)
		}
		kinds[kind] = word
		set(&v)
	}
	return policy, v, nil
}

// Elastic gives a part of the jobs that take whole nodes bounds: from half to
// twice the nodes that they ask for, one at least and no more than the cluster
// has. Which they are depends on the seed alone. Only whole-node gangs can change
// their size without starting anew. Those that have bounds keep them.
func Elastic(jobs []trace.Job, share float64, perNode, gpus int, seed uint64) []trace.Job {
	if share <= 0 {
		return jobs
	}
	rng := rand.New(rand.NewPCG(seed, 0xe1a5))
	out := slices.Clone(jobs)
	for i := range out {
		j := &out[i]
		if drawn := rng.Float64() < share; !drawn || j.GPUs%perNode != 0 || j.Max != 0 || j.Share > 0 || j.GPUModels != "" {
			continue
		}
		nodes := j.GPUs / perNode
		j.Min, j.Max = max(1, nodes/2)*perNode, min(2*nodes, gpus/perNode)*perNode
	}
	return out
}

// Unsaved draws a part of the jobs that save nothing of what they do; nil: none is to. Which
// they are depends on the seed alone, and those of a smaller part are among those of a larger
// one. Elastic jobs save, or they could not change their size.
func Unsaved(jobs []trace.Job, share float64, seed uint64) []bool {
	if share <= 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 0x105e))
	out := make([]bool, len(jobs))
	for i := range jobs {
		drawn := rng.Float64() < share
		out[i] = drawn && jobs[i].Max == 0
	}
	return out
}

// Difference is how far a row is from another one, seed by seed.
type Difference struct {
	Policy  string `json:"policy"`
	Against string `json:"against"`
	// Metrics are the mean differences with their 95 % confidence intervals.
	Metrics map[string]Interval `json:"metrics"`
}

// Differences compares all rows with the first, pairing the runs of the same seed.
func Differences(policies []string, results []Result) []Difference {
	out := []Difference{}
	if len(policies) < 2 {
		return out
	}
	values := func(policy string) map[string][]float64 {
		all := map[string][]float64{}
		for i := range results {
			if results[i].Policy == policy {
				for name, x := range results[i].Metrics.numbers() {
					all[name] = append(all[name], x)
				}
			}
		}
		return all
	}
	base := values(policies[0])
	for _, policy := range policies[1:] {
		d := Difference{policy, policies[0], map[string]Interval{}}
		for name, list := range values(policy) {
			if name == "free_parts" && slices.Max(list) == 0 && slices.Max(base[name]) == 0 {
				continue // there are no parts
			}
			d.Metrics[name] = Paired(list, base[name])
		}
		out = append(out, d)
	}
	return out
}
