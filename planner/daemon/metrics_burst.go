package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// burstMetrics are about nodes that are bought.
type burstMetrics struct {
	nodes    *prometheus.GaugeVec
	price    *prometheus.GaugeVec
	spend    *prometheus.GaugeVec
	outcomes *prometheus.CounterVec
}

// outcomeDecided is a purchase that was decided; the others are what is reported.
const outcomeDecided = "decided"

func newBurstMetrics(registry *prometheus.Registry) burstMetrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "caravan", Name: name, Help: help}, labels)
	}
	m := burstMetrics{
		nodes: gauge("burst_nodes", "Nodes of a pool: wanted, present, coming, leaving, in_doubt.", "pool", "state"),
		price: gauge("burst_price_per_hour", "What the nodes wanted of a pool cost in an hour.", "pool"),
		spend: gauge("burst_spent", "What the purchases of a pool that are not over have cost.", "pool"),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "caravan", Name: "burst_purchases_total",
			Help: "Purchases by outcome: decided, ordered, present, gone, and failed with its reason."}, []string{"pool", "outcome"}),
	}
	registry.MustRegister(m.nodes, m.price, m.spend, m.outcomes)
	return m
}

// burst shows what is wanted of the pools, and how many nodes of each are in doubt; a
// pool that is gone is not shown any more.
func (m *burstMetrics) burst(b *model.Burst, d *model.Demand, doubts map[string]int) {
	m.nodes.Reset()
	m.price.Reset()
	m.spend.Reset()
	if d == nil {
		return
	}
	for i := range d.Pools {
		p := &d.Pools[i]
		m.nodes.WithLabelValues(p.Name, "wanted").Set(float64(p.Wanted))
		m.nodes.WithLabelValues(p.Name, "present").Set(float64(p.Present))
		m.nodes.WithLabelValues(p.Name, "coming").Set(float64(p.Coming))
		m.nodes.WithLabelValues(p.Name, "leaving").Set(float64(p.Leaving))
		m.nodes.WithLabelValues(p.Name, "in_doubt").Set(float64(doubts[p.Name]))
		m.price.WithLabelValues(p.Name).Set(p.PricePerHour)
		m.spend.WithLabelValues(p.Name).Set(0)
	}
	for i := range b.Bought {
		m.spend.WithLabelValues(b.Bought[i].Pool).Add(b.Bought[i].Spent)
	}
	for i := range d.Buy {
		m.outcomes.WithLabelValues(d.Buy[i].Pool, outcomeDecided).Inc()
	}
}

// reported counts what a target says.
func (m *burstMetrics) reported(r *burstapi.Report) {
	outcome := string(r.Kind)
	if r.Reason != "" {
		outcome += "_" + string(r.Reason)
	}
	m.outcomes.WithLabelValues(r.Pool, outcome).Inc()
}
