package devrun

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/autoscaler/pool"
	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// The gangs that the scenario submits: one that keeps most of the cluster for long,
// one that cannot wait for it, and one that cannot wait and has no money.
const (
	homeKeeper = "keeper"
	urgentGang = "urgent"
	poorGang   = "poor"
)

// urgentBudget is what the gang may spend that is bought for.
const urgentBudget = 50

// bursts sets the planner up to buy, and to give back soon.
func bursts(cfg *config.Config) {
	src, err := burstFiles.ReadFile("burst/pools.hcl")
	if err != nil {
		panic(err) // it is part of this program
	}
	if cfg.Burst.Pools, err = pool.Parse(src, "pools.hcl"); err != nil {
		panic(err)
	}
	cfg.Policy.Burst = burst.Policy{
		Margin: time.Second, Safety: 1, Restart: time.Second, Idle: 2 * time.Second, Lead: time.Second, CoolDown: time.Second,
	}
}

// due gives a job a run time, a deadline and a budget.
func due(runs, deadline string, budget float64) edit {
	return func(j *api.Job) {
		j.SetMeta("caravan_duration", runs)
		if deadline != "" {
			j.SetMeta("caravan_deadline", deadline)
			j.SetMeta("caravan_burst", "allow")
			j.SetMeta("caravan_budget", fmt.Sprint(budget))
		}
	}
}

// playBurst fills the cluster for hours and submits a gang that has minutes. Nodes
// are bought for it, and given back when it has ended.
func (r *run) playBurst(ctx context.Context) error {
	if err := r.startCloud(ctx); err != nil {
		return err
	}
	if err := r.startWhole(ctx, homeKeeper, trainGangFile, due("10h", "", 0)); err != nil {
		return err
	}
	began := time.Now()
	if _, err := r.submit(trainGangFile, named(urgentGang), due("5m", "20m", urgentBudget)); err != nil {
		return err
	}
	if err := r.awaitPurchase(ctx); err != nil {
		return r.because(urgentGang, err)
	}
	if err := r.waitWhole(ctx, urgentGang); err != nil {
		return err
	}
	if err := r.judgeBought(ctx); err != nil {
		return err
	}
	if err := r.playPoor(ctx); err != nil {
		return err
	}
	if err := r.stopJob(urgentGang); err != nil {
		return err
	}
	if err := r.awaitGivenBack(ctx); err != nil {
		return err
	}
	return r.checkBill(ctx, time.Since(began))
}

// awaitPurchase waits until the planner has decided to buy.
func (r *run) awaitPurchase(ctx context.Context) error {
	return poll(ctx, "nodes are bought for "+urgentGang, func() (bool, error) {
		p, err := r.pool(ctx)
		if err != nil || len(p.Purchases) == 0 {
			return false, err
		}
		b := p.Purchases[0]
		r.step("planner", fmt.Sprintf("buys %d nodes for %s at %.2f %s an hour each: %s", b.Nodes, b.Gang, b.PricePerNodeHour, p.Currency, b.Why))
		var faults []string
		if b.Gang != api.DefaultNamespace+"/"+urgentGang || b.Nodes != 2 || len(b.Names) != 2 || len(p.Purchases) != 1 {
			faults = append(faults, fmt.Sprintf("the purchases are %+v", p.Purchases))
		}
		r.report.Checks = append(r.report.Checks, result("bought:"+urgentGang, faults, "the nodes of the whole gang were bought at once: "+b.Why))
		return true, nil
	})
}

// pool is what is wanted of the pool.
func (r *run) pool(ctx context.Context) (burstapi.Pool, error) {
	a, err := r.planner.api.Burst(ctx)
	switch {
	case err != nil:
		return burstapi.Pool{}, err
	case !a.Leader:
		return burstapi.Pool{}, fmt.Errorf("the planner is not sure: %s", a.Why)
	case len(a.Pools) != 1:
		return burstapi.Pool{}, fmt.Errorf("there are %d pools", len(a.Pools))
	}
	return a.Pools[0], nil
}

// judgeBought judges the gang on the bought nodes.
func (r *run) judgeBought(ctx context.Context) error {
	if err := r.learnNodes(r.cluster.Client()); err != nil {
		return err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	var faults, on []string
	purchases := map[string]bool{}
	for _, m := range seen.members(urgentGang) {
		node, _, err := r.cluster.Client().Nodes().Info(m.node, nil)
		if err != nil {
			return fmt.Errorf("read node %s: %w", m.node, err)
		}
		on = append(on, node.Name)
		if purchase := node.Meta[burstapi.MetaPurchase]; purchase == "" {
			faults = append(faults, fmt.Sprintf("a member is on %s, which was not bought", node.Name))
		} else {
			purchases[purchase] = true
		}
	}
	if len(purchases) > 1 {
		faults = append(faults, fmt.Sprintf("it is on the nodes of several purchases: %v", slices.Sorted(maps.Keys(purchases))))
	}
	r.report.Checks = append(r.report.Checks, result("whole-on-bought:"+urgentGang, faults, "it runs whole on "+strings.Join(on, " and ")))
	return r.judgeNow(ctx, urgentGang)
}

// playPoor submits a gang that is as urgent, and whose budget is too small.
func (r *run) playPoor(ctx context.Context) error {
	if _, err := r.submit(trainGangFile, named(poorGang), due("5m", "20m", 1)); err != nil {
		return err
	}
	err := poll(ctx, "the planner has said that the budget is too small", func() (bool, error) {
		e, err := r.planner.api.Explain(ctx, api.DefaultNamespace, poorGang)
		if err != nil || e.Action != model.ActionWait || !strings.Contains(e.Reason, "budget") {
			return false, fmt.Errorf("it says %s: %s (%w)", e.Action, e.Reason, err)
		}
		r.step(poorGang, "waits: "+e.Reason)
		return true, nil
	})
	if err != nil {
		return err
	}
	p, err := r.pool(ctx)
	if err != nil {
		return err
	}
	var faults []string
	for _, b := range p.Purchases {
		if b.Gang == api.DefaultNamespace+"/"+poorGang {
			faults = append(faults, fmt.Sprintf("%d nodes were bought for it", b.Nodes))
		}
	}
	r.report.Checks = append(r.report.Checks, result("queued:"+poorGang, faults, "nothing was bought for it, and it is told that its budget does not suffice"))
	return r.stopJob(poorGang)
}

// awaitGivenBack waits until nothing is left of what was bought: not for the planner,
// not in Nomad, and not for Terraform.
func (r *run) awaitGivenBack(ctx context.Context) error {
	err := poll(ctx, "the pool is empty again", func() (bool, error) {
		p, err := r.pool(ctx)
		if err != nil {
			return false, err
		}
		made, err := r.cloud.made()
		if err != nil {
			return false, err
		}
		stubs, _, err := r.cluster.Client().Nodes().List(nil)
		if err != nil {
			return false, fmt.Errorf("read nodes: %w", err)
		}
		lives := slices.DeleteFunc(stubs, func(n *api.NodeListStub) bool {
			return slices.Contains(nodeNames, n.Name) || n.Status == api.NodeStatusDown
		})
		if p.Wanted+len(made)+len(lives) > 0 {
			return false, fmt.Errorf("%d nodes are wanted, Terraform has %v, %d live in Nomad: %s", p.Wanted, made, len(lives), p.Why)
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	r.step("autoscaler", "has given back all nodes")
	r.report.Checks = append(r.report.Checks, result("given-back", nil, "nothing is left of what was bought: not in the plan, in Nomad, or in Terraform's state"))
	return nil
}

// checkBill checks what the gang has cost: its nodes were paid for some of the time
// that all of it took, and its budget was kept.
func (r *run) checkBill(ctx context.Context, took time.Duration) error {
	p, err := r.pool(ctx)
	if err != nil {
		return err
	}
	most := min(urgentBudget, 2*p.PricePerNodeHour*took.Hours())
	return poll(ctx, "the bill is there", func() (bool, error) {
		s, err := r.planner.api.Snapshot(ctx)
		if err != nil {
			return false, err
		}
		for _, spent := range s.Burst.Spent {
			if spent.For.ID != urgentGang {
				continue
			}
			var faults []string
			if spent.Amount <= 0 || spent.Amount > most {
				faults = append(faults, fmt.Sprintf("it cost %.2f, and could cost %.2f at most", spent.Amount, most))
			}
			text := fmt.Sprintf("%s cost %.2f %s of the %d that it may spend", urgentGang, spent.Amount, p.Currency, urgentBudget)
			r.step("planner", text)
			r.report.Checks = append(r.report.Checks, result("bill", faults, text))
			return true, nil
		}
		return false, fmt.Errorf("nothing is known of what %s cost", urgentGang)
	})
}
