package product

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// EnvKills is how many times each change is made while the planner is killed; without
// it once, on the stand-in.
const EnvKills = "CARAVAN_KILLS"

// changing lets the planner do all that it may, at once.
const changing = `
policy {
  preempt {
    unsaved      = true
    min_run_time = "0s"
    max_per_job  = 1000
    max_per_hour = 100000
  }
  defrag {
    enabled      = true
    min_run_time = "1s"
    again        = "1s"
    max_per_hour = 100000
    max_per_job  = 1000
  }
  elastic {
    min_interval = "1s"
    max_per_hour = 100000
  }
}
`

// sleeper is a job of members that sleep.
type sleeper struct {
	name                    string
	members, gpus, priority int
	most                    int
	topology, rack, move    string
}

func (s sleeper) text() string {
	meta := map[string]string{"caravan_gang": "job", "caravan_duration": "1h", "caravan_topology": s.topology, "caravan_move": s.move}
	bounds, where := "", ""
	if s.most > 0 {
		bounds = fmt.Sprintf("    meta {\n      caravan_min = \"1\"\n      caravan_max = \"%d\"\n    }\n", s.most)
	}
	if s.rack != "" {
		where = fmt.Sprintf("  constraint {\n    attribute = \"${meta.caravan_rack}\"\n    value     = %q\n  }\n", s.rack)
	}
	var lines strings.Builder
	for key, value := range meta {
		if value != "" {
			fmt.Fprintf(&lines, "    %s = %q\n", key, value)
		}
	}
	return fmt.Sprintf(`
job %q {
  type     = "batch"
  priority = %d
  meta {
%s  }
%s  group "g" {
    count = %d
%s    reschedule {
      attempts  = 0
      unlimited = false
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["3600"]
      }
      resources {
        cpu    = 100
        memory = 64
        device "nvidia/gpu" {
          count = %d
        }
      }
    }
  }
}
`, s.name, s.priority, lines.String(), where, s.members, bounds, s.gpus)
}

// submit runs a job file, whether a planner is there or not.
func (p *product) submit(s sleeper) (code int) {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), s.name+".hcl")
	if err := os.WriteFile(path, []byte(s.text()), 0o600); err != nil {
		p.t.Fatal(err)
	}
	_, _, code = p.run("run", "--detach", path)
	return code
}

// has waits until a job has so many members, on the GPUs that were decided, and
// nobody else has these.
func (p *product) has(job string, members int) {
	p.t.Helper()
	p.until(fmt.Sprintf("%s has %d members", job, members), func() (bool, any) {
		e, err := p.caravan.Explain(p.t.Context(), "default", job)
		if err != nil {
			return false, err
		}
		state := model.StateRunning
		if members == 0 {
			state = model.StateQueued
		}
		return e.State == state && e.Placed == members && len(p.allocs(job)) == members, fmt.Sprintf("%s with %d: %s", e.State, e.Placed, e.Reason)
	})
	p.placed(job)
}

// ending is how a change ends, whenever the planner was killed in between.
type ending struct {
	before []sleeper
	// stop is stopped, and change submitted.
	stop   string
	change sleeper
	after  map[string]int
}

var endings = map[string]ending{
	"preempt": {
		before: []sleeper{{name: "beside", members: 1, gpus: 8, priority: 90, rack: "r2"}, {name: "low", members: 2, gpus: 8, priority: 20, topology: "require:rack"}},
		change: sleeper{name: "high", members: 2, gpus: 8, priority: 80, topology: "require:rack"},
		after:  map[string]int{"beside": 1, "low": 0, "high": 2},
	},
	"defrag": {
		before: []sleeper{{name: "beside", members: 1, gpus: 8, priority: 50, rack: "r2"}, {name: "stays", members: 1, gpus: 4, priority: 50, rack: "r1", move: "never"},
			{name: "gap", members: 1, gpus: 4, priority: 50, rack: "r1"}, {name: "moves", members: 2, gpus: 2, priority: 50, topology: "require:node", rack: "r1"}},
		stop:   "gap",
		change: sleeper{name: "whole", members: 1, gpus: 8, priority: 50},
		after:  map[string]int{"beside": 1, "stays": 1, "moves": 2, "whole": 1},
	},
	"grow": {
		change: sleeper{name: "grows", members: 1, most: 3, gpus: 8, priority: 50},
		after:  map[string]int{"grows": 3},
	},
	"give back": {
		before: []sleeper{{name: "grows", members: 1, most: 3, gpus: 8, priority: 50}},
		change: sleeper{name: "needs", members: 1, gpus: 8, priority: 50},
		after:  map[string]int{"grows": 2, "needs": 1},
	},
}

// TestPlannerKilledInAChange kills the planner with SIGKILL at some moment of each of
// its changes. The next one finishes what was
// begun, or undoes it and does it again: in the end all is as it was to be, and at no
// GPU are two.
func TestPlannerKilledInAChange(t *testing.T) {
	rounds, where := 1, onStandIn
	if n, err := strconv.Atoi(os.Getenv(EnvKills)); err == nil {
		rounds, where = n, onEach
	}
	for name, e := range endings {
		t.Run(name, func(t *testing.T) {
			where(t, func(t *testing.T, p *product) {
				path := filepath.Join(t.TempDir(), "policy.hcl")
				if err := os.WriteFile(path, []byte(changing), 0o600); err != nil {
					t.Fatal(err)
				}
				p.must(0, "policy", "set", path)
				for range rounds {
					p.killIn(e)
				}
			})
		})
	}
}

// killIn makes a change once, kills the planner meanwhile, and looks how it ends.
func (p *product) killIn(e ending) {
	p.t.Helper()
	for _, s := range e.before {
		p.submit(s)
		p.has(s.name, max(s.members, s.most))
	}
	if e.stop != "" {
		if _, _, err := p.nomad.Jobs().Deregister(e.stop, false, nil); err != nil {
			p.t.Fatal(err)
		}
		p.until(e.stop+" is gone", func() (bool, any) { n := len(p.allocs(e.stop)); return n == 0, n })
	}
	after := time.Duration(rand.Int64N(int64(p.changeTakes())))
	done := make(chan int)
	go func() { done <- p.submit(e.change) }()
	time.Sleep(after)
	p.t.Logf("killed after %s", after)
	p.stop(syscall.SIGKILL)
	code := <-done
	p.start()
	if code != 0 && code != 2 { // the planner was not there, or not any more
		if code = p.submit(e.change); code != 0 && code != 2 {
			p.t.Fatalf("run: exit code %d", code)
		}
	}
	for job, members := range e.after {
		p.has(job, members)
	}
	p.nobodyTwice()
	jobs, _, err := p.nomad.Jobs().List(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, j := range jobs {
		if _, _, err := p.nomad.Jobs().Deregister(j.ID, false, nil); err != nil {
			p.t.Fatal(err)
		}
	}
	p.free()
	for _, j := range jobs {
		p.deregister(j.ID)
	}
}

// changeTakes is about how long a change takes on a cluster.
func (p *product) changeTakes() time.Duration {
	if strings.HasSuffix(p.t.Name(), "/"+devcluster.BackendDevNomad) {
		return 600 * time.Millisecond
	}
	return 6 * time.Second
}

// nobodyTwice checks that no GPU has two holders.
func (p *product) nobodyTwice() {
	p.t.Helper()
	jobs, _, err := p.nomad.Jobs().List(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	by := map[string]string{}
	for _, j := range jobs {
		for _, a := range p.allocs(j.ID) {
			for _, gpu := range gpusOf(a) {
				if other := by[gpu]; other != "" {
					p.t.Errorf("GPU %s has two holders: %s and %s", gpu, other, a.Name)
				}
				by[gpu] = a.Name
			}
		}
	}
}
