package apply_test

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/record"
)

// Whoever wants to know is told of each batch job that has ended: what it had,
// whether it came to its own end, and when it did, not when that was seen.
func TestEnded(t *testing.T) {
	for name, tt := range map[string]struct {
		kind, status  string
		stopped       bool
		wantNone      bool
		wantCompleted bool
	}{
		"completed":         {kind: "batch", status: api.AllocClientStatusComplete, wantCompleted: true},
		"failed":            {kind: "batch", status: api.AllocClientStatusFailed},
		"stopped by a user": {kind: "batch", status: api.AllocClientStatusComplete, stopped: true},
		"a service":         {kind: "service", status: api.AllocClientStatusComplete, stopped: true, wantNone: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 2)
			f.submit(gatedJob("job", tt.kind, "job", 2, 8))
			var told []apply.Ending
			opts := options()
			opts.Ended = func(e apply.Ending) { told = append(told, e) }
			e := apply.NewExecutor(f.client, f, opts)
			run(t, f, e, "it runs", phase("job", record.PhaseRunning))
			admitted := f.records["default/job"].Admitted
			end := admitted.Add(time.Hour)
			f.now = end.Add(24 * time.Hour) // nobody looked for a day
			f.jobs["job"].Status, f.jobs["job"].Stop = ptr("dead"), ptr(tt.stopped)
			for _, a := range f.allocs {
				a.ClientStatus, a.ModifyTime = tt.status, end.UnixNano()
				if tt.stopped {
					a.DesiredStatus = api.AllocDesiredStatusStop
				}
			}
			for range 3 {
				e.Execute(t.Context(), f.view(), nil)
				f.tick()
			}
			if _, there := f.records["default/job"]; there {
				t.Fatal("the record is still there")
			}
			if len(told) != map[bool]int{false: 1, true: 0}[tt.wantNone] {
				t.Fatalf("told %+v", told)
			}
			if tt.wantNone {
				return
			}
			got := told[0]
			if got.Job.ID != "job" || got.Completed != tt.wantCompleted || !got.At.Equal(end) || got.Service.Ran != time.Hour || got.Service.GPUSeconds != 16*3600 {
				t.Errorf("told %+v", got)
			}
		})
	}
}
