package devrun

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/nomadproc"
)

// A job that the scenario stops is reported and judged like the others.
func TestStoppedJobsAreJudged(t *testing.T) {
	report, err := Run(t.Context(), Options{Scenario: ScenarioFull, Backend: devcluster.BackendDevNomad, Plugin: build(t), Once: true})
	if err != nil {
		t.Fatal(err)
	}
	var gangs []string
	for _, g := range report.Gangs {
		gangs = append(gangs, g.Job)
		if len(g.Members) != trainGangMembers || g.Reason == "" {
			t.Errorf("%s: %d members, reason %q", g.Job, len(g.Members), g.Reason)
		}
		for _, check := range []string{"as-planned:", "whole-islands:"} {
			if !slices.ContainsFunc(report.Checks, func(c Check) bool { return c.Name == check+g.Job && c.OK }) {
				t.Errorf("%s%s is not checked: %+v", check, g.Job, report.Checks)
			}
		}
	}
	if diff := cmp.Diff([]string{"first-gang", "second-gang"}, gangs); diff != "" {
		t.Errorf("gangs (-want +got):\n%s", diff)
	}
}

// A report says on what it ran, also when that did not start.
func TestReportNamesItsBackend(t *testing.T) {
	t.Setenv(nomadproc.EnvBinary, filepath.Join(t.TempDir(), "nomad"))
	for want, opts := range map[string]Options{
		devcluster.BackendNomad:    {Plugin: "/bin/true"},
		devcluster.BackendDevNomad: {Plugin: "/nonexistent", Backend: devcluster.BackendDevNomad},
	} {
		report, err := Run(t.Context(), opts)
		if err == nil || report.Backend != want {
			t.Errorf("back end %q, want %q; error %v", report.Backend, want, err)
		}
	}
}
