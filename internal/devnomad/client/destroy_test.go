package client

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad/clock"
	"github.com/caravan-sched/caravan/internal/devnomad/server"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// slowServer holds a client up in its first report until it is let go.
type slowServer struct {
	*server.Server
	reporting, letGo chan struct{}
}

func (s *slowServer) UpdateAllocs(reports []*api.Allocation) error {
	select {
	case s.reporting <- struct{}{}:
		<-s.letGo
	default:
	}
	return s.Server.UpdateAllocs(reports)
}

func shellJob(id, script string) *api.Job {
	task := api.NewTask("main", "raw_exec").SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", script})
	return api.NewBatchJob(id, id, "global", 50).AddDatacenter("*").AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(task))
}

func newServer(t *testing.T) *server.Server {
	t.Helper()
	s := server.New(server.Config{Clock: clock.Real{}, LostAfter: time.Hour, Log: func(line string) { t.Log(line) }})
	run, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(run) }()
	t.Cleanup(func() { cancel(); <-ended })
	return s
}

func start(t *testing.T, s Server) *Client {
	t.Helper()
	c := New(Config{
		Node: devcluster.Node{Name: "a"}, ID: "0b9a5f2c-0000-4000-8000-000000000001", Dir: t.TempDir(),
		Capacity: Capacity{CPUMHz: 9000, Cores: 9, MemoryMiB: 9000, DiskMiB: 9000}, Clock: clock.Real{}, Server: s,
	})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func register(t *testing.T, s *server.Server, j *api.Job) {
	t.Helper()
	if _, err := s.Register(&api.JobRegisterRequest{Job: j}, ""); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came: %s", what)
		}
	}
}

// What the server places while a client is destroyed is ended too.
func TestDestroyEndsWhatBeginsMeanwhile(t *testing.T) {
	for range 20 {
		s := &slowServer{Server: newServer(t), reporting: make(chan struct{}), letGo: make(chan struct{})}
		c := start(t, s)
		register(t, s.Server, shellJob("first", "exec sleep 60"))
		<-s.reporting
		register(t, s.Server, shellJob("second", "exec sleep 60"))
		eventually(t, "the second job is placed", func() (placed bool) {
			s.Store().View(func(v *state.View) { placed = len(v.AllocsOfNode(c.ID())) == 2 })
			return placed
		})
		destroyed := make(chan struct{})
		go func() { defer close(destroyed); c.Destroy() }()
		eventually(t, "the client is being stopped", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return !c.running
		})
		close(s.letGo)
		<-destroyed
		for _, r := range c.runners {
			select {
			case <-r.done:
			default:
				t.Fatalf("allocation %s of job %s runs on", r.alloc.ID, r.alloc.JobID)
			}
		}
	}
}

// What a task leaves in its process group is gone when the task is.
func TestDestroyWaitsForTheProcessGroup(t *testing.T) {
	s := newServer(t)
	c := start(t, s)
	mark := filepath.Join(t.TempDir(), "pids")
	register(t, s, shellJob("spawner", "for i in 1 2 3 4 5 6 7 8; do sleep 60 & echo $! >>"+mark+"; done; echo done >>"+mark+"; exec sleep 60"))
	var pids []string
	eventually(t, "the task has spawned", func() bool {
		raw, err := os.ReadFile(mark)
		pids = strings.Fields(string(raw))
		return err == nil && strings.HasSuffix(string(raw), "done\n")
	})
	group := 0
	eventually(t, "the task is known to run", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, r := range c.runners {
			if p, ok := r.tasks["main"].running().(*rawTask); ok {
				group = p.pid()
			}
		}
		return group != 0
	})
	if !groupLives(group) {
		t.Fatalf("process group %d is not seen", group)
	}
	c.Destroy()
	for _, pid := range pids[:len(pids)-1] {
		raw, err := os.ReadFile("/proc/" + pid + "/stat")
		if err == nil && !strings.Contains(string(raw), ") Z ") {
			t.Errorf("process %s lives on: %s", pid, raw)
		}
		if _, err := strconv.Atoi(pid); err != nil {
			t.Errorf("%q is no process", pid)
		}
	}
}
