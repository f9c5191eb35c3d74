package daemon

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// metrics are the planner's, in a registry of its own.
type metrics struct {
	registry *prometheus.Registry
	planMetrics
	burstMetrics

	decisions      *prometheus.CounterVec
	decideSeconds  prometheus.Histogram
	observeSeconds prometheus.Histogram
	cycleSeconds   prometheus.Histogram
	waitSeconds    prometheus.Histogram
	observeErrors  prometheus.Counter
	applyErrors    prometheus.Counter
	diverged       prometheus.Counter
	leader         prometheus.Gauge
	nomadUp        prometheus.Gauge
	jobs           *prometheus.GaugeVec
	gpus           *prometheus.GaugeVec
	nodes          prometheus.Gauge
	warnings       prometheus.Gauge

	gangStarts     prometheus.Counter
	startSpread    prometheus.Histogram
	barrierSeconds prometheus.Histogram
	memberFailures *prometheus.CounterVec
}

// causePreflight is the cause of a failure that a member's preflight has found,
// beside those that the barrier knows.
const causePreflight = "preflight"

func newMetrics() *metrics {
	seconds := prometheus.ExponentialBuckets(0.0001, 4, 10) // 0.1 ms to 26 s
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "caravan", Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "caravan", Name: name, Help: help})
	}
	gauges := func(name, help, label string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "caravan", Name: name, Help: help}, []string{label})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "caravan", Name: name, Help: help, Buckets: buckets})
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "caravan", Name: "decisions_total",
			Help: "Decisions made, by action and by the code of their reason."}, []string{"action", "code"}),
		decideSeconds:  histogram("decide_seconds", "Time to decide on one snapshot.", seconds),
		observeSeconds: histogram("observe_seconds", "Time to read what changed in Nomad.", seconds),
		cycleSeconds:   histogram("cycle_seconds", "Time to observe, decide and carry out.", seconds),
		waitSeconds: histogram("queue_wait_seconds", "Time from submission to admission.",
			prometheus.ExponentialBuckets(0.1, 4, 12)), // 0.1 s to 5 days
		observeErrors: counter("observe_errors_total", "Readings of Nomad that failed."),
		applyErrors:   counter("apply_errors_total", "Steps in Nomad that failed."),
		diverged:      counter("decide_diverged_total", "Plans that were made from what had changed and were not those that everything comes to."),
		leader:        gauge("leader", "1 on the planner that decides."),
		nomadUp:       gauge("nomad_up", "1 while Nomad can be read."),
		jobs:          gauges("jobs", "Managed jobs by state.", "state"),
		gpus:          gauges("gpus", "Managed GPUs by use.", "use"),
		nodes:         gauge("nodes", "Nodes with managed GPUs."),
		warnings:      gauge("warnings", "Faults that an operator should see."),
		gangStarts:    counter("gang_starts_total", "Common starts of gangs at the barrier."),
		startSpread: histogram("gang_start_spread_seconds", "Time from a gang's common start until the last member was told of it; 0 if all were before.",
			prometheus.ExponentialBuckets(0.01, 4, 7)), // 10 ms to 41 s
		barrierSeconds: histogram("barrier_seconds", "Time from the first member at the barrier until all had joined.",
			prometheus.ExponentialBuckets(0.1, 4, 9)), // 0.1 s to 2 h
		memberFailures: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "caravan", Name: "member_failures_total",
			Help: "Members of gangs that failed first, by cause."}, []string{"cause"}),
	}
	for _, cause := range append(slices.Clone(barrier.Causes), causePreflight) {
		m.memberFailures.WithLabelValues(cause)
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.decisions, m.decideSeconds, m.observeSeconds, m.cycleSeconds, m.waitSeconds, m.observeErrors, m.applyErrors, m.diverged,
		m.leader, m.nomadUp, m.jobs, m.gpus, m.nodes, m.warnings,
		m.gangStarts, m.startSpread, m.barrierSeconds, m.memberFailures,
	)
	m.planMetrics = newPlanMetrics(m.registry)
	m.burstMetrics = newBurstMetrics(m.registry)
	return m
}

// waitingMembers shows how many members wait at the barrier.
func (m *metrics) waitingMembers(waiting func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "caravan", Name: "barrier_waiting_members",
		Help: "Members that wait at the barrier."}, func() float64 { return float64(waiting()) }))
}

// watch counts what happens at the barrier, and passes on which gangs have
// failed for good.
func (m *metrics) watch(over func(barrier.Over)) barrier.Watch {
	return barrier.Watch{
		Started: func(_ int, waited time.Duration) {
			m.gangStarts.Inc()
			m.barrierSeconds.Observe(waited.Seconds())
		},
		Told:   func(spread time.Duration) { m.startSpread.Observe(spread.Seconds()) },
		Failed: func(cause string) { m.memberFailures.WithLabelValues(cause).Inc() },
		Over:   over,
	}
}

// count shows the cluster's numbers.
func (m *metrics) count(c httpapi.Counts, warnings int) {
	m.nodes.Set(float64(c.Nodes))
	m.gpus.WithLabelValues("free").Set(float64(c.FreeGPUs))
	m.gpus.WithLabelValues("unhealthy").Set(float64(c.UnhealthyGPUs))
	m.gpus.WithLabelValues("used").Set(float64(c.UsedGPUs))
	m.jobs.WithLabelValues(string(model.StateQueued)).Set(float64(c.Queued))
	m.jobs.WithLabelValues(string(model.StateAdmitted)).Set(float64(c.Admitted))
	m.jobs.WithLabelValues(string(model.StateRunning)).Set(float64(c.Running))
	m.warnings.Set(float64(warnings))
}

// plan counts decisions. A job that goes on waiting is not counted anew at
// every look.
func (m *metrics) plan(fresh []model.Decision) {
	for _, d := range fresh {
		m.decisions.WithLabelValues(string(d.Action), d.Detail.Code).Inc()
	}
}
