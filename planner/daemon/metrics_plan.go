package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// planMetrics are about what plans do to gangs that run, and how queues stand.
type planMetrics struct {
	changes *prometheus.CounterVec
	lost    *prometheus.CounterVec
	queues  *prometheus.GaugeVec
}

// The parts of what a change loses.
const (
	lostWork      = "work"
	lostRestart   = "restart"
	lostPlacement = "placement"
)

func newPlanMetrics(registry *prometheus.Registry) planMetrics {
	m := planMetrics{
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "caravan", Name: "changes_total",
			Help: "Changes of gangs that run, by action: preempt, move, shrink, grow."}, []string{"action"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "caravan", Name: "changes_lost_gpu_seconds_total",
			Help: "GPU-seconds that these changes were expected to lose: work since the last checkpoint, restarts, what the place was worth."}, []string{"part"}),
		queues: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "caravan", Name: "queue_gpus",
			Help: "GPUs of a queue with those below it: guaranteed, used, borrowed, waiting."}, []string{"queue", "use"}),
	}
	for _, action := range []model.Action{model.ActionPreempt, model.ActionMove, model.ActionShrink, model.ActionGrow} {
		m.changes.WithLabelValues(string(action))
	}
	for _, part := range []string{lostWork, lostRestart, lostPlacement} {
		m.lost.WithLabelValues(part)
	}
	registry.MustRegister(m.changes, m.lost, m.queues)
	return m
}

// carried counts the changes of a plan that was carried out.
func (m *planMetrics) carried(plan *model.Plan) {
	for i := range plan.Preemptions {
		m.change(plan.Preemptions[i].Action, plan.Preemptions[i].Cost)
	}
	for i := range plan.Resizes {
		m.change(plan.Resizes[i].Action, plan.Resizes[i].Cost)
	}
}

func (m *planMetrics) change(action model.Action, cost model.Cost) {
	m.changes.WithLabelValues(string(action)).Inc()
	m.lost.WithLabelValues(lostWork).Add(float64(max(0, cost.Lost)))
	m.lost.WithLabelValues(lostRestart).Add(float64(max(0, cost.Restart)))
	m.lost.WithLabelValues(lostPlacement).Add(float64(max(0, cost.Placement)))
}

// stand shows how the queues stand; one that is gone is not shown any more.
func (m *planMetrics) stand(queues []model.QueueUse) {
	m.queues.Reset()
	for i := range queues {
		q := &queues[i]
		m.queues.WithLabelValues(q.Path, "guaranteed").Set(float64(q.Guaranteed[model.ResourceGPU]))
		m.queues.WithLabelValues(q.Path, "used").Set(float64(q.Used[model.ResourceGPU]))
		m.queues.WithLabelValues(q.Path, "borrowed").Set(float64(q.BorrowedGPUs))
		m.queues.WithLabelValues(q.Path, "waiting").Set(float64(q.WaitingGPUs))
	}
}
