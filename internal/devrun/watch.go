package devrun

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/rewrite"
)

// watcher follows Nomad's event stream and keeps everything it shows.
type watcher struct {
	began time.Time
	// saw is called with each sighting, in order.
	saw func(sighting)

	mu      sync.Mutex
	seen    timeline
	changed chan struct{}
	err     error
}

// errStreamEnded says that the event stream ended before the run did: then
// something may have been missed.
var errStreamEnded = errors.New("the event stream ended")

// watch follows the stream until the context ends.
func watch(ctx context.Context, client *api.Client, began time.Time, saw func(sighting)) (*watcher, error) {
	w := &watcher{began: began, saw: saw, changed: make(chan struct{})}
	topics := map[api.Topic][]string{api.TopicAllocation: {"*"}, api.TopicJob: {"*"}}
	stream, err := client.EventStream().Stream(ctx, topics, 0, &api.QueryOptions{Namespace: api.AllNamespacesNamespace})
	if err != nil {
		return nil, fmt.Errorf("watch events: %w", err)
	}
	go w.follow(ctx, stream)
	return w, nil
}

func (w *watcher) follow(ctx context.Context, stream <-chan *api.Events) {
	for events := range stream {
		if events.Err != nil {
			w.fail(ctx, errors.Join(errStreamEnded, events.Err))
			return
		}
		var fresh []sighting
		for _, e := range events.Events {
			s, err := decodeEvent(e)
			if err != nil {
				w.fail(ctx, err)
				return
			}
			if s.alloc != nil || s.job != nil {
				s.at = time.Since(w.began)
				fresh = append(fresh, s)
			}
		}
		w.add(fresh)
	}
	w.fail(ctx, errStreamEnded)
}

func (w *watcher) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = fmt.Errorf("watch events: %w", err)
	w.announce()
}

func (w *watcher) add(fresh []sighting) {
	if len(fresh) == 0 {
		return
	}
	w.mu.Lock()
	w.seen = append(w.seen, fresh...)
	w.announce()
	w.mu.Unlock()
	for _, s := range fresh {
		w.saw(s)
	}
}

func (w *watcher) announce() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// now returns what was seen so far, and a channel that closes with the next
// change.
func (w *watcher) now() (timeline, <-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen), w.changed, w.err
}

// await waits until what was seen fulfils the condition.
func (w *watcher) await(ctx context.Context, what string, condition func(timeline) bool) (timeline, error) {
	for {
		seen, changed, err := w.now()
		if err != nil {
			return seen, err
		}
		if condition(seen) {
			return seen, nil
		}
		select {
		case <-ctx.Done():
			return seen, fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		case <-changed:
		}
	}
}

// decodeEvent reads an event; one that is about neither an allocation nor a job
// gives an empty sighting.
func decodeEvent(e api.Event) (sighting, error) {
	s := sighting{index: e.Index}
	data, err := json.Marshal(e.Payload)
	if err != nil {
		return s, fmt.Errorf("read event %s: %w", e.Type, err)
	}
	var payload struct {
		Allocation *api.Allocation
		Job        *api.Job
	}
	if err := json.Unmarshal(data, &payload); err != nil {
		return s, fmt.Errorf("read event %s: %w", e.Type, err)
	}
	switch {
	case e.Topic == api.TopicAllocation && payload.Allocation != nil:
		s.alloc = allocStateOf(payload.Allocation)
	case e.Topic == api.TopicJob && payload.Job != nil:
		s.job = jobStateOf(payload.Job)
	}
	return s, nil
}

func allocStateOf(a *api.Allocation) *allocState {
	s := &allocState{
		id: a.ID, name: a.Name, namespace: a.Namespace, job: a.JobID, group: a.TaskGroup,
		node: a.NodeID, desired: a.DesiredStatus, client: a.ClientStatus,
		previous: a.PreviousAllocation,
	}
	if a.AllocatedResources != nil {
		for _, task := range a.AllocatedResources.Tasks {
			for _, d := range task.Devices {
				s.gpus = append(s.gpus, d.DeviceIDs...)
			}
		}
	}
	slices.Sort(s.gpus)
	return s
}

func jobStateOf(j *api.Job) *jobState {
	deref := func(p *uint64) uint64 { return *cmp.Or(p, new(uint64)) }
	s := &jobState{version: deref(j.Version), modify: deref(j.JobModifyIndex), gated: rewrite.IsGated(j), pinned: rewrite.IsPinned(j)}
	if j.ID != nil {
		s.id = *j.ID
	}
	if j.Namespace != nil {
		s.namespace = *j.Namespace
	}
	s.stop = j.Stop != nil && *j.Stop
	return s
}
