package server

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// children are a periodic job's, by the hour of their launch.
func (w *world) children(parent string) []int {
	var out []int
	w.s.store.View(func(v *state.View) {
		for _, j := range v.Jobs("default") {
			if strings.HasPrefix(*j.ID, parent+"/periodic-") {
				out = append(out, int(time.Unix(0, *j.SubmitTime).Sub(time.Unix(0, *v.Job(state.Key{Namespace: "default", ID: parent}).SubmitTime)).Hours()))
			}
		}
	})
	slices.Sort(out)
	return out
}

func TestPeriodicJobs(t *testing.T) {
	tests := map[string]struct {
		config api.PeriodicConfig
		want   []int // hours after the registration with a launch, of eight
	}{
		"no cron":    {api.PeriodicConfig{Spec: ptr("@every_is_no_cron")}, nil},
		"cron":       {api.PeriodicConfig{Spec: ptr("0 */2 * * *")}, []int{2, 4, 6, 8}},
		"two crons":  {api.PeriodicConfig{Specs: []string{"0 */4 * * *", "0 */3 * * *"}}, []int{3, 4, 6, 8}},
		"no overlap": {api.PeriodicConfig{Spec: ptr("0 */2 * * *"), ProhibitOverlap: ptr(true)}, []int{2}},
		"off":        {api.PeriodicConfig{Spec: ptr("0 * * * *"), Enabled: ptr(false)}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "n1")
			// To midnight, so that hours of the day are hours of the test.
			w.advance(w.clock.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(w.clock.Now()))
			j := job("tick", api.JobTypeBatch, 1, 0)
			j.Periodic = &test.config
			j.Periodic.SpecType = ptr(api.PeriodicSpecCron)
			_, err := w.s.Register(&api.JobRegisterRequest{Job: j}, "")
			if strings.HasPrefix(deref(test.config.Spec), "@every") {
				if err == nil || !strings.Contains(err.Error(), "Invalid cron spec") {
					t.Errorf("error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			w.s.Step()
			for range 8 {
				w.advance(time.Hour)
			}
			if diff := cmp.Diff(test.want, w.children("tick")); diff != "" {
				t.Errorf("launches (-want +got):\n%s", diff)
			}
		})
	}
}
