package gateway_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// TestPurgedJobKeepsItsGPUs: the next job starts when the tasks of a purged one
// have had their kill_timeout, though Nomad calls its GPUs free before.
func TestPurgedJobKeepsItsGPUs(t *testing.T) {
	onStacks(t, func(s *stack) {
		pids := s.TempDir()
		submit := func(id, script string) {
			job := api.NewBatchJob(id, id, "global", 50)
			job.Datacenters = []string{"*"}
			job.SetMeta("caravan_gang", "job")
			task := api.NewTask("main", "raw_exec").SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", script})
			task.KillTimeout = new(7 * time.Second)
			task.Resources = &api.Resources{CPU: new(50), MemoryMB: new(32), Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: new(uint64(8))}}}
			job.AddTaskGroup(api.NewTaskGroup("g", 3).AddTask(task))
			if _, _, err := s.user.Jobs().Register(job, nil); err != nil {
				s.Fatal(err)
			}
		}
		submit("stubborn", "trap '' TERM INT; echo $$ > "+pids+"/$NOMAD_ALLOC_INDEX; while :; do sleep 0.2; done")
		s.members("stubborn", 3)
		var running []int
		s.until("the tasks have told their process IDs", func() error {
			running = nil
			for i := range 3 {
				text, err := os.ReadFile(filepath.Join(pids, strconv.Itoa(i)))
				if err != nil {
					return err
				}
				pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
				if err != nil {
					return err
				}
				running = append(running, pid)
			}
			return nil
		})
		if _, _, err := s.user.Jobs().Deregister("stubborn", true, nil); err != nil {
			s.Fatal(err)
		}
		submit("next", "for pid in "+strings.Trim(fmt.Sprint(running), "[]")+"; do kill -0 $pid && exit 1; done; exec sleep 100000")
		s.until("who waits is told why", func() error {
			if _, text := s.get("/caravan/v1/explain/default/next"); !strings.Contains(text, "the purged job stubborn (its tasks may take until ") {
				return fmt.Errorf("it is told %s", text)
			}
			return nil
		})
		s.members("next", 3)
		for _, pid := range running {
			if err := syscall.Kill(pid, 0); err == nil {
				s.Errorf("process %d of the purged job is there still", pid)
			}
		}
	})
}
