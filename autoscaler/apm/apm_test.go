package apm

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad-autoscaler/sdk"

	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// planner is one that says what it is told to.
type planner struct {
	mu     sync.Mutex
	status httpapi.Status
	queue  []httpapi.Job
	queues []model.QueueUse
	burst  burstapi.Answer
	err    error
	asked  int
}

func (p *planner) Status(context.Context) (httpapi.Status, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	return p.status, p.err
}
func (p *planner) Queue(context.Context) ([]httpapi.Job, error)     { return p.queue, nil }
func (p *planner) Queues(context.Context) ([]model.QueueUse, error) { return p.queues, nil }
func (p *planner) Burst(context.Context) (burstapi.Answer, error)   { return p.burst, nil }
func (p *planner) set(change func(*planner))                        { p.mu.Lock(); change(p); p.mu.Unlock() }

func busy() *planner {
	due, later := noon.Add(30*time.Minute), noon.Add(time.Hour)
	return &planner{
		status: httpapi.Status{Counts: httpapi.Counts{GPUs: 64, FreeGPUs: 16, UsedGPUs: 48, Running: 5}},
		queue: []httpapi.Job{
			{ID: "a", GPUs: 12, Queue: "lab/vision", Submitted: noon.Add(-time.Minute)},
			{ID: "b", GPUs: 8, Queue: "lab", Submitted: noon.Add(-time.Hour)},
			{ID: "c", GPUs: 4, Queue: "lab/vision", Submitted: noon.Add(time.Minute)},
		},
		queues: []model.QueueUse{{Path: "lab"}, {Path: "lab/vision"}, {Path: "lab/text"}},
		burst: burstapi.Answer{Leader: true, Now: noon, Pools: []burstapi.Pool{
			{Name: "eu", Wanted: 4, Present: 1, Coming: 1, GiveBack: []burstapi.GiveBack{{Name: "x"}},
				Purchases: []burstapi.Purchase{
					{ID: "p1", Names: []string{"a", "b"}, PricePerNodeHour: 10, Deadline: &later, State: burstapi.Coming},
					{ID: "p2", Names: []string{"c"}, PricePerNodeHour: 4, Deadline: &due, State: burstapi.Wanted},
					{ID: "p3", Names: []string{"d"}, PricePerNodeHour: 99, State: burstapi.Failed},
				},
				Nodes: []burstapi.Node{{Name: "a", Ready: true}, {Name: "b", Ready: true, Gang: "default/a"}, {Name: "c"}}},
			{Name: "us"},
		}},
	}
}

// configured is a plugin whose only samples are those that queries take.
func configured(t *testing.T, p Planner) *Plugin {
	plugin := New(hclog.NewNullLogger())
	plugin.now = func() time.Time { return noon }
	plugin.planner, plugin.keep = p, time.Hour
	t.Cleanup(plugin.Close)
	return plugin
}

func TestPresentValues(t *testing.T) {
	tests := map[string][]float64{
		"nodes_wanted/eu": {4}, "nodes_present/eu": {1}, "nodes_coming/eu": {1}, "nodes_giving_back/eu": {1}, "nodes_idle/eu": {1},
		"nodes_wanted/us": {0}, "price_per_hour/eu": {24}, "deadline_s/eu": {1800}, "deadline_s/us": nil,
		"gpus": {64}, "gpus_free": {16}, "gpus_used": {48}, "gpu_utilisation": {0.75}, "running_jobs": {5},
		// a and c would take all of the 16 free ones, b no more.
		"stranded_share": {0.25},
		"queue_gangs":    {3}, "queue_gpus": {24}, "queue_wait_s": {3600},
		"queue_gangs/lab": {3}, "queue_gpus/lab/vision": {16}, "queue_wait_s/lab/vision": {60}, "queue_gangs/lab/text": {0},
		"avg_gpus": {64}, "p95_nodes_wanted/eu": {4},
	}
	plugin := configured(t, busy())
	for text, want := range tests {
		got, err := plugin.Query(text, sdk.TimeRange{From: noon.Add(-time.Second), To: noon})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var values []float64
		for _, m := range got[max(0, len(got)-1):] {
			values = append(values, m.Value)
		}
		if diff := cmp.Diff(want, values); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", text, diff)
		}
	}
}

func TestQueriesThatSayNothing(t *testing.T) {
	tests := map[string]string{
		"":                       "want [FOLD_]METRIC",
		"nodes":                  "METRIC one of deadline_s, gpu_utilisation",
		"sum_gpus":               "FOLD one of avg, max, min, p95",
		"nodes_wanted":           "want a pool's name, as in nodes_wanted/NAME",
		"gpus/eu":                "it is of the whole cluster",
		"queue_gangs/":           "want a queue's path",
		"nodes_wanted/moon":      `query is of pool "moon": want one of the planner's: eu, us`,
		"queue_gangs/lab/nobody": "want one of the planner's: lab, lab/text, lab/vision",
		"nodes_wanted/*":         "is for QueryMultiple",
	}
	plugin := configured(t, busy())
	for text, want := range tests {
		if _, err := plugin.Query(text, sdk.TimeRange{From: noon, To: noon}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	if _, err := plugin.Query("gpus", sdk.TimeRange{From: noon, To: noon.Add(-time.Hour)}); err == nil {
		t.Error("a range that ends before it begins is taken")
	}
}

func TestNothingIsSaidForAPlannerThatIsNotSure(t *testing.T) {
	p := busy()
	plugin := configured(t, p)
	p.burst.Leader, p.burst.Why = false, "Nomad has no leader"
	if _, err := plugin.Query("gpus", sdk.TimeRange{From: noon, To: noon}); err == nil || !strings.Contains(err.Error(), "Nomad has no leader") {
		t.Errorf("error = %v", err)
	}
	p.burst.Leader, p.err = true, errors.New("connection refused")
	if _, err := plugin.Query("gpus", sdk.TimeRange{From: noon, To: noon}); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("error = %v", err)
	}
	if _, err := New(hclog.NewNullLogger()).Query("gpus", sdk.TimeRange{}); err == nil {
		t.Error("a plugin that is not configured answers")
	}
}

func TestQueryMultipleGivesEveryName(t *testing.T) {
	got, err := configured(t, busy()).QueryMultiple("nodes_wanted/*", sdk.TimeRange{From: noon, To: noon})
	if err != nil {
		t.Fatal(err)
	}
	want := []sdk.TimestampedMetrics{{{Timestamp: noon, Value: 4}}, {{Timestamp: noon, Value: 0}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRangesAreAnsweredFromWhatWasKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := busy()
		plugin := New(hclog.NewNullLogger())
		begin := time.Now()
		plugin.start(p, 10*time.Second, time.Minute)
		defer plugin.Close()
		for i := range 12 { // samples at 0, 10, … 110 s: GPUs 64, 65, …
			synctest.Wait()
			p.set(func(p *planner) { p.status.Counts.GPUs = 65 + i })
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		values := func(text string, from, to time.Duration) []float64 {
			got, err := plugin.Query(text, sdk.TimeRange{From: begin.Add(from), To: begin.Add(to)})
			if err != nil {
				t.Fatal(err)
			}
			var out []float64
			for _, m := range got {
				out = append(out, m.Value)
			}
			return out
		}
		if diff := cmp.Diff([]float64{71, 72, 73}, values("gpus", 70*time.Second, 95*time.Second)); diff != "" {
			t.Errorf("range (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff([]float64{73}, values("max_gpus", 70*time.Second, 95*time.Second)); diff != "" {
			t.Errorf("max (-want +got)\n%s", diff)
		}
		if got := values("gpus", 0, 55*time.Second); got != nil {
			t.Errorf("samples older than the retention are kept: %v", got)
		}
		p.set(func(p *planner) { p.err = errors.New("away") })
		if _, err := plugin.Query("gpus", sdk.TimeRange{From: begin, To: time.Now()}); err == nil {
			t.Error("old samples stand for the present ones of a planner that is away")
		}
	})
}

func TestConfigSaysEveryFault(t *testing.T) {
	plugin := New(hclog.NewNullLogger())
	err := plugin.SetConfig(map[string]string{KeyInterval: "no", KeyRetention: "-1h"})
	for _, want := range []string{"planner_address", KeyInterval, KeyRetention} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
	if err := plugin.SetConfig(map[string]string{"planner_address": "http://planner:4656", KeyInterval: "1ms", KeyRetention: "24h"}); err == nil {
		t.Error("86,400,000 samples are kept")
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"nodes_wanted/eu", "p95_queue_wait_s/lab/a", "avg_", "/", "avg_gpus"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := parse(text)
		if err != nil {
			return
		}
		if _, known := metrics[q.metric]; !known {
			t.Errorf("%q is read as %+v", text, q)
		}
	})
}
