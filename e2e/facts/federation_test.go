package facts

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/nomadproc"
)

// eachFederation runs a fact on two joined regions of every back end there is.
func eachFederation(t *testing.T, fact func(t *testing.T, eu, us devcluster.Member)) {
	names := []string{devcluster.BackendDevNomad}
	if _, ok := nomadproc.Find(); ok {
		names = append(names, devcluster.BackendNomad)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			var regions []devcluster.Member
			for _, region := range []string{"eu", "us"} {
				c, err := startBackend(ctx, name, devcluster.Spec{Region: region, Nodes: []devcluster.Node{{Name: region + "-1"}}}, 10*time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := c.Stop(); err != nil {
						t.Error(err)
					}
				})
				regions = append(regions, c.(devcluster.Member))
			}
			if err := regions[0].Federate(ctx, regions[1]); err != nil {
				t.Fatal(err)
			}
			fact(t, regions[0], regions[1])
		})
	}
}

// gatedIn is a job that no node will ever fulfil.
func gatedIn(id string) *api.Job {
	j := api.NewBatchJob(id, id, "", 50).AddDatacenter("*").Constrain(api.NewConstraint("${meta.caravan_gate}", "=", "open"))
	j.Region = nil
	return j.AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(api.NewTask("t", "raw_exec").SetConfig("command", "true")))
}

// Each region has jobs, nodes and Variables of its own; a server forwards what is
// asked of another, and says which there are.
func TestFederation(t *testing.T) {
	eachFederation(t, func(t *testing.T, eu, us devcluster.Member) {
		here, there := eu.Client(), us.Client()
		if regions, err := here.Regions().List(); err != nil || !cmp.Equal(regions, []string{"eu", "us"}) {
			t.Fatalf("regions %q, %v; want eu and us", regions, err)
		}
		inUS := func() *api.QueryOptions { return &api.QueryOptions{Region: "us"} }
		nodes, _, err := here.Nodes().List(inUS())
		if err != nil || len(nodes) != 1 || nodes[0].Name != "us-1" {
			t.Fatalf("nodes of us %+v, %v; want us-1", nodes, err)
		}
		// By the query, by the job alone, and by neither.
		named := gatedIn("by-job")
		named.Region = new("us")
		for _, reg := range []struct {
			job  *api.Job
			q    *api.WriteOptions
			want string
		}{{gatedIn("by-query"), &api.WriteOptions{Region: "us"}, "us"}, {named, nil, "us"}, {gatedIn("by-none"), nil, "eu"}} {
			if _, _, err := here.Jobs().Register(reg.job, reg.q); err != nil {
				t.Fatalf("register %s: %v", *reg.job.ID, err)
			}
			for region, client := range map[string]*api.Client{"eu": here, "us": there} {
				got, _, err := client.Jobs().Info(*reg.job.ID, nil)
				if found := err == nil; found != (region == reg.want) {
					t.Errorf("%s in %s: %v, want it in %s alone", *reg.job.ID, region, err, reg.want)
				} else if found && *got.Region != reg.want {
					t.Errorf("%s says region %s, want %s", *reg.job.ID, *got.Region, reg.want)
				}
			}
		}
		v := &api.Variable{Path: "caravan/test", Items: api.VariableItems{"a": "b"}}
		if _, _, err := here.Variables().CheckedCreate(v, &api.WriteOptions{Region: "us"}); err != nil {
			t.Fatal(err)
		}
		if got, _, err := here.Variables().Peek("caravan/test", nil); got != nil || err != nil {
			t.Errorf("a Variable of us is in eu, too: %+v, %v", got, err)
		}
		if got, _, err := there.Variables().Peek("caravan/test", nil); got == nil || err != nil {
			t.Errorf("the Variable is not in us: %v", err)
		}
	})
}

// A job that is registered with Stop, at its index, ends as if it had been
// stopped; a version that came in between is not lost.
func TestStopAtIndex(t *testing.T) {
	eachFederation(t, func(t *testing.T, eu, _ devcluster.Member) {
		jobs := eu.Client().Jobs()
		if _, _, err := jobs.Register(gatedIn("held"), nil); err != nil {
			t.Fatal(err)
		}
		now := await(t, jobs, "held", func(j *api.Job) bool { return *j.Status == "pending" })
		now.Stop = new(true)
		if _, _, err := jobs.EnforceRegister(now, *now.JobModifyIndex-1, nil); err == nil || !strings.Contains(err.Error(), api.RegisterEnforceIndexErrPrefix) {
			t.Fatalf("stopped at another index: %v", err)
		}
		if _, _, err := jobs.EnforceRegister(now, *now.JobModifyIndex, nil); err != nil {
			t.Fatal(err)
		}
		await(t, jobs, "held", func(j *api.Job) bool { return *j.Stop && *j.Status == "dead" })
	})
}

func await(t *testing.T, jobs *api.Jobs, id string, want func(*api.Job) bool) *api.Job {
	t.Helper()
	var last *api.Job
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		j, _, err := jobs.Info(id, nil)
		if err == nil && want(j) {
			return j
		}
		last = j
	}
	t.Fatalf("job %s stays as it is: %+v", id, last)
	return nil
}

// While a region is away its requests fail, the others' do not, and it is still
// listed.
func TestIsolatedRegion(t *testing.T) {
	eachFederation(t, func(t *testing.T, eu, us devcluster.Member) {
		if err := us.Isolate(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, _, err := eu.Client().Nodes().List((&api.QueryOptions{Region: "us"}).WithContext(ctx))
		if err == nil {
			t.Fatal("a region that is away has answered")
		}
		if nodes, _, err := eu.Client().Nodes().List(nil); err != nil || len(nodes) != 1 {
			t.Errorf("nodes of eu: %+v, %v", nodes, err)
		}
		if regions, err := eu.Client().Regions().List(); err != nil || !cmp.Equal(regions, []string{"eu", "us"}) {
			t.Errorf("regions %q, %v; want eu and us", regions, err)
		}
		if err := us.Rejoin(t.Context()); err != nil {
			t.Fatal(err)
		}
		var last error
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			if _, _, last = eu.Client().Nodes().List(&api.QueryOptions{Region: "us"}); last == nil {
				return
			}
		}
		t.Fatalf("it does not come back: %v", last)
	})
}
