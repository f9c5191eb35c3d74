package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
)

// gangFile is a gang of two whole nodes that runs until it is stopped.
const gangFile = `
job "train" {
  type = "batch"
  meta { caravan_gang = "job" }
  group "train" {
    count = 2
    task "main" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo started; exec sleep 100000"]
      }
      resources {
        cpu    = 50
        memory = 32
        device "nvidia/gpu" { count = 8 }
      }
    }
  }
}
`

// TestLifeOfAGang uses Nomad's own CLI on a gang that the whole planner leads.
func TestLifeOfAGang(t *testing.T) {
	onStacks(t, func(s *stack) {
		file := s.file(gangFile)
		s.has(s.cli(0, "job", "run", file), "Caravan: admitted")
		first := s.members("train", 2)
		s.lacks(s.cli(0, "job", "inspect", "train"), "caravan_gate", "node.unique.id", "distinct_hosts")
		s.has(s.cli(0, "job", "plan", file), "unchanged")
		s.has(s.cli(1, "job", "run", s.file(strings.Replace(gangFile, "count = 2", "count = 9", 1))), "cannot start", "nomad job stop train")
		history := s.cli(0, "job", "history", "-p", "train")
		s.lacks(history, "caravan_gate", "Constraint")
		if n := strings.Count(history, "Version "); n != 1 {
			s.Errorf("%d versions are shown, want the user's one:\n%s", n, history)
		}

		// In place, and once each.
		s.cli(0, "job", "restart", "-yes", "train")
		s.until("both members were restarted", func() error {
			for _, a := range s.members("train", 2) {
				if a.TaskStates["main"].Restarts == 0 {
					return fmt.Errorf("%s was not", a.Name)
				}
			}
			return nil
		})
		for _, a := range s.members("train", 2) {
			if n := a.TaskStates["main"].Restarts; n != 1 {
				s.Errorf("%s was restarted %d times, want once", a.Name, n)
			}
		}
		s.replacedWhole(first, "alloc", "stop", first[0].ID)

		rescheduled := s.members("train", 2)
		s.replacedWhole(rescheduled, "job", "restart", "-reschedule", "-yes", "train")

		before := s.members("train", 2)
		s.cli(0, "job", "tag", "apply", "-name", "good", "train")
		s.has(s.cli(1, "job", "scale", "train", "train", "4"), "cannot start")
		s.cli(either, "job", "scale", "train", "train", "3")
		s.until("the smaller gang has stopped", func() error { return s.stopped(before) })
		s.replaced(before, s.members("train", 3))
		s.has(s.cli(0, "job", "history", "train"), "good")

		grown := s.members("train", 3)
		s.has(s.cli(1, "job", "revert", "train", "99"), "not found")
		s.cli(either, "job", "revert", "train", "good")
		back := s.members("train", 2)
		s.replaced(grown, back)

		s.cli(0, "job", "stop", "train")
		s.until("the gang has stopped", func() error { return s.stopped(back) })
		s.cli(either, "job", "start", "train")
		s.replaced(back, s.members("train", 2))
		s.has(s.cli(0, "job", "plan", file), "unchanged")
		s.cli(0, "job", "stop", "-purge", "train")
		s.until("the gang is gone", func() error {
			if _, _, err := s.user.Jobs().Info("train", nil); err == nil {
				return fmt.Errorf("the job is still there")
			}
			return nil
		})
	})
}

// replacedWhole runs a command that replaces all members.
func (s *stack) replacedWhole(before []*api.AllocationListStub, args ...string) {
	s.Helper()
	s.cli(0, args...)
	s.until("all members are new", func() error {
		return s.stopped(before)
	})
	s.replaced(before, s.members("train", len(before)))
}

// stopped says which of the allocations still run.
func (s *stack) stopped(allocs []*api.AllocationListStub) error {
	for _, a := range allocs {
		now, _, err := s.nomad.Allocations().Info(a.ID, nil)
		if err != nil && strings.Contains(err.Error(), "404") {
			continue // collected
		}
		if err != nil {
			return err
		}
		if !now.ClientTerminalStatus() {
			return fmt.Errorf("%s is %s", now.Name, now.ClientStatus)
		}
	}
	return nil
}
