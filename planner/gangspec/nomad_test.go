package gangspec_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/nomadproc"
	"github.com/caravan-sched/caravan/planner/gangspec"
)

// TestHashOnNomad: a job has one hash as its user wrote it, as Nomad parses it,
// as Nomad gives it back, and when that is registered again.
func TestHashOnNomad(t *testing.T) {
	bin, ok := nomadproc.Find()
	if !ok {
		t.Skip("needs Nomad: set NOMAD_BIN or put nomad on the PATH")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cluster, err := nomadproc.Start(ctx, bin, devcluster.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Errorf("stop cluster: %v", err)
		}
	})
	client := cluster.Client()
	jobs := map[string]*api.Job{"full": fullJob()}
	service := fullJob()
	service.ID, service.Type, service.Reschedule = ptr("svc"), ptr("service"), nil
	service.TaskGroups[0].ReschedulePolicy = nil
	service.Update = &api.UpdateStrategy{Canary: ptr(1), MaxParallel: ptr(3)}
	service.TaskGroups[0].Update = &api.UpdateStrategy{AutoRevert: ptr(true)}
	jobs["service"] = service
	files, err := filepath.Glob("testdata/*.hcl")
	if err != nil || len(files) == 0 {
		t.Fatalf("job files: %v, %v", files, err)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		job, err := client.Jobs().ParseHCL(string(src), false)
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		whole, err := client.Jobs().ParseHCL(string(src), true)
		if err != nil {
			t.Fatal(err)
		}
		jobs[filepath.Base(f)] = job
		if a, b := gangspec.Hash(job), gangspec.Hash(whole); a != b {
			t.Errorf("%s: canonicalized hash differs", f)
			diffJobs(t, job, whole)
		}
	}
	for name, job := range jobs {
		t.Run(name, func(t *testing.T) {
			job.Constraints = append(job.Constraints, api.NewConstraint("${meta.never}", "=", "x"))
			want := gangspec.Hash(job)
			sent, err := gangspec.Copy(job)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if _, _, err := client.Jobs().Register(sent, nil); err != nil {
					t.Fatal(err)
				}
				got, _, err := client.Jobs().Info(*job.ID, nil)
				if err != nil {
					t.Fatal(err)
				}
				if h := gangspec.Hash(got); h != want {
					diffJobs(t, job, got)
					break
				}
				if sent, err = gangspec.Submitted(got); err != nil {
					t.Fatal(err)
				}
			}
			if _, _, err := client.Jobs().Deregister(*job.ID, true, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func diffJobs(t *testing.T, a, b *api.Job) {
	t.Helper()
	var x, y any
	_ = json.Unmarshal(gangspec.CanonicalJSON(a), &x)
	_ = json.Unmarshal(gangspec.CanonicalJSON(b), &y)
	t.Errorf("hash differs (-want +got):\n%s", cmp.Diff(x, y))
}
