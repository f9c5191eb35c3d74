package product

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/jobhcl"
	"github.com/caravan-sched/caravan/jobspecs"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// file writes an example job file where the command line can read it.
func file(t *testing.T, name string) string {
	t.Helper()
	text, err := fs.ReadFile(jobspecs.Files, name)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// placed checks that a job's live allocations are exactly the placement that
// was decided, GPU by GPU.
func (p *product) placed(job string) httpapi.Explain {
	p.t.Helper()
	e := decode[httpapi.Explain](p.t, p.must(0, "explain", job, "--json"))
	want, got := map[string]string{}, map[string]string{}
	for _, m := range e.Placement {
		for _, gpu := range m.GPUs {
			want[gpu] = m.Node
		}
	}
	for _, a := range p.allocs(job) {
		for _, gpu := range gpusOf(a) {
			if other, ok := got[gpu]; ok {
				p.t.Errorf("GPU %s of job %s has two holders, on %s and %s", gpu, job, other, a.NodeID)
			}
			got[gpu] = a.NodeID
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Errorf("job %s: GPUs decided and granted (-want +got):\n%s", job, diff)
	}
	return e
}

// TestExamples runs every example job file, one after the other, through the
// command line: every member is placed, on the GPUs that were decided.
func TestExamples(t *testing.T) {
	names, err := fs.Glob(jobspecs.Files, "*.hcl")
	if err != nil || len(names) < 12 {
		t.Fatalf("found %d example job files, %v", len(names), err)
	}
	onEachWithDriver(t, func(t *testing.T, p *product) {
		for _, name := range names {
			path := file(t, name)
			p.must(0, "validate", path)
			args := []string{"run", "--wait"}
			if name == "join-prestart.hcl" { // the planner is at its usual address elsewhere
				args = append(args, "-var", "planners="+p.address)
			}
			p.must(0, append(args, path)...)
			job := jobID(t, name)
			if e := p.placed(job); e.State != model.StateRunning || e.Placed != e.Members {
				t.Errorf("job %s: state %s, %d of %d members placed: %s", job, e.State, e.Placed, e.Members, e.Reason)
			}
			p.end(job)
		}
	})
}

// jobID is the ID of the job in an example file.
func jobID(t *testing.T, name string) string {
	t.Helper()
	text, err := fs.ReadFile(jobspecs.Files, name)
	if err != nil {
		t.Fatal(err)
	}
	job, err := jobhcl.Parse(text, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return *job.ID
}

// end stops a job, waits until its GPUs are free, and takes it away. That is
// quicker than to purge it at once: then Nomad tells nobody when its members have
// ended, so that their GPUs are kept for as long as they might take.
func (p *product) end(job string) {
	p.t.Helper()
	if _, _, err := p.nomad.Jobs().Deregister(job, false, nil); err != nil {
		p.t.Fatal(err)
	}
	p.free()
	p.deregister(job)
}

// purge takes a job away and waits until its GPUs are free.
func (p *product) purge(job string) {
	p.t.Helper()
	p.deregister(job)
	p.free()
}

// free waits until nothing runs.
func (p *product) free() {
	p.t.Helper()
	p.until("every GPU is free again", func() (bool, any) {
		s, err := p.caravan.Status(p.t.Context())
		return err == nil && s.Counts.FreeGPUs == s.Counts.GPUs && s.Counts.Running == 0, s.Counts
	})
}

// TestPlannerDies kills the planner with a gang running and one waiting. The
// running one does not notice; the planner that comes next takes both over.
func TestPlannerDies(t *testing.T) {
	onEach(t, func(t *testing.T, p *product) {
		p.must(0, "run", "--wait", file(t, "train-gang.hcl"))
		p.must(2, "run", file(t, "rack-required.hcl"))
		before := ids(p.allocs("train-gang"))
		p.stop(syscall.SIGKILL)

		// Nothing is lost while nobody plans, and nothing starts.
		if got := ids(p.allocs("train-gang")); !slices.Equal(got, before) {
			t.Errorf("allocations without a planner: %v, want %v", got, before)
		}
		if got := p.allocs("rack-required"); len(got) != 0 {
			t.Errorf("the waiting gang has %d allocations", len(got))
		}

		p.start()
		e := p.placed("train-gang")
		if got := ids(p.allocs("train-gang")); e.State != model.StateRunning || !slices.Equal(got, before) {
			t.Errorf("after the restart the gang is %s with %v, want running with %v", e.State, got, before)
		}
		p.deregister("train-gang")
		p.until("the waiting gang runs whole", func() (bool, any) {
			e, err := p.caravan.Explain(t.Context(), "default", "rack-required")
			return err == nil && e.State == model.StateRunning && e.Placed == 2, e.Reason
		})
		p.placed("rack-required")
	})
}

// deregister takes a job away and does not wait.
func (p *product) deregister(job string) {
	p.t.Helper()
	if _, _, err := p.nomad.Jobs().Deregister(job, true, nil); err != nil {
		p.t.Fatal(err)
	}
}

func ids(allocs []*api.Allocation) []string {
	var out []string
	for _, a := range allocs {
		out = append(out, a.ID)
	}
	slices.Sort(out)
	return out
}

// TestRelease lets go of a running gang and of a waiting one: the one is not
// disturbed, the other is placed by Nomad as soon as Nomad can.
func TestRelease(t *testing.T) {
	onEach(t, func(t *testing.T, p *product) {
		p.must(0, "run", "--wait", file(t, "train-gang.hcl"))
		p.must(2, "run", file(t, "rack-required.hcl"))
		before := ids(p.allocs("train-gang"))
		p.must(0, "release", "--all")

		for _, name := range []string{"train-gang", "rack-required"} {
			job, _, err := p.nomad.Jobs().Info(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range job.Constraints {
				t.Errorf("job %s has still the constraint %s %s %s", name, c.LTarget, c.Operand, c.RTarget)
			}
			for _, g := range job.TaskGroups {
				for _, c := range g.Constraints {
					if c.LTarget == "${node.unique.id}" || c.LTarget == "${meta.caravan_gate}" {
						t.Errorf("job %s has still the constraint %s %s %s", name, c.LTarget, c.Operand, c.RTarget)
					}
				}
			}
		}
		if got := ids(p.allocs("train-gang")); !slices.Equal(got, before) {
			t.Errorf("allocations after the release: %v, want %v", got, before)
		}
		p.deregister("train-gang")
		p.until("Nomad places the other job by itself", func() (bool, any) {
			n := len(p.allocs("rack-required"))
			return n == 2, n
		})
	})
}

// TestEndedJobRunsAgain submits a batch job, and the same file again once it
// has ended: it runs a second time, whole.
func TestEndedJobRunsAgain(t *testing.T) {
	onEach(t, func(t *testing.T, p *product) {
		path := filepath.Join(t.TempDir(), "short.hcl")
		if err := os.WriteFile(path, []byte(shortGang), 0o600); err != nil {
			t.Fatal(err)
		}
		for round := 1; round <= 3; round++ {
			p.must(0, "run", "--wait", path)
			p.until("the gang has ended", func() (bool, any) {
				job, _, err := p.nomad.Jobs().Info("short", nil)
				return err == nil && *job.Status == "dead", err
			})
			stubs, _, err := p.nomad.Jobs().Allocations("short", true, nil)
			if err != nil {
				t.Fatal(err)
			}
			complete := 0
			for _, a := range stubs {
				if a.ClientStatus == api.AllocClientStatusComplete {
					complete++
				}
			}
			if want := 2 * round; complete != want || len(stubs) != want {
				t.Errorf("round %d: %d of %d allocations complete, want %d", round, complete, len(stubs), want)
			}
		}
	})
}

// shortGang runs long enough to be seen running.
const shortGang = `
job "short" {
  type = "batch"
  meta {
    caravan_gang = "job"
  }
  group "g" {
    count = 2
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "sleep 2"]
      }
      resources {
        cpu    = 100
        memory = 64
        device "nvidia/gpu" {
          count = 4
        }
      }
    }
  }
}
`
