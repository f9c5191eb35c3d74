package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	used "github.com/caravan-sched/caravan/planner/usage"
)

// sharing is what is learned of how much jobs use of the GPUs that they share. The
// planner that leads asks the nodes for the statistics of those, and of nothing
// else; it keeps what it has learned where another planner finds it.
type sharing struct {
	// stats asks for an allocation's statistics, in a region of a federation or, for
	// "", in the planner's own.
	stats func(ctx context.Context, region, alloc string) (*api.AllocResourceUsage, error)

	mu   sync.Mutex
	kept kept[used.Book]
	// runs are the tasks that run, by allocation, and shown what the snapshot was
	// told of jobs.
	runs  map[string]*sharedRun
	shown map[jobKey]shownUsage
}

// sharedRun is a task on a shared GPU.
type sharedRun struct {
	used.Run
	job  jobKey
	kind string
}

// shownUsage is what a snapshot was told of a job, and since when.
type shownUsage struct {
	is *model.Usage
	at time.Time
}

// How often and how much is asked.
const (
	// measureEvery is how often statistics are asked for, and measurePatience how
	// long one answer may take; at most maxMeasured tasks are looked at in a round,
	// measuredAtOnce side by side.
	measureEvery    = 20 * time.Second
	measurePatience = 5 * time.Second
	maxMeasured     = 512
	measuredAtOnce  = 8
	// tellEvery is how seldom the minutes that a snapshot is told are renewed.
	tellEvery = 5 * time.Minute
)

// keepSharing keeps what is known of shared GPUs.
func keepSharing(store documents) kept[used.Book] {
	return kept[used.Book]{store: store, names: []string{"shared", "jobs"}, about: "what is known of shared GPUs",
		every: saveEvery, encode: (*used.Book).Encode, decode: used.Decode}
}

// sliceHeld is a task of a managed job on a shared GPU.
type sliceHeld struct {
	alloc, gpu, region string
	job                jobKey
	kind               string
	// slices is by how many the GPU is shared; alone: nobody else has one.
	slices, partMiB int
	alone           bool
}

// slicesHeld lists the tasks of managed jobs that hold slices of shared GPUs.
func slicesHeld(v *observe.View) []sliceHeld {
	at := map[string]*model.GPU{}
	for i := range v.Snapshot.Nodes {
		for k := range v.Snapshot.Nodes[i].GPUs {
			if g := &v.Snapshot.Nodes[i].GPUs[k]; g.Slices > 0 {
				at[g.UUID] = g
			}
		}
	}
	if len(at) == 0 {
		return nil
	}
	users := map[string]int{}
	for i := range v.Snapshot.Allocs {
		for _, id := range v.Snapshot.Allocs[i].GPUs {
			if g := at[id]; g != nil {
				users[g.Parent]++
			}
		}
	}
	managed := make(map[jobKey]*observe.Managed, len(v.Managed))
	for i := range v.Managed {
		managed[jobKey{v.Managed[i].Namespace, v.Managed[i].ID}] = &v.Managed[i]
	}
	var out []sliceHeld
	for i := range v.Snapshot.Allocs {
		a := &v.Snapshot.Allocs[i]
		key := jobKey{a.Namespace, a.Job}
		m := managed[key]
		if a.Stopping || a.Lost || m == nil {
			continue
		}
		for _, id := range a.GPUs {
			if g := at[id]; g != nil {
				out = append(out, sliceHeld{alloc: a.ID, gpu: id, region: m.Region, job: key, kind: shareKind(&m.Model), slices: g.Slices, partMiB: g.SharedMiB / g.Slices, alone: users[g.Parent] == 1})
			}
		}
	}
	return out
}

// shareKind names jobs alike.
func shareKind(j *model.Job) string {
	k := kindOf(j)
	return k.namespace + "/" + k.name
}

// watchSharing measures now and then, until ctx ends.
func (d *Daemon) watchSharing(ctx context.Context) {
	ticker := time.NewTicker(measureEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		v := d.view.Load()
		if _, leading := d.leads(ctx); v == nil || v.Snapshot == nil || !leading {
			continue
		}
		if err := d.sharing.measure(ctx, slicesHeld(v), d.now()); err != nil {
			d.log.Debug("not all statistics of shared GPUs could be read", "error", err)
		}
	}
}

// allocStats asks Nomad for an allocation's statistics.
func allocStats(client *api.Client) func(context.Context, string, string) (*api.AllocResourceUsage, error) {
	return func(ctx context.Context, region, alloc string) (*api.AllocResourceUsage, error) {
		return client.Allocations().Stats(&api.Allocation{ID: alloc}, (&api.QueryOptions{Region: region}).WithContext(ctx))
	}
}

// measure asks for the statistics of tasks on shared GPUs. What cannot be read is a
// gap: a task that is being started has none.
func (s *sharing) measure(ctx context.Context, held []sliceHeld, now time.Time) error {
	if len(held) > maxMeasured {
		// Each gets its turn.
		turn := int(now.Unix()/int64(measureEvery/time.Second)) * maxMeasured % len(held)
		held = slices.Concat(held[turn:], held[:turn])[:maxMeasured]
	}
	var group errgroup.Group
	group.SetLimit(measuredAtOnce)
	for _, h := range held {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, measurePatience)
			defer cancel()
			stats, err := s.stats(ctx, h.region, h.alloc)
			if err != nil {
				return fmt.Errorf("read the statistics of allocation %s: %w", h.alloc, err)
			}
			if sample, ok := sampleOf(stats, h, now); ok {
				s.take(h, sample)
			}
			return nil
		})
	}
	return group.Wait()
}

// The device plugin's statistics, of a slice's own processes and of its GPU.
const (
	statSliceMemory = "Slice memory"
	statSliceBusy   = "Slice utilization"
	statMemory      = "Memory state"
	statBusy        = "GPU utilization"
)

// sampleOf reads what a task uses. Figures of the whole GPU are its own only while
// nobody else uses that.
func sampleOf(u *api.AllocResourceUsage, h sliceHeld, now time.Time) (used.Sample, bool) {
	stats := deviceStats(u, h.gpu)
	if stats == nil || stats.Stats == nil {
		return used.Sample{}, false
	}
	number := func(name string) (int, bool) {
		v := stats.Stats.Attributes[name]
		if v == nil || v.IntNumeratorVal == nil || *v.IntNumeratorVal < 0 || *v.IntNumeratorVal > model.MaxQuantity {
			return 0, false
		}
		return int(*v.IntNumeratorVal), true
	}
	out := used.Sample{At: now, Busy: -1, PartMiB: h.partMiB, PartBusy: 100 / h.slices}
	memory, ok := number(statSliceMemory)
	busy, busyKnown := number(statSliceBusy)
	if !ok && h.alone {
		memory, ok = number(statMemory)
	}
	if !busyKnown && h.alone {
		busy, busyKnown = number(statBusy)
	}
	if busyKnown {
		out.Busy = busy
	}
	out.MemoryMiB = memory
	return out, ok
}

// deviceStats finds the statistics of one device, which Nomad has by task and summed
// up.
func deviceStats(u *api.AllocResourceUsage, id string) *api.DeviceStats {
	if u == nil {
		return nil
	}
	parts := []*api.ResourceUsage{u.ResourceUsage}
	for _, t := range u.Tasks {
		if t != nil {
			parts = append(parts, t.ResourceUsage)
		}
	}
	for _, part := range parts {
		if part == nil {
			continue
		}
		for _, g := range part.DeviceStats {
			if g != nil && g.InstanceStats[id] != nil {
				return g.InstanceStats[id]
			}
		}
	}
	return nil
}

func (s *sharing) take(h sliceHeld, sample used.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.kept.loaded {
		return
	}
	r := s.runs[h.alloc]
	if r == nil {
		r = &sharedRun{job: h.job, kind: h.kind}
		s.runs[h.alloc] = r
	}
	r.Add(sample)
}

// learn takes in what has ended, and tells the snapshot's jobs that may share GPUs
// what they are expected to use. The view itself stays as it is.
func (s *sharing) learn(v *observe.View, now time.Time) *observe.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.kept.loaded || len(s.runs) == 0 && len(s.kept.is.Kinds) == 0 {
		return v
	}
	here := map[string]bool{}
	for i := range v.Snapshot.Allocs {
		here[v.Snapshot.Allocs[i].ID] = true
	}
	runs := map[jobKey][]*used.Run{}
	for alloc, r := range s.runs {
		if here[alloc] {
			runs[r.job] = append(runs[r.job], &r.Run)
			continue
		}
		s.kept.fresh = s.kept.is.End(r.kind, &r.Run, now) || s.kept.fresh
		delete(s.runs, alloc)
	}
	out, snap := *v, *v.Snapshot
	snap.Jobs = slices.Clone(snap.Jobs)
	out.Snapshot = &snap
	shown, changed := map[jobKey]shownUsage{}, false
	for i := range snap.Jobs {
		j := &snap.Jobs[i]
		key := jobKey{j.Namespace, j.ID}
		if !mayShare(j) {
			continue
		}
		if is := s.kept.is.Expect(shareKind(j), runs[key]...); is != nil {
			j.Usage, changed = s.tell(shown, key, is, now), true
		}
	}
	s.shown = shown
	if !changed {
		return v
	}
	return &out
}

// tell is what a snapshot is told of a job: the same as before, unless it differs in
// what counts or is old, so that not each sample makes a new decision.
func (s *sharing) tell(shown map[jobKey]shownUsage, key jobKey, is *model.Usage, now time.Time) *model.Usage {
	old := s.shown[key]
	if old.is == nil || old.is.MemoryMiB != is.MemoryMiB || old.is.Busy != is.Busy || (len(old.is.Minutes) == 0) != (len(is.Minutes) == 0) || now.Sub(old.at) >= tellEvery {
		old = shownUsage{is, now}
	}
	shown[key] = old
	return old.is
}

// mayShare reports whether a job takes slices of shared GPUs.
func mayShare(j *model.Job) bool {
	return slices.ContainsFunc(j.Groups, func(g model.TaskGroup) bool {
		return slices.ContainsFunc(g.Devices, func(d model.DeviceAsk) bool { return d.Shared != "" })
	})
}

// forget is for a planner that does not lead: another one measures.
func (s *sharing) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.forget()
	s.runs, s.shown = nil, nil
}

// load reads what another planner, or this one, has left.
func (s *sharing) load(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	anew, err := s.kept.load(ctx)
	if anew {
		s.runs, s.shown = map[string]*sharedRun{}, map[jobKey]shownUsage{}
	}
	return err
}

// save writes what was learned, if that is due.
func (s *sharing) save(ctx context.Context, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept.save(ctx, now)
}
