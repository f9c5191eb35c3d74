package model

import "time"

// Burst is where nodes can be bought, what has been, and what that has cost.
type Burst struct {
	// Currency is what all prices are in, for people.
	Currency string     `json:"currency,omitempty"`
	Pools    []BuyPool  `json:"pools,omitempty"`
	DataSets []DataSet  `json:"data_sets,omitempty"`
	Bought   []Purchase `json:"purchases,omitempty"`
	// Spent is what purchases that are over have cost, by job and by queue.
	Spent []Spent `json:"spent,omitempty"`
	// Blocked are pools in which nothing is bought for a while.
	Blocked []BlockedPool `json:"blocked,omitempty"`
	// Hold says why nothing is bought for now ("the planner does not see all of the
	// cluster"); empty means that it may be.
	Hold string `json:"hold,omitempty"`
}

// BuyPool is a kind of nodes that can be bought in one place.
type BuyPool struct {
	Name string `json:"name"`
	// Node is what each node will be like. Its ID and the UUIDs of its GPUs are no
	// names of anything.
	Node Node `json:"node"`
	// Near is the level at which the nodes of one purchase have a value of their
	// own; "" is none.
	Near string `json:"near,omitempty"`
	// Quota is how many nodes there may be.
	Quota int `json:"quota"`
	// OnDemand and Spot are what a node costs in an hour, 0: there is no such offer.
	OnDemand float64 `json:"on_demand,omitempty"`
	Spot     float64 `json:"spot,omitempty"`
	// SpotLifetime is how long a spot node lives on average.
	SpotLifetime time.Duration `json:"spot_lifetime_ns,omitempty"`
	// Boot is how long a node takes to be ready, and Join how long it may take.
	Boot time.Duration `json:"boot_ns,omitempty"`
	Join time.Duration `json:"join_ns,omitempty"`
	// MinBilling is the least that is billed, and Period what is rounded up to.
	MinBilling time.Duration `json:"min_billing_ns,omitempty"`
	Period     time.Duration `json:"period_ns,omitempty"`
	// Egress is what a GB costs that leaves, Gbps how fast data comes and goes; 0:
	// that takes no time.
	Egress float64 `json:"egress,omitempty"`
	Gbps   float64 `json:"gbps,omitempty"`
	// Carbon is grams of CO2 for a kWh, PowerKW what a node takes; 0 is unknown.
	Carbon  float64 `json:"carbon,omitempty"`
	PowerKW float64 `json:"power_kw,omitempty"`
	// Data names the data sets that are there already.
	Data []string `json:"data,omitempty"`
}

// Price is what a node costs in an hour in a market; 0: there is no such offer.
func (p *BuyPool) Price(market string) float64 {
	if market == MarketSpot {
		return p.Spot
	}
	return p.OnDemand
}

// DataSet is a data set that jobs name.
type DataSet struct {
	Name string `json:"name"`
	// GB is its size, and Egress what a GB costs to leave where it is kept.
	GB     float64 `json:"gb,omitempty"`
	Egress float64 `json:"egress,omitempty"`
}

// How nodes are bought.
const (
	// MarketOnDemand nodes stay until they are given back.
	MarketOnDemand = "on_demand"
	// MarketSpot nodes cost less, and may be taken away.
	MarketSpot = "spot"
)

// PurchaseState is how far a Purchase is.
type PurchaseState string

const (
	// PurchaseWanted: nobody has said that it is ordered.
	PurchaseWanted PurchaseState = "wanted"
	// PurchaseComing: it is ordered.
	PurchaseComing PurchaseState = "coming"
	// PurchasePresent: all of its nodes have been ready.
	PurchasePresent PurchaseState = "present"
	// PurchaseGiving: all of it is to go.
	PurchaseGiving PurchaseState = "giving_back"
	// PurchaseFailed: it could not be had; what there is of it is to go.
	PurchaseFailed PurchaseState = "failed"
)

// Purchase is the nodes bought for one gang, all or none.
type Purchase struct {
	ID   string `json:"id"`
	Pool string `json:"pool"`
	// For is the job that it is for.
	For JobName `json:"for"`
	// With are those that are to start on it beside that one.
	With   []JobName `json:"with,omitempty"`
	Market string    `json:"market"`
	Nodes  int       `json:"nodes"`
	// Names are what its nodes are called in the pool.
	Names []string `json:"names,omitempty"`
	// Price is what one of its nodes costs in an hour, and Cost what all of it was
	// expected to cost when it was decided.
	Price float64 `json:"price"`
	Cost  float64 `json:"cost"`
	// Deadline is the gang's.
	Deadline time.Time `json:"deadline,omitzero"`
	// Ordered is when it was decided, Billed from when it is paid for, and ExpectBy
	// when it has to be there.
	Ordered  time.Time     `json:"ordered"`
	Billed   time.Time     `json:"billed,omitzero"`
	ExpectBy time.Time     `json:"expect_by"`
	State    PurchaseState `json:"state"`
	// Started is when its gang ran on it first, and Idle since when nothing does.
	Started time.Time `json:"started,omitzero"`
	Idle    time.Time `json:"idle,omitzero"`
	// Broken is since when one of its nodes is down that had joined.
	Broken time.Time `json:"broken,omitzero"`
	// Spent is what it has cost so far.
	Spent float64 `json:"spent,omitempty"`
	// Why is the reason for it, in words.
	Why string `json:"why,omitempty"`
	// Leaving are the names of those of its nodes that are to go, Gone of those that
	// have gone.
	Leaving []string `json:"leaving,omitempty"`
	Gone    []string `json:"gone,omitempty"`
	// Until is the end of the billing period in which the last of it is given back.
	Until time.Time `json:"until,omitzero"`
}

// Open reports whether it may still be used.
func (p *Purchase) Open() bool { return p.State.Open() }

// Open reports whether purchases in that state may still be used.
func (s PurchaseState) Open() bool {
	return s == PurchaseWanted || s == PurchaseComing || s == PurchasePresent
}

// Spent is money that is gone.
type Spent struct {
	// For is a job, or else Queue a queue.
	For   JobName `json:"for,omitzero"`
	Queue string  `json:"queue,omitempty"`
	// Amount is, of a queue, that of the present month.
	Amount float64 `json:"amount"`
}

// BlockedPool is a pool in which nothing is bought for a while, since it failed.
type BlockedPool struct {
	Pool string `json:"pool"`
	// Market is the one that failed; "" is both.
	Market string    `json:"market,omitempty"`
	Until  time.Time `json:"until"`
	Why    string    `json:"why,omitempty"`
}

// Bought says of a node from where it is.
type Bought struct {
	// Pool, Name and Purchase are what it says of itself: its pool, its name there,
	// and the purchase that it was made for.
	Pool     string `json:"pool"`
	Name     string `json:"name,omitempty"`
	Purchase string `json:"purchase,omitempty"`
	Market   string `json:"market,omitempty"`
	// Surplus says why nothing is placed on it and it is to go ("it joined twice");
	// empty means that it counts.
	Surplus string `json:"surplus,omitempty"`
}

// What Job.Burst and Queue.Burst may be, beside "".
const (
	// BurstAllow: nodes may be bought for it, and bought ones used.
	BurstAllow = "allow"
	// BurstNever: it runs on other nodes only.
	BurstNever = "never"
	// BurstOnly: it runs on bought nodes only.
	BurstOnly = "only"
)

// Demand is what is wanted of pools.
type Demand struct {
	// Pools are all pools, by name.
	Pools []PoolDemand `json:"pools,omitempty"`
	// Buy are the purchases that this plan makes.
	Buy []Purchase `json:"buy,omitempty"`
	// GiveBack are the nodes that are to go.
	GiveBack []GiveBack `json:"give_back,omitempty"`
	// Uses say of purchases what has come of them.
	Uses []PurchaseUse `json:"uses,omitempty"`
}

// PoolDemand is how a pool stands once the plan is carried out.
type PoolDemand struct {
	Name string `json:"name"`
	// Wanted is how many nodes there are to be, Present how many are ready, Coming
	// how many are not yet, and Leaving how many are to go.
	Wanted  int `json:"wanted"`
	Present int `json:"present"`
	Coming  int `json:"coming"`
	Leaving int `json:"leaving"`
	// PricePerHour is what all that are wanted cost in an hour.
	PricePerHour float64 `json:"price_per_hour"`
	// Why is a sentence for people.
	Why string `json:"why"`
}

// GiveBack is a node that is to go, or one that is not to be made any more.
type GiveBack struct {
	Pool     string `json:"pool"`
	Purchase string `json:"purchase,omitempty"`
	Name     string `json:"name"`
	// Node is its ID, if Nomad knows it.
	Node string `json:"node,omitempty"`
	// By is the end of its billing period.
	By  time.Time `json:"by"`
	Why string    `json:"why"`
}

// PurchaseUse is what a plan finds of a purchase.
type PurchaseUse struct {
	ID string `json:"id"`
	// State is the one that it has from now on.
	State PurchaseState `json:"state"`
	// Started: its gang runs on it, or is placed there now. Busy: something does.
	Started bool `json:"started,omitempty"`
	Busy    bool `json:"busy,omitempty"`
	// For is whom it is for from now on, and With who is to start beside it.
	For  JobName   `json:"for"`
	With []JobName `json:"with,omitempty"`
	// Reason is set where it failed: "timeout", "lost" (a node of it was taken away),
	// "unused" (its gang has not started on it).
	Reason string `json:"reason,omitempty"`
	Why    string `json:"why,omitempty"`
}

// BurstChoice is the arithmetic by which it was decided whether nodes are bought
// for a gang.
type BurstChoice struct {
	// Buys: the plan buys, or has bought. Purchase is its ID.
	Buys     bool   `json:"buys"`
	Purchase string `json:"purchase,omitempty"`
	// Home is when it would be through on what there is; left out, nobody knows.
	Home time.Time `json:"home,omitzero"`
	// Offers are what could be bought, the best first.
	Offers []BurstOffer `json:"offers,omitempty"`
	// Budget is what may still be spent on it, -1: there is no limit. Currency is what
	// it and all costs are in, for people.
	Budget   float64 `json:"budget"`
	Currency string  `json:"currency,omitempty"`
	// Again is when the answer may be another one.
	Again time.Time `json:"again,omitzero"`
	// Why is a sentence for people.
	Why string `json:"why"`
}

// BurstOffer is one way to buy.
type BurstOffer struct {
	Pool   string `json:"pool"`
	Market string `json:"market"`
	Nodes  int    `json:"nodes"`
	// Start and End are when the gang is expected to start and to be through.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// Cost is what it is expected to cost, of which Moving is for data that is moved,
	// and Carbon the kg of CO2.
	Cost   float64 `json:"cost"`
	Moving float64 `json:"moving,omitempty"`
	Carbon float64 `json:"carbon,omitempty"`
	// Shares is the purchase whose nodes it would use, "" where it is one of its own.
	Shares string `json:"shares,omitempty"`
	// Against says what speaks against it; empty is nothing.
	Against string `json:"against,omitempty"`
}
