// Package queue says in which order jobs are decided on, and who of them keeps
// room for himself.
package queue

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// The orders.
const (
	// OrderCaravan meets deadlines, and else decides on what is due first, by how
	// long it is predicted to run.
	OrderCaravan = "caravan"
	// OrderFIFO decides by priority, then by time of submission. A gang that
	// does not fit keeps the nodes that are closest to fitting; later jobs flow
	// past it through the rest of the cluster.
	OrderFIFO = "fifo"
	// OrderBestEffort has the same order, but nobody keeps anything: a large
	// gang may wait for ever while small jobs pass it.
	OrderBestEffort = "besteffort"
	// OrderSJF decides on what ends soonest first, within a priority.
	OrderSJF = "sjf"
	// OrderBackfill has the order of OrderFIFO, and backfills by time (EASY unless
	// the policy says otherwise).
	OrderBackfill = "backfill"
	// OrderFairShare decides on the queue first that has least of its share.
	OrderFairShare = "fairshare"
	// OrderLAS decides on who has had least first, in a few queues.
	OrderLAS = "las"
	// OrderDeadline decides on what would miss its deadline first.
	OrderDeadline = "deadline"
	// OrderTimeslice lets jobs take turns.
	OrderTimeslice = "timeslice"
	// OrderGittins decides, in the queues of OrderLAS, on who is likeliest to be
	// through soon by what jobs of the past have needed.
	OrderGittins = "gittins"
	// OrderFTF decides on those first that lose most by sharing the cluster.
	OrderFTF = "ftf"
	// OrderMaxMin decides on those first that have had least of an equal part of
	// GPUs that differ.
	OrderMaxMin = "maxmin"
)

// ErrPolicy is the error for a policy that cannot be.
var ErrPolicy = errors.New("invalid policy")

// Policy is how the queue is worked.
type Policy struct {
	// Order is one of Orders; "" means OrderFIFO.
	Order string `json:"order,omitempty"`
	// Strict: nobody passes a job that waits for room.
	Strict bool `json:"strict,omitempty"`
	// MaxHolds is how many waiting gangs may keep nodes at once, the first ones
	// in order; 0 means DefaultMaxHolds. The others move up, so none starves.
	MaxHolds int `json:"max_holds,omitempty"`
	// Preempt says whether and how jobs give way to others.
	Preempt preempt.Policy `json:"preempt,omitzero"`
	// Elastic says when gangs get members beyond their counts.
	Elastic Elastic `json:"elastic,omitzero"`
	// Replace says how members whose nodes or GPUs fail are replaced.
	Replace Replace `json:"replace,omitzero"`
	// Caravan are the parameters of OrderCaravan.
	Caravan Caravan `json:"caravan,omitzero"`
	// Interactive says which jobs are to start at once.
	Interactive Interactive `json:"interactive,omitzero"`
	// LAS are the parameters of OrderLAS and OrderGittins.
	LAS LAS `json:"las,omitzero"`
	// Timeslice are the parameters of OrderTimeslice.
	Timeslice Timeslice `json:"timeslice,omitzero"`
	// Backfill says whether gangs that wait reserve a time, with any order.
	Backfill Backfill `json:"backfill,omitzero"`
	// Forecasts is for how many waiting gangs it is estimated when they start, the
	// first ones in order; 0 means DefaultForecasts.
	Forecasts int `json:"forecasts,omitempty"`
	// Deadline are the parameters of OrderDeadline.
	Deadline Deadline `json:"deadline,omitzero"`
	// Defrag says whether and how gangs are moved so that others fit.
	Defrag preempt.Defrag `json:"defrag,omitzero"`
	// FTF are the parameters of OrderFTF.
	FTF FTF `json:"ftf,omitzero"`
	// MaxMin are the parameters of OrderMaxMin.
	MaxMin MaxMin `json:"maxmin,omitzero"`
	// Burst says when nodes are bought.
	Burst burst.Policy `json:"burst,omitzero"`
}

// DefaultMaxHolds bounds what lies idle for the sake of those who wait.
const DefaultMaxHolds = 64

// Validate reports every fault.
func (p Policy) Validate() error {
	var faults []error
	if p.Order != "" && !slices.Contains(Orders(), p.Order) {
		faults = append(faults, fmt.Errorf("%w: order %q: want one of %s", ErrPolicy, p.Order, strings.Join(Orders(), ", ")))
	}
	if p.MaxHolds < 0 {
		faults = append(faults, fmt.Errorf("%w: max_holds %d: want 0 or more", ErrPolicy, p.MaxHolds))
	}
	faults = append(faults, p.Preempt.Validate(), p.Elastic.Validate(), p.Replace.Validate(), p.Defrag.Validate(), p.Caravan.Validate(), p.Interactive.Validate(), p.LAS.Validate(), p.Timeslice.Validate(), p.Backfill.Validate(),
		p.Deadline.Validate(), p.FTF.Validate(), p.MaxMin.Validate(), p.Burst.Validate())
	if p.Forecasts < 0 {
		faults = append(faults, fmt.Errorf("%w: forecasts %d: want 0 or more", ErrPolicy, p.Forecasts))
	}
	return errors.Join(faults...)
}

// Holds is how many waiting gangs may keep nodes.
func (p Policy) Holds() int {
	switch {
	case p.Order == OrderBestEffort && !p.Backfills():
		return 0
	case p.Backfills():
		return p.reservations()
	case p.MaxHolds == 0:
		return DefaultMaxHolds
	default:
		return p.MaxHolds
	}
}
