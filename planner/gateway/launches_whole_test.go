package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
)

// launchFile is a gang that is launched by others: %s says how.
const launchFile = `
job "sweep" {
  type = "batch"
  meta { caravan_gang = "job" }
  %s
  group "sweep" {
    count = 2
    task "main" {
      driver = "raw_exec"
      %s
      config {
        command = "/bin/sh"
        args    = ["-c", "echo parent $NOMAD_JOB_PARENT_ID lr $NOMAD_META_lr; cat local/in/put.bin; exec sleep 100000"]
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

// TestLaunches dispatches a parameterized job and forces a periodic one.
func TestLaunches(t *testing.T) {
	onStacks(t, func(s *stack) {
		if s.cluster.Backend() == devcluster.BackendDevNomad {
			s.Skip("the stand-in launches no jobs by itself")
		}
		parent := s.file(fmt.Sprintf(launchFile, `parameterized {
    payload       = "required"
    meta_required = ["lr"]
  }`, `dispatch_payload { file = "in/put.bin" }`))
		s.cli(0, "job", "run", parent)
		s.has(s.cli(1, "job", "dispatch", "-meta", "lr=0.1", "sweep"), "Payload is not provided")
		payload := "line {{ key }}\n\x00\xff end"
		input := s.file(payload)
		s.has(s.cli(either, "job", "dispatch", "-meta", "lr=0.1", "sweep", input), "Dispatched Job ID = sweep/dispatch-")
		child := s.launch("sweep/dispatch-")
		members := s.members(child, 2)
		s.until("the member has read its input", func() error {
			out := s.stdout(members[0].ID)
			if want := "parent sweep lr 0.1\n" + payload; out != want {
				return fmt.Errorf("output %q, want %q", out, want)
			}
			return nil
		})
		s.cli(0, "job", "stop", "-purge", "-detach", child)
		s.until("it has stopped", func() error { return s.stopped(members) })

		s.cli(0, "job", "stop", "-purge", "sweep")
		periodic := s.file(fmt.Sprintf(launchFile, `periodic { crons = ["0 3 1 1 *"] }`, ""))
		s.has(s.cli(0, "job", "run", periodic), "each launch of this periodic job is queued")
		s.lacks(s.cli(0, "job", "inspect", "sweep"), "caravan_gate")
		s.cli(0, "job", "plan", periodic)
		s.cli(either, "job", "periodic", "force", "sweep")
		child = s.launch("sweep/periodic-")
		members = s.members(child, 2)
		if members[0].NodeID == members[1].NodeID {
			s.Errorf("both members are on node %s", members[0].NodeID)
		}
	})
}

// launch waits for a job whose ID begins so.
func (s *stack) launch(prefix string) string {
	s.Helper()
	var id string
	s.until("there is a job "+prefix+"…", func() error {
		jobs, _, err := s.nomad.Jobs().PrefixList(prefix)
		if err != nil {
			return err
		}
		if len(jobs) != 1 {
			return fmt.Errorf("%d such jobs", len(jobs))
		}
		id = jobs[0].ID
		return nil
	})
	return id
}

func (s *stack) stdout(alloc string) string {
	s.Helper()
	a, _, err := s.nomad.Allocations().Info(alloc, nil)
	if err != nil {
		s.Fatal(err)
	}
	out, err := s.user.AllocFS().Cat(a, "alloc/logs/main.stdout.0", nil)
	if err != nil {
		return err.Error()
	}
	defer out.Close()
	data, err := io.ReadAll(out)
	if err != nil {
		s.Fatal(err)
	}
	return string(data)
}

// serviceFile is a service of replicas that are placed one by one.
const serviceFile = `
job "serve" {
  type      = "service"
  namespace = "team"
  meta { caravan_gang = "none" }
  update {
    max_parallel = 1
    auto_revert  = true
  }
  group "replica" {
    count = 2
    scaling {
      enabled = true
      min     = 1
      max     = 4
    }
    task "main" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "exec sleep 100000"]
      }
      resources {
        cpu    = 50
        memory = 32
        device "nvidia/gpu" { count = 2 }
      }
    }
  }
}
`

// TestRunJobPage does what the UI's page for running a job does, in a namespace
// of its own, and then reads what the UI's job page reads.
func TestRunJobPage(t *testing.T) {
	onStacks(t, func(s *stack) {
		if _, err := s.user.Namespaces().Register(&api.Namespace{Name: "team"}, nil); err != nil {
			s.Fatal(err)
		}
		post := func(path string, body any) []byte {
			s.Helper()
			data, err := json.Marshal(body)
			if err != nil {
				s.Fatal(err)
			}
			resp, err := http.Post(s.address+path, "application/json", strings.NewReader(string(data)))
			if err != nil {
				s.Fatal(err)
			}
			defer resp.Body.Close()
			out, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK {
				s.Fatalf("%s: %d %s, %v", path, resp.StatusCode, out, err)
			}
			return out
		}
		definition := json.RawMessage(post("/v1/jobs/parse?namespace=*", map[string]any{"JobHCL": serviceFile, "Canonicalize": true}))
		plan := post("/v1/job/serve/plan?namespace=team", map[string]any{"Job": definition, "Diff": true})
		s.has(string(plan), `"Type":"Added"`, "would be admitted now")
		s.lacks(string(plan), "caravan_gate")
		post("/v1/jobs?namespace=team", map[string]any{"Job": definition, "Submission": map[string]any{"Source": serviceFile, "Format": "hcl2"}})
		s.until("both replicas run", func() error { return s.summary("replica", 2) })

		job, _, err := s.user.Jobs().Info("serve", &api.QueryOptions{Namespace: "team"})
		if err != nil {
			s.Fatal(err)
		}
		group := job.TaskGroups[0]
		if len(job.TaskGroups) != 1 || *group.Name != "replica" || *group.Count != 2 || *group.Update.MaxParallel != 1 || !*group.Update.AutoRevert || *group.Scaling.Max != 4 {
			s.Errorf("shown: %+v, update %+v, scaling %+v", group, group.Update, group.Scaling)
		}
		code, page := s.get("/ui/jobs/serve@team")
		direct, err := http.Get(s.cluster.Address() + "/ui/jobs/serve@team")
		if err != nil {
			s.Fatal(err)
		}
		defer direct.Body.Close()
		if own, err := io.ReadAll(direct.Body); err != nil || direct.StatusCode != code || string(own) != page {
			s.Errorf("the UI's page: %d, %d bytes; Nomad's own: %d, %d bytes, %v", code, len(page), direct.StatusCode, len(own), err)
		}

		s.revertUpdate()

		// Counts do not change in the middle of an update.
		s.until("the update is through and a new count is taken in", func() error {
			_, _, err := s.user.Jobs().Scale("serve", "replica", new(3), "", false, nil, &api.WriteOptions{Namespace: "team"})
			return err
		})
		s.until("three replicas run", func() error { return s.summary("replica", 3) })
		_, _, err = s.user.Jobs().Scale("serve", "replica", new(5), "", false, nil, &api.WriteOptions{Namespace: "team"})
		if err == nil || !strings.Contains(err.Error(), "scaling policy maximum") {
			s.Errorf("more than the maximum: %v", err)
		}
	})
}

// revertUpdate goes back to the first version of the service: with its update
// block, which no version of Nomad's has, and its replicas.
func (s *stack) revertUpdate() {
	s.Helper()
	changed := strings.NewReplacer("max_parallel = 1", "max_parallel = 3", "sleep 100000", "sleep 200000").Replace(serviceFile)
	s.has(s.cli(0, "job", "run", s.file(changed)), "stays on its nodes")
	s.until("both replicas run again", func() error { return s.summary("replica", 2) })
	show := func(path string) api.Job {
		s.Helper()
		var job api.Job
		code, body := s.get(path)
		if err := json.Unmarshal([]byte(body), &job); err != nil || code != http.StatusOK {
			s.Fatalf("%s: %d %s", path, code, body)
		}
		return job
	}
	if n := *show("/v1/job/serve?namespace=team").TaskGroups[0].Update.MaxParallel; n != 3 {
		s.Errorf("max_parallel = %d, want the new 3", n)
	}
	s.has(s.cli(0, "job", "history", "-p", "-namespace", "team", "serve"), `"3"`, `"1"`)
	versions, _, _, err := s.user.Jobs().Versions("serve", false, &api.QueryOptions{Namespace: "team"})
	if err != nil || len(versions) != 2 {
		s.Fatalf("%d versions, %v, want the user's two", len(versions), err)
	}
	s.cli(0, "job", "revert", "-namespace", "team", "serve", strconv.FormatUint(*versions[1].Version, 10))
	if n := *show("/v1/job/serve?namespace=team").TaskGroups[0].Update.MaxParallel; n != 1 {
		s.Errorf("max_parallel = %d, want the first version's 1", n)
	}
	s.until("both replicas run as at first", func() error { return s.summary("replica", 2) })
}

// summary says what is missing until so many of the service's replicas run, by
// the user's own group.
func (s *stack) summary(group string, want int) error {
	sum, _, err := s.user.Jobs().Summary("serve", &api.QueryOptions{Namespace: "team"})
	if err != nil {
		return err
	}
	if got := sum.Summary[group]; got.Running != want {
		return fmt.Errorf("summary %+v, want %d running in %s", sum.Summary, want, group)
	}
	return nil
}
