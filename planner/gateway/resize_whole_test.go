package gateway_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
)

// TestSizeOfARunningJob changes counts through the gateway, with the whole
// planner behind it: who stays keeps its allocation.
func TestSizeOfARunningJob(t *testing.T) {
	onStacks(t, func(s *stack) {
		for _, gang := range []string{"job", "none"} {
			id := "sized-" + gang
			job := func(count int) *api.Job {
				task := api.NewTask("main", "raw_exec").SetConfig("command", "/bin/sleep").SetConfig("args", []string{"100000"})
				task.Resources = &api.Resources{CPU: new(50), MemoryMB: new(32), Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: new(uint64(8))}}}
				group := api.NewTaskGroup("w", count).AddTask(task)
				group.Meta = map[string]string{"caravan_min": "1", "caravan_max": "3"}
				j := api.NewServiceJob(id, id, "global", 50).AddTaskGroup(group)
				j.Datacenters = []string{"*"}
				return j.SetMeta("caravan_gang", gang)
			}
			if _, _, err := s.user.Jobs().Register(job(1), nil); err != nil {
				s.Fatal(err)
			}
			before := s.members(id, 1)
			plan, _, err := s.user.Jobs().Plan(job(3), true, nil)
			if err != nil {
				s.Fatal(err)
			}
			if diff := cmp.Diff(&api.DesiredUpdates{InPlaceUpdate: 1, Place: 2}, plan.Annotations.DesiredTGUpdates["w"]); diff != "" {
				s.Errorf("forecast (-want +got):\n%s", diff)
			}
			resp, _, err := s.user.Jobs().Register(job(3), nil)
			if err != nil {
				s.Fatal(err)
			}
			s.has(resp.Warnings, `resized where it runs: group "w" from 1 to 3: 1 run on, 2 more are placed`)
			grown := s.members(id, 3)
			s.stay(before, grown)
			resp, _, err = s.user.Jobs().Scale(id, "w", new(2), "", false, nil, nil)
			if err != nil {
				s.Fatal(err)
			}
			s.has(resp.Warnings, `group "w" from 3 to 2: 2 run on, 1 stop.`)
			shrunk := s.members(id, 2)
			s.stay(shrunk, grown)
			if _, _, err := s.user.Jobs().Scale(id, "w", new(4), "", false, nil, nil); gang == "job" && (err == nil || !strings.Contains(err.Error(), "allowed is 1 to 3")) {
				s.Errorf("a count beyond the bounds: %v", err)
			}
			seen, _, err := s.user.Jobs().Info(id, nil)
			if err != nil || *seen.TaskGroups[0].Count != 2 || len(seen.TaskGroups) != 1 {
				s.Errorf("the job is shown with %d groups: %v", len(seen.TaskGroups), err)
			}
			if _, _, err := s.user.Jobs().Deregister(id, true, nil); err != nil {
				s.Fatal(err)
			}
			s.until("it has stopped", func() error { return s.stopped(shrunk) })
		}
	})
}

// stay checks that all of some allocations are among others.
func (s *stack) stay(some, all []*api.AllocationListStub) {
	s.Helper()
	for _, a := range some {
		if !slices.ContainsFunc(all, func(b *api.AllocationListStub) bool { return a.ID == b.ID }) {
			s.Errorf("allocation %s (%s) is not the same any more", a.ID, a.Name)
		}
	}
}
