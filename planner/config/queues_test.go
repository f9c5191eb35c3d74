package config

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestQueues(t *testing.T) {
	src := `
queues_file = "queues.hcl"
queue "org" {
  guarantee {
    gpus   = 64
    models = { "NVIDIA H100 80GB HBM3" = 32 }
  }
  weight = 2
}
`
	read := func(path string) ([]byte, error) {
		if path != "/etc/caravan/queues.hcl" {
			return nil, errors.New("asked for " + path)
		}
		return []byte(`
queue "org/b" {
  guarantee { cpu_mhz = 1000 }
  borrow {
    gpus       = 0
    memory_mib = 5
  }
  per_user { gpus = 2 }
  priorities   = { high = 90 }
  reclaim_from = ["org/a"]
  min_run      = "10m"
}
queue "org/a" {
  reclaim = "none"
  default = true
}`), nil
	}
	got, err := parse([]byte(src), "/etc/caravan/caravan.hcl", noEnv, read)
	if err != nil {
		t.Fatal(err)
	}
	want := []model.Queue{
		{Path: "org", Guarantee: map[string]int{"gpu": 64, "gpu/NVIDIA H100 80GB HBM3": 32}, Weight: 2},
		{Path: "org/a", Reclaim: "none", Default: true},
		{Path: "org/b", Guarantee: map[string]int{"cpu_mhz": 1000}, Borrow: map[string]int{"gpu": 0, "memory_mib": 5}, PerUser: map[string]int{"gpu": 2},
			Priorities: map[string]int{"high": 90}, ReclaimFrom: []string{"org/a"}, MinRun: 10 * time.Minute},
	}
	if diff := cmp.Diff(want, got.Queues); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
}

// Every fault is told at once, with its place, those of both files.
func TestQueueFaults(t *testing.T) {
	src := `queues_file = "q.hcl"
policy { half_life = "-1h" }
queue "org" {
  guarantee { gpus = 3 }
  weight = -1
}
queue "org/x" {
  weight  = 0
  min_run = "soon"
}
`
	other := `
queue "org/y" {
  guarantee {
    gpus = 4
    models = { "" = 1 }
  }
  borrow { gpus = -1 }
  reclaim_from = ["nobody"]
}
queue "org" {}
`
	_, err := parse([]byte(src), "c.hcl", noEnv, func(string) ([]byte, error) { return []byte(other), nil })
	if err == nil {
		t.Fatal("no fault found")
	}
	want := []string{
		`c.hcl:2: policy.half_life is "-1h0m0s": want 0s to 8784h0m0s`,
		`c.hcl:4: queue "org": guarantee.gpus: 3: the queues below are guaranteed 4 together; want at least that`,
		`c.hcl:5: queue "org": weight: -1: want more than 0, at most 1e+06`,
		`c.hcl:8: queue[org/x].weight is 0: want more than 0; to let a queue have nothing, give it no guarantee and borrow { gpus = 0 }`,
		`c.hcl:9: queue[org/x].min_run is "soon": want a duration like "90s", "5m" or "1h30m"`,
		`q.hcl:5: queue "org/y": guarantee.models[""]: is no resource: want "gpu", "gpu/MODEL", "cpu_mhz" or "memory_mib"`,
		`q.hcl:7: queue "org/y": borrow.gpus: -1: want 0 to 1125899906842624`,
		`q.hcl:8: queue "org/y": reclaim_from[0]: "nobody": is none of the queues`,
		`q.hcl:10: queue "org": path: "org": another queue before it has this path; want each queue once`,
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestQueuesFileFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		read func(string) ([]byte, error)
		want string
	}{
		"unreadable": {noRead, `c.hcl:1: queues_file is "q.hcl": it cannot be read: no such file`},
		"no HCL":     {func(string) ([]byte, error) { return []byte("queue {"), nil }, "q.hcl:1: "},
		"other keys": {func(string) ([]byte, error) { return []byte("levels = []"), nil }, "q.hcl:1: levels is not known here: allowed are queue"},
	} {
		if _, err := parse([]byte(`queues_file = "q.hcl"`), "c.hcl", noEnv, tt.read); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// Every example of docs/queues.md can be used as it stands.
func TestQueuesDocument(t *testing.T) {
	b, err := os.ReadFile("../../docs/queues.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```hcl\n(.*?)```").FindAllStringSubmatch(string(b), -1)
	if len(found) < 3 {
		t.Errorf("%d examples, want at least 3", len(found))
	}
	for _, m := range found {
		if strings.HasPrefix(m[1], "job ") {
			continue
		}
		if c, err := parse([]byte(m[1]), "queues.md", noEnv, func(string) ([]byte, error) { return []byte(`queue "team" {}`), nil }); err != nil {
			t.Errorf("%v\n%s", err, m[1])
		} else if len(c.Queues) == 0 && !strings.Contains(m[1], "policy") {
			t.Errorf("no queue in %s", m[1])
		}
	}
}
