package burst

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Gang is a gang that waits.
type Gang struct {
	GPUs int
	// Mode is one of the Burst constants of package model.
	Mode string
	// Work is how long it runs still where Speed is 1, Total in all; 0: nobody knows.
	Work, Total time.Duration
	// Checkpoint is how often it makes one; 0: it makes none.
	Checkpoint time.Duration
	// Waited is how long it has waited, and Since how long ago it was submitted.
	Waited, Since time.Duration
	// HomeKnown: it starts at HomeStart on what there is, and is through at HomeEnd.
	HomeKnown          bool
	HomeStart, HomeEnd time.Duration
	// HasDeadline: it has until Deadline, which may be over.
	HasDeadline bool
	Deadline    time.Duration
	// Budget is what may still be spent on it; below 0: there is no limit. BudgetOf
	// says whose it is.
	Budget   float64
	BudgetOf string
	// Currency is for people, and so is Now: what is told names times and not how far
	// off they are, so that it stays the same while nothing changes.
	Currency string
	Now      time.Time
}

// at tells a time.
func (g *Gang) at(d time.Duration) string {
	if d >= never/2 {
		return "never"
	}
	return g.Now.Add(d).UTC().Format("Jan 2 15:04 UTC")
}

// Offer is one way to get nodes.
type Offer struct {
	Pool, Market string
	Nodes        int
	// Price is for a node and hour.
	Price float64
	// Boot is how long it takes until they are ready, and Transfer until what it
	// reads is there too.
	Boot, Transfer     time.Duration
	MinBilling, Period time.Duration
	Lifetime           time.Duration
	Speed              float64
	Moving             float64
	CarbonPerNodeHour  float64
	Shares             string
	// After: those who have them are to be through by then, as it is estimated.
	After bool
	// Cools is for how long nothing is bought there for whoever has the time, since
	// nodes were given back just now.
	Cools time.Duration
	// Against says why it cannot be had; empty: it can.
	Against string
}

// Valued is an offer with its arithmetic.
type Valued struct {
	Offer
	// Start and End are when the gang starts, and is through as expected; Late is
	// when it is through at the latest that is reckoned with, and Early if it takes
	// as little as is hoped for where that is too late.
	Start, End, Late, Early time.Duration
	// Hoped: it is taken, if at all, in the hope that the gang runs for less than that.
	Hoped        bool
	Cost, Carbon float64
	Against      string
}

// Choice is what is done for a gang.
type Choice struct {
	// Buy: the first of Offers is taken.
	Buy    bool
	Offers []Valued
	Why    string
	// Again is after what time the answer may be another one; 0: nobody knows.
	Again time.Duration
}

// NoOffer is a Choice's Why where there is nothing to choose from.
const NoOffer = "no pool has nodes that it would fit on"

// Choose decides whether a gang waits for what there is or gets nodes of its own,
// and which.
func Choose(g Gang, offers []Offer, p Policy) Choice {
	p = p.WithDefaults()
	var c Choice
	switch {
	case g.Mode != model.BurstAllow && g.Mode != model.BurstOnly:
		c.Why = "no nodes are bought for it: caravan_burst is never, or its queue's or the policy's default is"
		return c
	case g.Work <= 0:
		c.Why = "no nodes are bought for it, since nobody says how long it runs; set caravan_duration"
		return c
	case len(offers) == 0:
		c.Why = NoOffer
		return c
	}
	for i := range offers {
		c.Offers = append(c.Offers, value(&g, &offers[i], &p))
	}
	hopes := hope(&g, &p, c.Offers)
	wants, why, again := wanted(&g, c.Offers, &p)
	if !wants {
		c.rank(&p)
		c.Why, c.Again = why, again
		return c
	}
	spotAway := noSpot(c.Offers)
	for i := range c.Offers {
		judge(&g, &c.Offers[i], &p, c.Offers, spotAway, hopes)
	}
	c.rank(&p)
	best := &c.Offers[0]
	if best.Against != "" {
		c.Why = fmt.Sprintf("%s, but nothing can be bought: %s", why, against(c.Offers))
		return c
	}
	c.Buy, c.Why = true, fmt.Sprintf("%s; %s%s", why, best.text(&g), best.hoped(&g, &p))
	if best.Shares != "" {
		c.Buy = false
	}
	return c
}

// value reckons what an offer comes to.
func value(g *Gang, o *Offer, p *Policy) Valued {
	v := Valued{Offer: *o, Against: o.Against}
	work := scale(g.Work, 1/o.Speed)
	took := work
	if o.Market == model.MarketSpot {
		took = Expected(work, g.Checkpoint, p.Restart+o.Boot, o.Lifetime, o.Nodes)
	}
	v.Start = plus(o.Boot, o.Transfer)
	v.End, v.Late, v.Early = plus(v.Start, took), plus(v.Start, scale(took, p.Safety)), plus(v.Start, scale(took, p.Hope))
	there := v.End
	if o.Shares != "" {
		there = took // before that they are paid for anyway
		v.Cost = Bill(o.Nodes, o.Price, there, 0, o.Period) + o.Moving
	} else {
		v.Cost = Bill(o.Nodes, o.Price, there, o.MinBilling, o.Period) + o.Moving
	}
	v.Carbon = o.CarbonPerNodeHour * float64(o.Nodes) * there.Hours()
	return v
}

// wanted says whether anything is worth a price to a gang, and why or why not.
func wanted(g *Gang, offers []Valued, p *Policy) (yes bool, why string, again time.Duration) {
	if g.Mode == model.BurstOnly {
		return true, "it runs on bought nodes only", 0
	}
	if g.urgent() {
		switch latest := latestBuy(g, offers, p); {
		case g.HomeKnown && plus(g.HomeEnd, p.Margin) <= g.Deadline:
			return false, fmt.Sprintf("it is through here at %s, in time for its deadline at %s: nothing is bought", g.at(g.HomeEnd), g.at(g.Deadline)), 0
		case g.HomeKnown:
			return true, fmt.Sprintf("here it is through at %s, too late for its deadline at %s", g.at(g.HomeEnd), g.at(g.Deadline)), 0
		case latest > p.Ahead:
			return false, fmt.Sprintf("nobody knows when it starts here; for its deadline at %s it is early enough to buy at %s", g.at(g.Deadline), g.at(latest-p.Ahead)), latest - p.Ahead
		}
		return true, fmt.Sprintf("nobody knows when it starts here, and its deadline is at %s", g.at(g.Deadline)), 0
	}
	over := ""
	if g.HasDeadline {
		over = fmt.Sprintf("its deadline was at %s, which no price can mend; ", g.at(g.Deadline))
	}
	if p.WaitOver <= 0 {
		return false, over + "it has no deadline that nodes are bought for, and no wait is worth a price (burst.wait)", 0
	}
	limit := p.mayWait(g)
	boot := soonest(offers)
	waits, told := plus(g.Waited, boot), fmt.Sprintf("waits until nobody knows when, nodes would be ready in %s", span(boot))
	if g.HomeKnown {
		waits = plus(g.Waited, g.HomeStart)
		told = fmt.Sprintf("will have waited for %s", span(waits))
	}
	if waits <= limit {
		if !g.HomeKnown {
			again = limit - waits
		}
		return false, fmt.Sprintf("%sit %s, and with %s it may wait for %s, until %s", over, told, gpus(g.GPUs), span(limit), g.at(limit-g.Waited)), again
	}
	return true, fmt.Sprintf("%sit %s, more than the %s that it may with %s", over, told, span(limit), gpus(g.GPUs)), 0
}

// surer reports whether other nodes can be bought, within the budget, that a gang has
// sooner than those of an offer, or at a time that is not an estimate.
func surer(g *Gang, v *Valued, all []Valued) bool {
	return slices.ContainsFunc(all, func(o Valued) bool {
		return o.Shares == "" && o.Offer.Against == "" && (v.After || o.Start < v.Start) && (g.Budget < 0 || o.Cost <= g.Budget)
	})
}

// noSpot reports whether there would be spot nodes, but none can be had now.
func noSpot(offers []Valued) bool {
	away := false
	for i := range offers {
		if o := &offers[i]; o.Market == model.MarketSpot && o.Shares == "" {
			if o.Against == "" {
				return false
			}
			away = true
		}
	}
	return away
}

// judge says what speaks against an offer.
func judge(g *Gang, v *Valued, p *Policy, all []Valued, spotAway, hopes bool) {
	progress := Progress{Total: g.Total, Left: scale(g.Work, p.Safety/v.Speed), Since: g.Since, Rest: g.Deadline - p.Margin, Change: plus(v.Start, p.Restart)}
	if hopes {
		progress.Left = scale(g.Work, p.Hope/v.Speed)
	}
	even := progress
	even.Left = g.Work // as it is expected, since all of it is
	urgent, only := g.urgent(), g.Mode == model.BurstOnly
	switch {
	case v.Against != "":
	case v.Cools > 0 && p.hasTime(g, v, v.Cools):
		v.Against = fmt.Sprintf("nodes of it were given back just now, and nothing is bought there until %s for who has time until then", g.at(v.Cools))
	case v.End >= never/2:
		v.Against = "spot nodes would be taken away faster than it works; let it make checkpoints (caravan_checkpoint)"
	case g.Budget >= 0 && v.Cost > g.Budget:
		v.Against = fmt.Sprintf("it costs %s, and %s has %s left", money(v.Cost, g.Currency), g.BudgetOf, money(g.Budget, g.Currency))
	case v.Hoped && !only && (v.Market == model.MarketOnDemand || !stays(all)) && v.Early > g.Deadline-p.Margin:
		v.Against = fmt.Sprintf("it would take %s, and %s even if it ran for %.0f %% of what is expected (burst.hope), too late for the deadline at %s less %s",
			span(v.Late), span(v.Early), 100*p.Hope, g.at(g.Deadline), span(p.Margin))
	case only && !stays(all): // it takes what there is, in time or not
	case urgent && v.Market == model.MarketSpot && progress.MustStay():
		v.Against = fmt.Sprintf("with %s of work left and %s to change nodes there is no time for nodes that may be taken away", span(progress.Left), span(progress.Change))
	case urgent && !only && v.Market == model.MarketOnDemand && spotAway && v.Shares == "" && !progress.MustStay() && !even.Behind():
		v.Against = fmt.Sprintf("spot nodes may come back, and it is not behind: %s of %s are done", span(g.Total-g.Work), span(g.Total))
	case g.HomeKnown && !only && v.End >= g.HomeEnd && (!p.overdue(g) || p.WaitPrice > 0):
		v.Against = fmt.Sprintf("it would take %s, and here it is through at %s", span(v.End), g.at(g.HomeEnd))
	case !urgent && p.WaitOver > 0 && v.Shares != "" && !only && plus(g.Waited, v.Start) > p.mayWait(g) && surer(g, v, all):
		v.Against = fmt.Sprintf("it can have them in %s, others are there sooner or more surely, and with %s it may wait for %s", span(v.Start), gpus(g.GPUs), span(p.mayWait(g)))
	case !urgent && p.WaitPrice > 0 && g.HomeKnown && !only:
		hours := (g.HomeEnd - v.End).Hours() * float64(g.GPUs)
		if each := v.Cost / hours; each > p.WaitPrice {
			v.Against = fmt.Sprintf("it costs %s for each GPU and hour sooner, more than %s", money(each, g.Currency), money(p.WaitPrice, g.Currency))
		}
	}
}

// hope marks who is late by what is expected, and reports whether no nodes that stay are
// in time by that. While some are, they are there to fall back to from spot ones, which
// follow the line of progress whenever they are through.
func hope(g *Gang, p *Policy, all []Valued) (hopes bool) {
	late := func(v *Valued) bool { return g.urgent() && v.Late > g.Deadline-p.Margin }
	hopes = !slices.ContainsFunc(all, func(v Valued) bool {
		return v.Market == model.MarketOnDemand && v.Offer.Against == "" && !late(&v)
	})
	for i := range all {
		v := &all[i]
		v.Hoped = late(v) && (hopes || v.Market == model.MarketOnDemand)
	}
	return hopes
}

// stays reports whether there are nodes that stay, to fall back to.
func stays(all []Valued) bool {
	return slices.ContainsFunc(all, func(v Valued) bool { return v.Market == model.MarketOnDemand && v.Offer.Against == "" })
}

// rank puts the cheapest offers first that nothing speaks against, and those that are
// in time before others.
func (c *Choice) rank(p *Policy) {
	slices.SortStableFunc(c.Offers, func(a, b Valued) int {
		free := func(v Valued) int { return min(len(v.Against), 1) }
		hoped := func(v Valued) int {
			if v.Hoped {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(free(a), free(b)), cmp.Compare(hoped(a), hoped(b)), cmp.Compare(a.Cost+a.Carbon*p.CarbonPrice, b.Cost+b.Carbon*p.CarbonPrice), cmp.Compare(a.End, b.End),
			cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Market, b.Market), cmp.Compare(a.Shares, b.Shares))
	})
}

// maxTold is of how many offers a sentence tells.
const maxTold = 3

func against(offers []Valued) string {
	text := ""
	for i := range offers[:min(len(offers), maxTold)] {
		if i > 0 {
			text += "; "
		}
		text += offers[i].name() + ": " + offers[i].Against
	}
	if more := len(offers) - maxTold; more > 0 {
		text += fmt.Sprintf("; and %d offers more", more)
	}
	return text
}

func (v *Valued) name() string {
	if v.Shares != "" {
		return fmt.Sprintf("the nodes of purchase %s", v.Shares)
	}
	return fmt.Sprintf("pool %s, %s", v.Pool, marketText(v.Market))
}

func marketText(market string) string {
	if market == model.MarketSpot {
		return "spot"
	}
	return "on demand"
}

// text says what an offer comes to, with its arithmetic.
func (v *Valued) text(g *Gang) string {
	if v.Shares != "" {
		return fmt.Sprintf("it waits for the nodes of purchase %s, which it can have in %s: it is through in %s, for %s", v.Shares, span(v.Start), span(v.End), money(v.Cost, g.Currency))
	}
	nodes := strconv.Itoa(v.Nodes) + " nodes"
	if v.Nodes == 1 {
		nodes = "1 node"
	}
	text := fmt.Sprintf("%s of pool %s %s: ready in %s, through in %s; %d × %s × %s = %s", nodes, v.Pool, marketText(v.Market), span(v.Start), span(v.End),
		v.Nodes, money(v.Price, g.Currency), span(Billed(v.End, v.MinBilling, v.Period)), money(v.Cost-v.Moving, g.Currency))
	if v.Moving > 0 {
		text += fmt.Sprintf(", and %s for data that is moved", money(v.Moving, g.Currency))
	}
	if g.Budget >= 0 {
		text += fmt.Sprintf(", of %s that %s has left", money(g.Budget, g.Currency), g.BudgetOf)
	}
	return text
}

// hoped says what is hoped for where an offer is too late by what is expected.
func (v *Valued) hoped(g *Gang, p *Policy) string {
	switch {
	case !v.Hoped:
		return ""
	case v.Early > g.Deadline-p.Margin:
		return fmt.Sprintf("; that is too late for its deadline at %s, and it runs nowhere else", g.at(g.Deadline))
	}
	return fmt.Sprintf("; that is in time for its deadline at %s only if it runs for less than is expected, and %.0f %% of it are enough (burst.hope)", g.at(g.Deadline), 100*p.Hope)
}

func money(x float64, currency string) string {
	text := strconv.FormatFloat(x, 'f', 2, 64)
	if currency == "" {
		return text
	}
	return text + " " + currency
}

func gpus(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return strconv.Itoa(n) + " GPUs"
}

func span(d time.Duration) string {
	switch {
	case d >= never/2:
		return "more than 100 years"
	case d >= time.Hour || d <= -time.Hour:
		return d.Round(time.Minute).String()
	}
	return d.Round(time.Second).String()
}

// scale is a time times a factor, and plus a sum, without overflow.
func scale(d time.Duration, by float64) time.Duration {
	x := float64(d) * by
	if !(x < math.MaxInt64/2) {
		return never
	}
	return time.Duration(x)
}

func plus(a, b time.Duration) time.Duration {
	if a > never-b {
		return never
	}
	return a + b
}
