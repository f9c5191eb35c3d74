package render

import (
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// GPU-seconds are shown in the hours that they are set in, too.
func TestPolicyInHours(t *testing.T) {
	var b strings.Builder
	set := httpapi.Settings{Policy: httpapi.PolicySetting{Policy: queue.Policy{LAS: queue.LAS{Thresholds: []float64{3600, 5400}}}}}
	if err := Policy(&b, Style{}, set); err != nil || !strings.Contains(b.String(), "las.thresholds_gpu_s  [3600 5400] (1, 1.5 GPU-hours)") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// Sentences in tables are broken into lines that a terminal shows.
func TestSentencesAreWrapped(t *testing.T) {
	long := strings.Repeat("gives way to another ", 20)
	for name, write := range map[string]func(*strings.Builder) error{
		"preemptions": func(b *strings.Builder) error {
			return Preemptions(b, Style{}, []model.Preemption{{Job: "a", Reason: long}})
		},
		"sizes": func(b *strings.Builder) error { return Resizes(b, Style{}, []model.Resize{{Job: "a", Reason: long}}) },
	} {
		var b strings.Builder
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if len(line) > 160 {
				t.Errorf("%s: a line of %d characters: %s", name, len(line), line)
			}
		}
		if n := strings.Count(b.String(), "another"); n != 20 {
			t.Errorf("%s: %d of 20 parts of the sentence are there", name, n)
		}
	}
}
