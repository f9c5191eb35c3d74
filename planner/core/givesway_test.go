package core

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// All four nodes are taken by jobs of 20 hours, and S of an hour waits. Where most of what
// runs and waits may be stopped it displaces one; where most may not nobody does for the
// sake of the order, and the others for what they had to do before: a higher priority.
func TestWhoGivesWay(t *testing.T) {
	const long = " 50 10h runs:20h again:1x4"
	saving, told, losing, firm := long+" saves\n", long+" elastic:1 told\n", long+"\n", long+" saves never\n"
	const served = long + " service never\n"
	for name, tt := range map[string]struct {
		running, jobs string
		unsaved       bool
		want          []string
	}{
		"all save":                              {running: "a" + saving + "b" + saving + "c" + saving + "d" + saving, want: []string{"d to S"}},
		"all have told of a checkpoint":         {running: "a" + told + "b" + told + "c" + told + "d" + told, want: []string{"d to S"}},
		"all lose it, and may":                  {running: "a" + losing + "b" + losing + "c" + losing + "d" + losing, unsaved: true, want: []string{"d to S"}},
		"nobody saves":                          {running: "a" + losing + "b" + losing + "c" + losing + "d" + losing},
		"nobody saves, and S goes before them":  {running: "a" + losing + "b" + losing + "c" + losing + "d" + losing, jobs: "S 1x4 priority:90 runs:1h"},
		"two save":                              {running: "a" + losing + "b" + saving + "c" + losing + "d" + saving, jobs: "S 1x4 priority:50 runs:1h saves", want: []string{"d to S"}},
		"one saves, and more that wait":         {running: "a" + losing + "b" + losing + "c" + losing + "d" + saving, jobs: "S 1x4 priority:50 runs:1h saves\nT 4x4 priority:50 runs:99h saves", want: []string{"d to S"}},
		"one saves":                             {running: "a" + losing + "b" + losing + "c" + losing + "d" + saving},
		"one saves, and S goes before it":       {running: "a" + losing + "b" + losing + "c" + losing + "d" + saving, jobs: "S 1x4 priority:90 runs:1h", want: []string{"d to S"}},
		"most never give way":                   {running: "a" + firm + "b" + firm + "c" + firm + "d" + saving, unsaved: true},
		"services that do not are not reckoned": {running: "a" + served + "b" + served + "c" + served + "d" + saving, jobs: "S 1x4 priority:50 runs:1h saves", want: []string{"d to S"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "b r n1 aaaa\nb r n2 bbbb\nb r n3 cccc\nb r n4 dddd")
			describe(t, s, tt.running)
			if tt.jobs == "" {
				tt.jobs = "S 1x4 priority:50 runs:1h"
			}
			submit(t, s, tt.jobs)
			policy := Policy{Order: queue.OrderCaravan, Preempt: preempt.Policy{Enabled: true, SavedOnly: !tt.unsaved}}
			plan := mustDecide(t, s, policy)
			checkPlan(t, s, plan)
			if diff := cmp.Diff(append([]string{}, tt.want...), gaveWay(plan)); diff != "" {
				t.Errorf("who gives way (-want +got):\n%s\nS: %s", diff, decisionOn(plan, "S").Reason)
			}
		})
	}
}

// Who waits for his turn and keeps nothing until then is told who is in his way; where
// nobody gives way at all, what is kept for him.
func TestWhoIsInTheWay(t *testing.T) {
	for name, tt := range map[string]struct{ running, want string }{
		"who gives way, to others": {"a 50 10m runs:1h saves again:1x4\nb 50 10m runs:1h saves again:1x4",
			"needs 1 member with 4 GPUs; the cluster comes nearest with 0 GPUs free; it can start when n1 has room (a holds 4 GPUs); starts about"},
		"nobody gives way": {"a 50 10m service again:1x4\nb 50 10m service again:1x4",
			"needs 1 member with 4 GPUs; node b/r/n1 comes nearest with 0 GPUs free; it can start when n1 has room (a holds 4 GPUs); kept for it: n1; its place"},
	} {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "b r n1 aaaa\nb r n2 bbbb")
			describe(t, s, tt.running)
			submit(t, s, "W 1x4 priority:50 runs:20h")
			plan := mustDecide(t, s, Policy{Order: queue.OrderCaravan, Preempt: preempt.Policy{Enabled: true, SavedOnly: true}})
			if got := decisionOn(plan, "W").Reason; !strings.HasPrefix(got, tt.want) {
				t.Errorf("is told: %s\nwant:    %s", got, tt.want)
			}
		})
	}
}
