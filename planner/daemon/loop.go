package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
)

// The loop's times.
const (
	// idle is the longest time between two looks when nothing happens.
	idle = 30 * time.Second
	// maxRest bounds the rest between two looks while much happens.
	maxRest = time.Second
	// soon is when to look again after somebody else was faster. Their change
	// wakes the planner too; this is for when it came before the last look.
	soon = 500 * time.Millisecond
	// unannounced is how soon to look again at what a job waits for and no watch
	// tells of: Nomad's scheduler configuration cannot be waited on.
	unannounced = 3 * time.Second
	// refreshTimeout is when Nomad counts as not answering.
	refreshTimeout = 60 * time.Second

	minBackoff = 200 * time.Millisecond
	maxBackoff = 15 * time.Second
)

// loop observes and decides until ctx ends.
func (d *Daemon) loop(ctx context.Context) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = minBackoff, maxBackoff
	for ctx.Err() == nil {
		d.urgent.Store(false)
		began := time.Now()
		out, err := d.cycle(ctx)
		now := d.now()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			delay := wait.NextBackOff()
			if d.nomad.set(err, now, now.Add(delay)) {
				d.log.Error("the cluster cannot be observed; nothing is decided", "error", err)
			}
			d.metrics.nomadUp.Set(0)
			// A wake is no reason to hurry to a Nomad that has trouble.
			pause(ctx, delay)
			continue
		}
		if d.nomad.set(nil, now, time.Time{}) {
			d.log.Info("the cluster is observed")
		}
		d.metrics.nomadUp.Set(1)
		if d.trouble.set(out.trouble, now, time.Time{}) && out.trouble != nil {
			d.log.Warn("not everything could be carried out; it is tried again", "error", out.trouble)
		}
		latest := idle
		if !out.due.IsZero() {
			// A moment late is surely not early.
			latest = min(latest, max(out.due.Sub(d.now()), 0)+time.Millisecond)
		}
		if out.overtaken {
			latest = min(latest, soon)
		}
		if out.halted {
			latest = wait.NextBackOff()
		} else {
			wait.Reset()
			if out.changed {
				d.poke(true)
			}
		}
		d.rest(ctx, time.Since(began), latest)
	}
}

// rest waits for the next wake or the next time that something is due. In a
// cluster where much happens it leaves Nomad as much time as the last look
// took, unless somebody waits for an answer.
func (d *Daemon) rest(ctx context.Context, took, latest time.Duration) {
	timer := time.NewTimer(min(latest, d.due()))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
		return
	case <-d.wake:
	}
	quiet := time.NewTimer(min(took, maxRest))
	defer quiet.Stop()
	for !d.urgent.Load() {
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			return
		case <-d.wake:
		}
	}
}

// due is how long nothing is to be done, if nothing happens.
func (d *Daemon) due() time.Duration {
	v := d.view.Load()
	if v == nil {
		return idle
	}
	next := idle
	now := d.now()
	consider := func(t time.Time) {
		if !t.IsZero() && t.After(v.Taken) {
			// A moment late is surely not early.
			next = min(next, max(t.Sub(now), 0)+time.Millisecond)
		}
	}
	consider(v.FenceEnds)
	if v.Snapshot != nil {
		for i := range v.Snapshot.Nodes {
			for _, division := range v.Snapshot.Nodes[i].Divisions {
				consider(division.Again)
			}
		}
		for i := range v.Snapshot.Reservations {
			r := &v.Snapshot.Reservations[i]
			consider(r.From.Add(-r.Lead))
			consider(r.From)
			consider(r.Until)
		}
	}
	for i := range v.Managed {
		m := &v.Managed[i]
		consider(m.Model.RetryAfter)
		if r := m.Record; r != nil && r.Rollout != nil && r.Rollout.Canary.Open() {
			consider(r.Rollout.Canary.RetryAfter)
			consider(r.Rollout.Canary.Deadline)
		}
		if m.Model.Hold != "" && v.PreemptionOn[m.Model.Type] {
			next = min(next, unannounced)
		}
		if m.Record != nil && m.Model.State == model.StateAdmitted {
			consider(m.Record.Deadline)
		}
	}
	return next
}

// cycle is one look: observe, decide, carry out. An error means that there was
// no look at all.
func (d *Daemon) cycle(ctx context.Context) (outcome, error) {
	d.acting.Lock()
	defer d.acting.Unlock()
	began := time.Now()
	if _, leading := d.leads(ctx); leading {
		if err := d.loadKept(ctx); err != nil {
			return outcome{}, err
		}
	}
	v, err := d.refresh(ctx)
	if err != nil {
		return outcome{}, err
	}
	term, leading := d.leads(ctx)
	if !leading {
		term = nil
	}
	gangs := d.updateBarrier(ctx, term, v)
	if !leading {
		d.forgetKept()
		d.metrics.leader.Set(0)
		return outcome{}, nil
	}
	d.metrics.leader.Set(1)
	v, unlearned := d.learn(ctx, v)
	deciding := time.Now()
	plan, err := d.decideOn(v, v.Snapshot)
	d.metrics.decideSeconds.Observe(time.Since(deciding).Seconds())
	if err != nil {
		return outcome{trouble: fmt.Errorf("decide: %w", err), halted: true}, nil
	}
	out := outcome{plan: plan}
	if !d.cfg.ObserveOnly {
		out = d.carryOut(ctx, term, v, plan)
	}
	d.metrics.burst(&v.Snapshot.Burst, plan.Demand, d.bursts.doubts())
	d.queues.noteApart(plan.Reservations)
	out.trouble = errors.Join(out.trouble, unlearned, d.queues.note(ctx, v.Taken, plan.Queues, !d.cfg.ObserveOnly))
	if gangs != nil {
		out.trouble = errors.Join(out.trouble, gangs)
		if again := d.now().Add(gangsRest); out.due.IsZero() || again.Before(out.due) {
			out.due = again
		}
	}
	d.remember(v, out)
	d.metrics.cycleSeconds.Observe(time.Since(began).Seconds())
	return out, nil
}

// loadKept reads what is kept in Nomad and decided with, once in a term.
func (d *Daemon) loadKept(ctx context.Context) error {
	if err := d.loadSettings(ctx); err != nil {
		return err
	}
	return errors.Join(d.queues.load(ctx), d.learner.load(ctx), d.bursts.load(ctx))
}

// forgetKept forgets what only a planner that leads may go by: another one
// writes it now.
func (d *Daemon) forgetKept() {
	d.queues.forget()
	d.speeds.forget()
	d.sharing.forget()
	d.learner.forget()
	d.settings.forget()
	d.keeper.forget()
	d.divisions.forget()
	d.bursts.forget()
}

// learn returns the view with what is known of how jobs work and share GPUs, and
// of GPUs that are being divided. Without what cannot be read, which the error
// says, decisions are as good as they were.
func (d *Daemon) learn(ctx context.Context, v *observe.View) (*observe.View, error) {
	works := d.barrier.Works()
	err := errors.Join(d.speeds.load(ctx), d.sharing.load(ctx))
	learned := d.speeds.learn(withWork(v, works), works, d.now())
	learned = d.divisions.mark(d.sharing.learn(learned, d.now()))
	if learned != v {
		d.view.Store(learned)
	}
	return learned, err
}

// carryOut does what the plan says, and saves what was learned.
func (d *Daemon) carryOut(ctx, term context.Context, v *observe.View, plan *model.Plan) outcome {
	out := d.carry.Execute(term, v, plan)
	d.divisions.want(v, plan.Repartitions, d.now())
	for _, p := range plan.Repartitions {
		d.log.Info("divides a GPU", "node", p.Node, "gpu", p.GPU, "for", p.For.ID, "reason", p.Reason)
	}
	out.trouble = errors.Join(out.trouble, d.speeds.save(ctx, d.now()), d.sharing.save(ctx, d.now()), d.learner.save(ctx, v.Taken))
	if v.Blind() == "" {
		out.trouble = errors.Join(out.trouble, d.bursts.carry(term, v, plan, v.Taken))
	}
	return out
}

func (d *Daemon) refresh(ctx context.Context) (*observe.View, error) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	began := time.Now()
	v, err := d.observe.Refresh(ctx)
	if err != nil {
		d.metrics.observeErrors.Inc()
		return nil, err
	}
	d.metrics.observeSeconds.Observe(time.Since(began).Seconds())
	d.metrics.count(httpapi.CountCluster(v), len(v.Warnings))
	d.view.Store(v)
	return v, nil
}

// remember keeps the plan for those who ask, and counts what is new in it.
func (d *Daemon) remember(v *observe.View, out outcome) {
	d.metrics.applyErrors.Add(float64(len(out.problems)))
	plan := out.plan
	var fresh []model.Decision
	for _, decision := range plan.Decisions {
		old, ok, _ := d.decisions.get(decision.Namespace, decision.Job)
		if ok && old.decision.Action == decision.Action && old.decision.Reason == decision.Reason {
			continue
		}
		fresh = append(fresh, decision)
		d.log.Info("decided", "namespace", decision.Namespace, "job", decision.Job, "action", decision.Action, "reason", decision.Reason)
		if m, ok := v.Job(decision.Namespace, decision.Job); ok && decision.Action == model.ActionAdmit {
			d.metrics.waitSeconds.Observe(v.Taken.Sub(m.Model.Submitted).Seconds())
		}
	}
	for _, p := range plan.Preemptions {
		d.log.Info("preempted", "namespace", p.Namespace, "job", p.Job, "for", p.For.ID, "reason", p.Reason)
	}
	if plan.Demand != nil {
		for _, p := range plan.Demand.Buy {
			d.log.Info("buys nodes", "pool", p.Pool, "nodes", p.Nodes, "market", p.Market, "for", p.For.ID, "purchase", p.ID, "reason", p.Why)
		}
	}
	for _, r := range plan.Resizes {
		d.log.Info("resized", "namespace", r.Namespace, "job", r.Job, "action", r.Action, "from", r.From, "to", r.To, "reason", r.Reason)
	}
	d.metrics.plan(fresh)
	d.metrics.stand(plan.Queues)
	if !d.cfg.ObserveOnly {
		d.metrics.carried(plan)
	}
	d.decisions.record(v, plan, out.problems)
}
