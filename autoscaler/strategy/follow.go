package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad-autoscaler/sdk"

	"github.com/caravan-sched/caravan/planner/burstapi"
)

// limits are what a policy allows at most, whatever the planner wants; 0 is no limit.
type limits struct {
	// step is how many nodes are bought in one evaluation.
	step int
	// price is what all nodes of the pool may cost in an hour together.
	price float64
}

// verdict is what an evaluation comes to.
type verdict struct {
	direction sdk.ScaleDirection
	count     int
	// buy are the purchases that are made now, held says why others are not.
	buy    []burstapi.Purchase
	held   []string
	giving []burstapi.GiveBack
	reason string
}

// follow says which count makes the target do what the planner wants: of what is
// not ordered yet whole purchases only, in the planner's order, and of those only
// what the limits allow. count is how many nodes are ready by the target's word.
// It is pure.
func follow(p burstapi.Pool, count int, l limits, down bool) verdict {
	v := verdict{count: count, giving: p.GiveBack}
	leaving := map[string]bool{}
	for _, g := range p.GiveBack {
		leaving[g.Name] = true
	}
	wanted, price := 0, 0.0
	for _, b := range p.Purchases {
		if b.State == burstapi.Coming || b.State == burstapi.Present {
			n := staying(b, leaving)
			wanted, price = wanted+n, price+float64(n)*b.PricePerNodeHour
		}
	}
	for _, name := range p.GiveBack { // paid for until they are gone
		price += priceOf(p, name.Name)
	}
	fresh := 0
	for _, b := range p.Purchases {
		if b.State != burstapi.Wanted {
			continue
		}
		cost := float64(len(b.Names)) * b.PricePerNodeHour
		if why := l.refuse(b, fresh, price, cost, p.Currency); why != "" {
			v.held = append(v.held, why)
			continue
		}
		fresh, price = fresh+len(b.Names), price+cost
		v.buy = append(v.buy, b)
	}
	v.aim(wanted, fresh, down)
	v.reason = v.words(p, count)
	return v
}

// aim sets the count. The autoscaler calls the target only for a count that is not
// the present one, so a pool in which as many come as go is asked for all of them
// first; down asks for those that go instead.
func (v *verdict) aim(wanted, fresh int, down bool) {
	have := v.count
	switch {
	case fresh > 0 && (!down || len(v.giving) == 0):
		v.direction, v.count = sdk.ScaleDirectionUp, max(wanted+fresh, have+fresh)
	case wanted > have && len(v.giving) == 0:
		v.direction, v.count = sdk.ScaleDirectionUp, wanted
	case wanted < have:
		v.direction, v.count = sdk.ScaleDirectionDown, wanted
	case len(v.giving) > 0 && have > 0:
		v.direction, v.count = sdk.ScaleDirectionDown, max(have-len(v.giving), 0)
	default:
		v.direction = sdk.ScaleDirectionNone
	}
}

// refuse says why a purchase is not made now.
func (l limits) refuse(b burstapi.Purchase, fresh int, price, cost float64, currency string) string {
	if l.step > 0 && fresh+len(b.Names) > l.step {
		if len(b.Names) > l.step {
			return fmt.Sprintf("purchase %s for %s needs %d nodes at once, and %s is %d: raise it, or give the gang a smaller max", b.ID, b.Gang, len(b.Names), KeyMaxScaleUp, l.step)
		}
		return fmt.Sprintf("purchase %s for %s waits for the next evaluation: with it %d nodes were bought in this one, and %s is %d", b.ID, b.Gang, fresh+len(b.Names), KeyMaxScaleUp, l.step)
	}
	if l.price > 0 && price+cost > l.price {
		return fmt.Sprintf("purchase %s for %s is not made: the pool would cost %.2f %s an hour, and %s is %.2f", b.ID, b.Gang, price+cost, currency, KeyMaxPrice, l.price)
	}
	return ""
}

// staying counts the nodes of a purchase that are not given back.
func staying(b burstapi.Purchase, leaving map[string]bool) int {
	n := 0
	for _, name := range b.Names {
		if !leaving[name] {
			n++
		}
	}
	return n
}

// priceOf is what a node costs in an hour.
func priceOf(p burstapi.Pool, name string) float64 {
	for _, b := range p.Purchases {
		if slices.Contains(b.Names, name) {
			return b.PricePerNodeHour
		}
	}
	return p.PricePerNodeHour
}

// words say what is done and why, with the planner's arithmetic.
func (v *verdict) words(p burstapi.Pool, have int) string {
	var parts []string
	for _, b := range v.buy {
		parts = append(parts, fmt.Sprintf("buy %d nodes (%s, %.2f %s an hour each, about %.2f in all) for %s: %s",
			len(b.Names), b.Market, b.PricePerNodeHour, p.Currency, b.CostEstimate, b.Gang, b.Why))
	}
	for _, g := range v.giving {
		parts = append(parts, fmt.Sprintf("give back %s: %s", g.Name, g.Why))
	}
	parts = append(parts, v.held...)
	if len(parts) == 0 {
		switch v.direction {
		case sdk.ScaleDirectionUp:
			parts = append(parts, fmt.Sprintf("%d nodes are wanted and %d are ready: %s", v.count, have, p.Why))
		case sdk.ScaleDirectionDown:
			parts = append(parts, fmt.Sprintf("%d nodes are ready and %d are wanted: %s", have, v.count, p.Why))
		default:
			parts = append(parts, p.Why)
		}
	}
	return strings.Join(parts, "; ")
}
