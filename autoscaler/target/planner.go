package target

import (
	"context"

	"github.com/caravan-sched/caravan/planner/burstapi"
)

// Planner is what names the nodes.
type Planner interface {
	Burst(ctx context.Context) (burstapi.Answer, error)
	BurstReport(ctx context.Context, r burstapi.Report) error
}
