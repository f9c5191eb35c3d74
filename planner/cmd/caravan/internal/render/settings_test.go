package render

import (
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
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

// Who gives way is told by the names that the configuration has, also where nobody does.
func TestPolicyTellsWhoGivesWay(t *testing.T) {
	for name, tt := range map[string]struct {
		policy queue.Policy
		want   []string
	}{
		"nobody":                {want: []string{"preempt.enabled false", "preempt.unsaved true", "elastic.enabled true"}},
		"who saves his work":    {policy: queue.Policy{Preempt: preempt.Policy{Enabled: true, SavedOnly: true}}, want: []string{"preempt.enabled true", "preempt.unsaved false"}},
		"everybody":             {policy: queue.Policy{Preempt: preempt.Policy{Enabled: true}}, want: []string{"preempt.enabled true", "preempt.unsaved true"}},
		"gangs keep their size": {policy: queue.Policy{Elastic: queue.Elastic{Disabled: true}}, want: []string{"elastic.enabled false"}},
	} {
		var b strings.Builder
		if err := Policy(&b, Style{}, httpapi.Settings{Policy: httpapi.PolicySetting{Policy: tt.policy}}); err != nil {
			t.Fatal(err)
		}
		said := " " + strings.Join(strings.Fields(b.String()), " ") + " "
		for _, want := range tt.want {
			if !strings.Contains(said, " "+want+" ") {
				t.Errorf("%s: %q is not there:\n%s", name, want, b.String())
			}
		}
		for _, not := range []string{"saved_only", "disabled"} {
			if strings.Contains(said, not) {
				t.Errorf("%s: %q cannot be set:\n%s", name, not, b.String())
			}
		}
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
