package sim

import (
	"math"
	"reflect"
	"strings"
)

// numbers are the metrics that are one number, by their names in the JSON. What is
// measured by the real clock is left out: it differs from run to run,
// and so is what nothing is known of, as there is no job of the kind.
func (m *Metrics) numbers() map[string]float64 {
	out := map[string]float64{}
	v := reflect.ValueOf(*m)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch f := v.Field(i); {
		case name == "decide_mean_us" || name == "decide_event_us":
		case m.Cohort == 0 && ofCohort(name):
		case m.Interactive == 0 && name == "interactive_start_p95_s":
		case m.Deadlines == 0 && name == "deadlines_met":
		case f.Kind() == reflect.Float64:
			out[name] = f.Float()
		case f.Kind() == reflect.Int:
			out[name] = float64(f.Int())
		}
	}
	return out
}

// Number is a metric by its name in the JSON; 0 if there is none of that name.
func (m *Metrics) Number(name string) float64 {
	switch name {
	case "decide_mean_us":
		return m.DecideMean
	case "decide_event_us":
		return m.DecideEvent
	}
	return m.numbers()[name]
}

// ofCohort says of a metric in the JSON whether it is of the cohort's jobs alone.
func ofCohort(name string) bool {
	group, _, _ := strings.Cut(name, "_")
	switch group {
	case "jct", "queue", "requeue", "interactive", "finish":
		return true
	}
	return false
}

// OfCohort is a metric of the cohort's jobs; there is none where the cohort is empty.
func OfCohort(of func(*Metrics) float64) func(*Metrics) float64 {
	return Among(func(m *Metrics) int { return m.Cohort }, of)
}

// Among is a metric of so many jobs; there is none where there are none.
func Among(jobs func(*Metrics) int, of func(*Metrics) float64) func(*Metrics) float64 {
	return func(m *Metrics) float64 {
		if jobs(m) == 0 {
			return math.NaN()
		}
		return of(m)
	}
}

// Known are the values of a metric under one policy, seed by seed: of the seeds in
// which there is one. These are the same for all policies, as the jobs are.
func Known(results []Result, policy string, of func(*Metrics) float64) []float64 {
	var out []float64
	for i := range results {
		if results[i].Policy != policy {
			continue
		}
		if x := of(&results[i].Metrics); !math.IsNaN(x) {
			out = append(out, x)
		}
	}
	return out
}
