// Package federate plans for several regions of a federated Nomad as one. It
// joins what is seen of each into one View, on which one decision is made, and
// has the decision carried out in each region by that region's own executor. A
// gang that is decided for another region than the one it is registered in is
// sent there first.
//
// Each region keeps its own jobs and its own records. Of a job that was sent, the
// record where it was submitted (its home) has a Route, and says alone who may run
// it; the one where it was sent has a Home. A Route is written before anything is
// done in the other region, and taken out when nothing is left there, so that
// whoever looks next finishes or undoes what was begun, and no job ever runs in
// two regions. A region that cannot be reached is held: it is shown as it was
// last, what runs there is left alone, and nothing is decided for it.
package federate

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// Observer reads one region; observe.Observer is one.
type Observer interface {
	Refresh(ctx context.Context) (*observe.View, error)
	Watch(ctx context.Context, wake func())
}

// Executor changes one region; apply.Executor is one.
type Executor interface {
	Execute(ctx context.Context, v *observe.View, plan *model.Plan) []apply.Result
	Due() time.Time
	Withheld(namespace, job string) bool
	Would(ctx context.Context, rec *record.Record) error
	Arrive(ctx context.Context, rec *record.Record, index uint64) error
	Write(ctx context.Context, rec *record.Record, now time.Time) error
	End(ctx context.Context, m *observe.Managed) error
	Stop(ctx context.Context, namespace, job string) error
	Find(ctx context.Context, namespace, job string) (*api.Job, error)
	Forget(ctx context.Context, rec *record.Record) error
}

// Region is one of the federation's.
type Region struct {
	Name     string
	Observer Observer
	// Executor is made with Federation.Withhold.
	Executor Executor
	// Term is the context in which the region may be changed by this planner; nil
	// while it may not, and why says so.
	Term func() (term context.Context, why string)
}

// Options make a Federation.
type Options struct {
	// Wake asks for a new look.
	Wake func()
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	Log hclog.Logger
}

// The times of looks at other regions than the first.
const (
	// patience is how long a look waits for a region that has answered before; one
	// that has not is not waited for.
	patience = 5 * time.Second
	// readTimeout is when a region counts as not answering, and changeTimeout the
	// same for what is changed there.
	readTimeout   = 30 * time.Second
	changeTimeout = 30 * time.Second
	// again is the least time between two looks at one that does not answer.
	again = 2 * time.Second
	// refusedFor is how long a job is not sent again to a region that has refused
	// it.
	refusedFor = 5 * time.Minute
)

// Federation is the regions together. Refresh and Execute are for one goroutine
// at a time.
type Federation struct {
	opts    Options
	regions []*region
	gpus    listed

	mu sync.Mutex
	// refused are regions that would not have a job.
	refused map[refusal]refusedUntil
}

type refusal struct{ namespace, job, region string }

type refusedUntil struct {
	until time.Time
	why   string
}

type jobKey struct{ namespace, id string }

// region is a Region and how it stands.
type region struct {
	Region
	first bool

	mu sync.Mutex
	// busy: a look is under way. late: nobody waits for it any more.
	busy, late bool
	last       *observe.View
	err        error
	tried      time.Time

	// view is the region as this round has it; nil: it was never seen. fresh: it
	// has answered in this round. held says why nothing is to be done there, since
	// when that is so.
	view *observe.View
	// jobs are the view's managed jobs, records all of its records.
	jobs    map[jobKey]*observe.Managed
	records map[jobKey]*record.Record
	fresh   bool
	held    string
	since   time.Time
}

// New joins regions; the first is the one without which nothing is decided.
func New(opts Options, regions ...Region) *Federation {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Log == nil {
		opts.Log = hclog.NewNullLogger()
	}
	f := &Federation{opts: opts, refused: map[refusal]refusedUntil{}}
	for i := range regions {
		f.regions = append(f.regions, &region{Region: regions[i], first: i == 0})
	}
	return f
}

// Withhold is Options.Withhold of the region's executor: the records of a job that
// was sent go one after the other, and the home's last but one.
func (f *Federation) Withhold(region string) func(*record.Record) bool {
	return func(rec *record.Record) bool {
		return rec.Route != nil || rec.Home != "" && !f.released(region, rec)
	}
}

// released says whether a job's home does not know any more that it was sent to
// the region.
func (f *Federation) released(region string, rec *record.Record) bool {
	home := f.region(rec.Home)
	if home == nil {
		return true // it is none of the federation's any more
	}
	if !home.usable() {
		return false
	}
	at := home.records[jobKey{rec.Namespace, rec.JobID}]
	return at == nil || at.Route == nil || at.Route.Region != region
}

func (f *Federation) region(name string) *region {
	for _, r := range f.regions {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// usable says whether what the region shows may be acted on.
func (r *region) usable() bool { return r.fresh && r.held == "" }

// Watch calls wake whenever something changed in a region, until ctx ends.
func (f *Federation) Watch(ctx context.Context, wake func()) {
	var wg sync.WaitGroup
	for _, r := range f.regions {
		wg.Go(func() { r.Observer.Watch(ctx, wake) })
	}
	wg.Wait()
}
