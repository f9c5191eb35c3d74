package audit

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Difference is a metric that is another one than the log says.
type Difference struct {
	Metric string  `json:"metric"`
	Said   float64 `json:"said"`
	Found  float64 `json:"found"`
}

// measured are the metrics that no log can tell: they are of the real clock, or of
// prices.
var measured = []string{"decide_mean_us", "decisions", "decide_event_us", "events", "bought", "bought_per_run"}

// Compare compares the metrics of a result, as JSON, with what the log says.
func (r *Report) Compare(metrics []byte) ([]Difference, error) {
	var said map[string]json.RawMessage
	if err := json.Unmarshal(metrics, &said); err != nil {
		return nil, fmt.Errorf("decode metrics: %w", err)
	}
	var out []Difference
	one := func(name string, data json.RawMessage, found float64) error {
		var x float64
		if err := json.Unmarshal(data, &x); err != nil {
			return fmt.Errorf("decode metric %s: %w", name, err)
		}
		if !near(x, found) {
			out = append(out, Difference{name, x, found})
		}
		return nil
	}
	names := make([]string, 0, len(said))
	for name := range said {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		found, known := r.Metrics[name]
		switch {
		case slices.Contains(measured, name):
		case name == "by_size" || name == "by_queue":
			parts := r.Sizes
			if name == "by_queue" {
				parts = r.Queues
			}
			if err := compareParts(name, said[name], parts, one); err != nil {
				return nil, err
			}
		case !known:
			return nil, fmt.Errorf("compare metrics: %q is none that is known", name)
		default:
			if err := one(name, said[name], found); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range missing(said, r.Metrics) {
		return nil, fmt.Errorf("compare metrics: %q is missing", name)
	}
	return out, nil
}

func missing(said map[string]json.RawMessage, found map[string]float64) []string {
	var out []string
	for name := range found {
		if _, there := said[name]; !there {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// compareParts compares lists of jobs by size or queue.
func compareParts(name string, data json.RawMessage, found []Part, one func(string, json.RawMessage, float64) error) error {
	var said []struct {
		Name     string          `json:"name"`
		Jobs     json.RawMessage `json:"jobs"`
		JCTMean  json.RawMessage `json:"jct_mean_s"`
		JCTP99   json.RawMessage `json:"jct_p99_s"`
		QueueP95 json.RawMessage `json:"queue_p95_s"`
		tenant
	}
	if err := json.Unmarshal(data, &said); err != nil {
		return fmt.Errorf("decode metric %s: %w", name, err)
	}
	count, err := json.Marshal(len(said))
	if err != nil {
		return fmt.Errorf("compare %s: %w", name, err)
	}
	if err := one(name, count, float64(len(found))); err != nil || len(said) != len(found) {
		return err
	}
	for i := range said {
		at := name + " " + said[i].Name
		if said[i].Name != found[i].Name {
			return fmt.Errorf("compare %s: %q stands where %q is", name, said[i].Name, found[i].Name)
		}
		if err := said[i].compare(at, &found[i], one); err != nil {
			return err
		}
		for _, pair := range []struct {
			name string
			said json.RawMessage
			is   float64
		}{{"jobs", said[i].Jobs, float64(found[i].Jobs)}, {"jct_mean_s", said[i].JCTMean, found[i].JCTMean}, {"jct_p99_s", said[i].JCTP99, found[i].JCTP99}, {"queue_p95_s", said[i].QueueP95, found[i].QueueP95}} {
			if err := one(at+" "+pair.name, pair.said, pair.is); err != nil {
				return err
			}
		}
	}
	return nil
}

// tenant is what is said of a queue; what is left out is 0.
type tenant struct {
	QueueMean    float64 `json:"queue_mean_s"`
	GPUHours     float64 `json:"gpu_hours"`
	Preemptions  float64 `json:"preemptions"`
	FairnessMean float64 `json:"finish_time_fairness_mean"`
}

func (t *tenant) compare(at string, p *Part, one func(string, json.RawMessage, float64) error) error {
	for _, pair := range []struct {
		name     string
		said, is float64
	}{{"queue_mean_s", t.QueueMean, p.QueueMean}, {"gpu_hours", t.GPUHours, p.GPUHours}, {"preemptions", t.Preemptions, float64(p.Preemptions)}, {"finish_time_fairness_mean", t.FairnessMean, p.FairnessMean}} {
		said, err := json.Marshal(pair.said)
		if err != nil {
			return fmt.Errorf("compare %s %s: %w", at, pair.name, err)
		}
		if err := one(at+" "+pair.name, said, pair.is); err != nil {
			return err
		}
	}
	return nil
}
