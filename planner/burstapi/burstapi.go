// Package burstapi holds what the planner and the autoscaler's plugins say to each
// other about nodes that are bought: the JSON of GET /caravan/v1/burst and of
// POST /caravan/v1/burst/report (see docs/burst.md).
package burstapi

import "time"

// The paths of the planner's API. Its authentication applies.
const (
	// PathBurst answers GET with an Answer.
	PathBurst = "/caravan/v1/burst"
	// PathReport takes a Report by POST. It is answered with 204 once the report
	// is kept, and with 404 for a purchase that nobody knows any more.
	PathReport = "/caravan/v1/burst/report"
	// PathForget takes a Forget by POST, and answers with what was Forgotten. It needs
	// a management token.
	PathForget = "/caravan/v1/burst/forget"
)

// The node meta keys of nodes that were bought.
const (
	// MetaPool is the pool that a node was bought in, and MetaNode its key in the
	// pool's map of nodes, which is one of its purchase's Names.
	MetaPool = "caravan_pool"
	MetaNode = "caravan_node"
	// MetaMarket is OnDemand or Spot, and MetaPurchase the purchase's ID.
	MetaMarket   = "caravan_market"
	MetaPurchase = "caravan_purchase"
)

// Market is how a node is bought.
type Market string

const (
	// OnDemand nodes stay until they are given back.
	OnDemand Market = "on_demand"
	// Spot nodes cost less, and may be taken away at any time.
	Spot Market = "spot"
)

// Answer is what the planner wants of all pools.
type Answer struct {
	// Now is the planner's time, by which all others below are meant.
	Now time.Time `json:"now"`
	// Index grows whenever the answer changes.
	Index uint64 `json:"index"`
	// Leader says that the planner which answers is the leader, and that its
	// picture of the cluster is fresh. Where it is false nothing of the answer is to
	// be acted on: hold what is there.
	Leader bool `json:"leader"`
	// Why says what is wrong where Leader is false.
	Why string `json:"why,omitempty"`
	// Pools are all of the pools file, by name.
	Pools []Pool `json:"pools"`
}

// Pool is what is wanted of one pool, and what is there.
type Pool struct {
	Name string `json:"name"`
	// Wanted is how many nodes are to exist, Present how many are ready with their
	// devices, and Coming how many have been asked for and are not ready.
	Wanted  int `json:"wanted"`
	Present int `json:"present"`
	Coming  int `json:"coming"`
	// Purchases are all that have nodes or are to have them, and the latest that
	// failed, in the order in which they were decided.
	Purchases []Purchase `json:"purchases"`
	// GiveBack are the nodes that are to go. They count for Wanted no more.
	GiveBack []GiveBack `json:"give_back"`
	// Nodes are the nodes of the pool that Nomad knows.
	Nodes []Node `json:"nodes"`
	// Why says in words why so many are wanted.
	Why string `json:"why"`
	// PricePerNodeHour is what a node costs in Currency: on demand, or as a spot node
	// where there are no others.
	PricePerNodeHour float64 `json:"price_per_node_hour"`
	Currency         string  `json:"currency"`
	// BlockedUntil is until when nothing is bought here after failures; BlockedWhy
	// says after which.
	BlockedUntil *time.Time `json:"blocked_until,omitempty"`
	BlockedWhy   string     `json:"blocked_why,omitempty"`
	// InDoubt are nodes that may exist and be paid for, and that the target cannot end.
	InDoubt []Doubt `json:"in_doubt,omitempty"`
}

// Doubt is a node that may exist, though Terraform's state does not know it.
type Doubt struct {
	// Name is its key in the pool's map of nodes.
	Name     string `json:"name"`
	Purchase string `json:"purchase"`
	// Since is when that was reported first, and Why what to look for.
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

// State is how far a purchase or a node is.
type State string

const (
	// Wanted: it was decided on, and nobody has said that it is ordered.
	Wanted State = "wanted"
	// Coming: it is ordered.
	Coming State = "coming"
	// Present: all nodes are ready with their devices.
	Present State = "present"
	// GivingBack: it is to go.
	GivingBack State = "giving_back"
	// Failed: it could not be had, or not all of it in time. Its nodes, if there are
	// any, are to go.
	Failed State = "failed"
)

// Purchase is the nodes bought for one gang, all or none.
type Purchase struct {
	ID string `json:"id"`
	// Gang is whom it is for, as namespace/job.
	Gang string `json:"gang"`
	// Nodes is how many it has, those that are gone left out.
	Nodes int `json:"nodes"`
	// Names are the keys that these are to have in the pool's map of nodes.
	Names  []string `json:"names"`
	Market Market   `json:"market"`
	// PricePerNodeHour is the price in its market when it was decided, and
	// CostEstimate what all of it is expected to cost: booting, the work, what is
	// rounded up, and the data that leaves the cloud.
	PricePerNodeHour float64 `json:"price_per_node_hour"`
	CostEstimate     float64 `json:"cost_estimate"`
	// Deadline is the gang's; nil is none.
	Deadline *time.Time `json:"deadline,omitempty"`
	// Ordered is when it was decided on, and ExpectBy when its nodes are to be
	// ready; after that it has failed.
	Ordered  time.Time `json:"ordered"`
	ExpectBy time.Time `json:"expect_by"`
	State    State     `json:"state"`
	// Why is the arithmetic, in words.
	Why string `json:"why"`
}

// GiveBack is a node that is to go.
type GiveBack struct {
	// Name is its key in the pool's map of nodes.
	Name string `json:"name"`
	// By is the end of its billing period: when it is to be gone.
	By  time.Time `json:"by"`
	Why string    `json:"why"`
}

// Node is a node of a pool that Nomad knows.
type Node struct {
	// Name is its key in the pool's map, NodeID Nomad's ID.
	Name     string `json:"name"`
	NodeID   string `json:"node_id"`
	Purchase string `json:"purchase"`
	Market   Market `json:"market"`
	State    State  `json:"state"`
	// Gang is what runs there, as namespace/job; of several, all of them with
	// commas between. "" is nothing.
	Gang string `json:"gang,omitempty"`
	// Ready: Nomad may place on it, and all devices promised are there and healthy.
	Ready bool `json:"ready"`
	// Why says what is missing where it is not ready, or why nobody wants it.
	Why string `json:"why,omitempty"`
}

// Kind is what a report says.
type Kind string

const (
	// ReportOrdered: the purchase is being made.
	ReportOrdered Kind = "ordered"
	// ReportPresent: all its nodes are up.
	ReportPresent Kind = "present"
	// ReportFailed: it could not be made. Nodes are those that are left or may be:
	// each is told of when it is gone.
	ReportFailed Kind = "failed"
	// ReportGone: these nodes are no more.
	ReportGone Kind = "gone"
	// ReportInDoubt: these nodes may exist, and the target cannot end them, since it
	// was killed while it made them. None is that no node of the purchase is in doubt.
	ReportInDoubt Kind = "in_doubt"
)

// Reason is why a purchase failed.
type Reason string

const (
	// ReasonCapacity: the cloud has none left of the kind.
	ReasonCapacity Reason = "capacity"
	// ReasonQuota: the account may have no more of them.
	ReasonQuota Reason = "quota"
	// ReasonTimeout: it did not come in time.
	ReasonTimeout Reason = "timeout"
	// ReasonRefused: the target will not do it, as with a plan that touches more
	// than the pool's nodes.
	ReasonRefused Reason = "refused"
	// ReasonError is any other.
	ReasonError Reason = "error"
)

// Report is what became of a purchase.
type Report struct {
	Pool     string `json:"pool"`
	Purchase string `json:"purchase"`
	Kind     Kind   `json:"kind"`
	// Reason goes with ReportFailed, Message with any: a sentence for people.
	Reason  Reason `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Nodes are the keys of the nodes that it is about; none is all of the
	// purchase's, but with ReportFailed and ReportInDoubt.
	Nodes []string `json:"nodes,omitempty"`
	// Lived is for how many seconds nodes have existed that are gone: 0 is one that
	// was never made, and costs nothing. With ReportGone, nodes that are not in it
	// existed until now; with ReportFailed, those that are in neither list were never
	// made.
	Lived map[string]float64 `json:"lived_s,omitempty"`
}

// Forget asks that nothing more is known of a purchase, since nothing of it is there.
type Forget struct {
	Purchase string `json:"purchase"`
	// Force lets go of one on whose nodes a gang still runs, as far as Nomad knows.
	Force bool `json:"force,omitempty"`
}

// Forgotten is a purchase that is known no more.
type Forgotten struct {
	Purchase string `json:"purchase"`
	Pool     string `json:"pool"`
	// Gang is whom it was for, as namespace/job.
	Gang  string `json:"gang"`
	State State  `json:"state"`
	// Names are the nodes that nobody had said are gone: their quota is free now.
	Names []string `json:"names"`
	// Cost is what all of it has cost until now, in Currency.
	Cost     float64 `json:"cost"`
	Currency string  `json:"currency"`
	// Nodes are those of its nodes that Nomad has, by their IDs: they are given back as
	// nodes of no purchase.
	Nodes []string `json:"nodes,omitempty"`
}
