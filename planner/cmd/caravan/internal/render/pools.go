package render

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Pools writes what is wanted of the pools in which nodes can be bought.
func Pools(w io.Writer, s Style, a burstapi.Answer) error {
	if len(a.Pools) == 0 {
		text := "No pools."
		if !a.Leader {
			text = "No pools are shown: " + a.Why + "."
		}
		_, err := fmt.Fprintln(w, text)
		return err
	}
	if !a.Leader {
		if _, err := fmt.Fprintln(w, s.paint(yellow, "Nobody is to act on this: "+a.Why+".")); err != nil {
			return err
		}
	}
	pools, purchases, nodes := newGrid("POOL", "WANTED", "READY", "COMING", "NODE/H", "WHY"), newGrid("PURCHASE", "FOR", "NODES", "MARKET", "NODE/H", "EXPECTED", "STATE", "BY", "WHY"), newGrid("NODE", "STATE", "GANG", "BY", "WHY")
	doubts := newGrid("IN DOUBT", "PURCHASE", "SINCE", "WHY")
	for i := range a.Pools {
		p := &a.Pools[i]
		pools.add(p.Name, strconv.Itoa(p.Wanted), strconv.Itoa(p.Present), strconv.Itoa(p.Coming), nodePrice(p), p.Why)
		for k := range p.Purchases {
			o := &p.Purchases[k]
			purchases.add(o.ID, o.Gang, strconv.Itoa(o.Nodes), string(o.Market), price(o.PricePerNodeHour, p.Currency), price(o.CostEstimate, p.Currency), s.state(string(o.State)), moment(o.ExpectBy), o.Why)
		}
		for k := range p.Nodes {
			n := &p.Nodes[k]
			by, why := "-", n.Why
			for _, g := range p.GiveBack {
				if g.Name == n.Name {
					by, why = moment(g.By), g.Why
				}
			}
			nodes.add(n.Name, s.state(string(n.State)), n.Gang, by, why)
		}
		for _, d := range p.InDoubt {
			doubts.add(d.Name, d.Purchase, moment(d.Since), d.Why)
		}
	}
	for _, g := range []*grid{pools, purchases, nodes, doubts} {
		if g.rows == 0 {
			continue
		}
		if g != pools {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := g.write(w, ""); err != nil {
			return err
		}
	}
	return nil
}

// nodePrice is what a node of a pool costs in an hour: what was bought, or else what
// one on demand would.
func nodePrice(p *burstapi.Pool) string {
	var least, most float64
	for i := range p.Purchases {
		switch o := &p.Purchases[i]; {
		case o.State == burstapi.Failed || o.Nodes == 0:
		case least == 0:
			least, most = o.PricePerNodeHour, o.PricePerNodeHour
		default:
			least, most = min(least, o.PricePerNodeHour), max(most, o.PricePerNodeHour)
		}
	}
	switch {
	case least == 0:
		return price(p.PricePerNodeHour, p.Currency)
	case least < most:
		return price(least, "") + " to " + price(most, p.Currency)
	}
	return price(least, p.Currency)
}

// Forgotten writes what was let go of.
func Forgotten(w io.Writer, f burstapi.Forgotten) error {
	names := "all of its nodes were gone"
	if len(f.Names) > 0 {
		names = "its nodes " + strings.Join(f.Names, ", ") + " count as gone"
	}
	cost := "nothing"
	if f.Cost > 0 {
		cost = price(f.Cost, f.Currency)
	}
	text := fmt.Sprintf("Purchase %s of pool %s for %s, %s, is forgotten: %s. It has cost %s.", f.Purchase, f.Pool, f.Gang, f.State, names, cost)
	if len(f.Nodes) > 0 {
		text += " Nomad has nodes of it, which are given back when they do nothing: " + strings.Join(f.Nodes, ", ") + "."
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

func price(x float64, currency string) string {
	if x == 0 {
		return "-"
	}
	return strings.TrimSpace(strconv.FormatFloat(x, 'f', 2, 64) + " " + currency)
}

// maxOffers is how many offers are shown.
const maxOffers = 6

// burst writes the arithmetic by which nodes were bought for a gang, or not.
func burst(w io.Writer, c *model.BurstChoice) error {
	if c == nil || len(c.Offers) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w, "\nNodes that could be bought:"); err != nil {
		return err
	}
	g := newGrid("FROM", "NODES", "READY", "THROUGH", "COST", "AGAINST IT")
	for i := range c.Offers[:min(len(c.Offers), maxOffers)] {
		o := &c.Offers[i]
		from := o.Pool + " " + o.Market
		if o.Shares != "" {
			from = "purchase " + o.Shares
		}
		g.add(from, strconv.Itoa(o.Nodes), moment(o.Start), moment(o.End), price(o.Cost, c.Currency), o.Against)
	}
	return g.write(w, "  ")
}
