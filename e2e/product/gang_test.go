package product

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadproc"
	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

const driverBin = "nomad-driver-caravan"

// onEachWithDriver is onEach with the task driver on every node.
func onEachWithDriver(t *testing.T, test func(t *testing.T, p *product)) {
	build := exec.Command("go", "build", "-o", bin+"/", "../../driver/cmd/"+driverBin)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the driver: %v\n%s", err, out)
	}
	with := func(t *testing.T, start func(devcluster.Spec) (devcluster.Cluster, error)) {
		listen, s := freeAddress(t), spec()
		for i := range s.Nodes {
			s.Nodes[i].Plugins = append(s.Nodes[i].Plugins, devcluster.Plugin{
				Name: driverBin, Path: filepath.Join(bin, driverBin),
				Config: fmt.Sprintf("planner {\n addresses = [%q]\n}\nstate_dir = %q", "http://"+listen, filepath.Join(t.TempDir(), "s")),
			})
		}
		c, err := start(s)
		if err != nil {
			t.Fatal(err)
		}
		test(t, newProductAt(t, c, listen))
	}
	t.Run(devcluster.BackendDevNomad, func(t *testing.T) {
		with(t, func(s devcluster.Spec) (devcluster.Cluster, error) { return devnomad.Start(t.Context(), s) })
	})
	t.Run(devcluster.BackendNomad, func(t *testing.T) {
		path, ok := nomadproc.Find()
		if !ok {
			t.Skip("needs Nomad: set NOMAD_BIN or put nomad on the PATH")
		}
		with(t, func(s devcluster.Spec) (devcluster.Cluster, error) { return nomadproc.Start(t.Context(), path, s) })
	})
}

// gang waits until the job's one gang is as it should be.
func (p *product) gang(job, what string, ok func(barrier.Status) bool) barrier.Status {
	p.t.Helper()
	var out barrier.Status
	p.until(what, func() (bool, any) {
		got, err := p.caravan.Progress(p.t.Context(), "default", job)
		if err != nil || len(got.Gangs) != 1 {
			return false, fmt.Sprintf("%+v, %v", got, err)
		}
		out = got.Gangs[0]
		return ok(out), fmt.Sprintf("%+v", out)
	})
	return out
}

func states(st barrier.Status, want string) bool {
	for _, m := range st.Members {
		if string(m.State) != want {
			return false
		}
	}
	return len(st.Members) > 0
}

// identities counts the tasks that have the identity that members join with.
func identities(job *api.Job) int {
	n := 0
	for _, g := range job.TaskGroups {
		for _, task := range g.Tasks {
			for _, id := range task.Identities {
				if gangspec.IsMemberIdentity(task, id) {
					n++
				}
			}
		}
	}
	return n
}

// TestGang starts a gang of the task driver, and does to it what an operator
// may do: nothing but the driver's name in the job file makes it one.
func TestGang(t *testing.T) {
	onEachWithDriver(t, func(t *testing.T, p *product) {
		const job = "train-driver"
		source := file(t, "train-driver.hcl")
		p.must(0, "run", "--wait", "-var", "steps=100000", source)
		first := p.gang(job, "the gang runs", func(st barrier.Status) bool { return st.Phase == "running" && states(st, "running") })

		// The identity is Caravan's business.
		raw, _, err := p.nomad.Jobs().Info(job, nil)
		if err != nil {
			t.Fatal(err)
		}
		through, err := api.NewClient(&api.Config{Address: p.address, SecretID: p.cluster.Token()})
		if err != nil {
			t.Fatal(err)
		}
		shown, _, err := through.Jobs().Info(job, nil)
		if err != nil {
			t.Fatal(err)
		}
		if identities(raw) != 1 || identities(shown) != 0 {
			t.Errorf("%d identities in Nomad, %d shown to users; want 1 and 0", identities(raw), identities(shown))
		}
		version := *raw.Version
		p.must(0, "run", "--wait", "-var", "steps=100000", source)
		if raw, _, err = p.nomad.Jobs().Info(job, nil); err != nil || *raw.Version != version {
			t.Errorf("version %d after the same file again, want %d: %v", *raw.Version, version, err)
		}

		if out := p.must(0, "suspend", "--reason", "the other team's turn", job); !strings.Contains(out, "told to suspend") {
			t.Errorf("suspend: %s", out)
		}
		p.gang(job, "all are suspended", func(st barrier.Status) bool { return st.Phase == "suspended" && states(st, "suspended") })
		p.must(0, "resume", job)
		p.gang(job, "all go on", func(st barrier.Status) bool {
			return st.Phase == "running" && states(st, "running") && st.Epoch == first.Epoch
		})

		before := ids(p.allocs(job))
		p.must(0, "requeue", job)
		p.gang(job, "the gang starts anew", func(st barrier.Status) bool {
			return st.Phase == "running" && states(st, "running") && st.Epoch != first.Epoch && st.Members[0].Alloc != before[0]
		})
		if e := p.placed(job); e.Attempts != 0 {
			t.Errorf("%d attempts are counted, want none", e.Attempts)
		}
		if out := p.must(0, "explain", job); !strings.Contains(out, "queued again by an operator") {
			t.Errorf("explain: %s", out)
		}
		p.end(job)
	})
}

// unfit is a gang whose preflight finds a node unfit.
const unfit = `
job "preflight" {
  type = "batch"
  meta {
    caravan_gang = "job"
  }
  group "w" {
    count = 2
    restart {
      attempts = 0
      mode     = "fail"
    }
    task "train" {
      driver = "caravan"
      config {
        command = "/bin/sleep"
        args    = ["100000"]
        preflight {
          gpu     = false
          command = "/bin/sh"
          args    = ["-c", "[ ${node.unique.name} != gpu-1 ] || exit 1"]
        }
      }
      resources {
        cpu    = 100
        memory = 64
        device "nvidia/gpu" {
          count = 8
        }
      }
    }
  }
}
`

// TestPreflight finds a node unfit at the barrier: the gang starts without that
// node, and is not charged for it.
func TestPreflight(t *testing.T) {
	onEachWithDriver(t, func(t *testing.T, p *product) {
		source := filepath.Join(t.TempDir(), "preflight.hcl")
		if err := os.WriteFile(source, []byte(unfit), 0o600); err != nil {
			t.Fatal(err)
		}
		p.must(0, "run", "--detach", source)
		st := p.gang("preflight", "the gang runs elsewhere", func(st barrier.Status) bool { return st.Phase == "running" && states(st, "running") })
		var nodes []string
		for _, m := range st.Members {
			nodes = append(nodes, m.NodeName)
		}
		slices.Sort(nodes)
		if !slices.Equal(nodes, []string{"gpu-2", "gpu-3"}) {
			t.Errorf("the gang runs on %v, want gpu-2 and gpu-3", nodes)
		}
		e := p.placed("preflight")
		told := func(h httpapi.Past) bool {
			return strings.Contains(h.Reason, "preflight has found the node unfit: /bin/sh: it exited with code 1")
		}
		if e.Attempts != 0 || !slices.ContainsFunc(e.History, told) {
			t.Errorf("%d attempts, history %+v", e.Attempts, e.History)
		}
		p.purge("preflight")
	})
}
