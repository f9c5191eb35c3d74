package apm

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/hashicorp/nomad-autoscaler/sdk"
)

// scope is whom a metric is of.
type scope int

const (
	ofCluster scope = iota
	ofPool
	// ofQueue metrics are of the whole cluster without a name.
	ofQueue
)

// metrics are all that can be asked for.
var metrics = map[string]scope{
	"nodes_wanted": ofPool, "nodes_present": ofPool, "nodes_coming": ofPool, "nodes_giving_back": ofPool, "nodes_idle": ofPool,
	"price_per_hour": ofPool, "deadline_s": ofPool,
	"gpus": ofCluster, "gpus_free": ofCluster, "gpus_used": ofCluster, "gpu_utilisation": ofCluster, "stranded_share": ofCluster,
	"running_jobs": ofCluster,
	"queue_gangs":  ofQueue, "queue_gpus": ofQueue, "queue_wait_s": ofQueue,
}

// folds make one number of a range.
var folds = map[string]func(values []float64) float64{
	"avg": func(v []float64) float64 {
		sum := 0.0
		for _, x := range v {
			sum += x
		}
		return sum / float64(len(v))
	},
	"min": slices.Min[[]float64],
	"max": slices.Max[[]float64],
	"p95": func(v []float64) float64 {
		sorted := slices.Sorted(slices.Values(v))
		return sorted[int(math.Ceil(0.95*float64(len(sorted))))-1]
	},
}

// every stands for all names, in QueryMultiple.
const every = "*"

// query is what a policy asks for: [FOLD_]METRIC[/NAME].
type query struct {
	fold, metric, name string
}

// parse reads a query. Its errors say what there is.
func parse(text string) (query, error) {
	head, name, named := strings.Cut(strings.TrimSpace(text), "/")
	q := query{metric: head, name: name}
	if fold, rest, found := strings.Cut(head, "_"); found && folds[fold] != nil {
		q.fold, q.metric = fold, rest
	}
	of, known := metrics[q.metric]
	switch {
	case !known:
		return q, fmt.Errorf("query is %q: want [FOLD_]METRIC[/NAME] with FOLD one of %s and METRIC one of %s", text, keys(folds), keys(metrics))
	case of == ofPool && name == "":
		return q, fmt.Errorf("query is %q: want a pool's name, as in %s/NAME", text, head)
	case of == ofCluster && named:
		return q, fmt.Errorf("query is %q: want %s alone: it is of the whole cluster", text, head)
	case of == ofQueue && named && name == "":
		return q, fmt.Errorf("query is %q: want a queue's path after the slash, or none of both", text)
	}
	return q, nil
}

func keys[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

// key is where a sample has the value of a metric.
func key(metric, name string) string {
	if name == "" {
		return metric
	}
	return metric + "/" + name
}

// apply folds a range, if it is to be.
func (q query) apply(series sdk.TimestampedMetrics) sdk.TimestampedMetrics {
	if q.fold == "" || len(series) == 0 {
		return series
	}
	values := make([]float64, len(series))
	for i, m := range series {
		values[i] = m.Value
	}
	return sdk.TimestampedMetrics{{Timestamp: series[len(series)-1].Timestamp, Value: folds[q.fold](values)}}
}
