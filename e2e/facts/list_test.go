package facts

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Filters speak of objects as they are stored, not of what a list shows of
// them, and a name that is not there is an error.
func TestFilters(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		j := e.newJob(api.JobTypeBatch, alike, 1, 0, sleeper)
		j.Meta = map[string]string{"colour": "red"}
		e.register(j)
		alloc := e.running(*j.ID, 1)[0]
		jobs := func(filter string) ([]string, error) {
			list, _, err := e.api.Jobs().List(&api.QueryOptions{Filter: filter})
			var out []string
			for _, x := range list {
				out = append(out, x.ID)
			}
			return out, err
		}
		nodes := func(filter string) ([]string, error) {
			list, _, err := e.api.Nodes().List(&api.QueryOptions{Filter: filter})
			var out []string
			for _, x := range list {
				out = append(out, x.Name)
			}
			slices.Sort(out)
			return out, err
		}
		allocs := func(filter string) ([]string, error) {
			list, _, err := e.api.Allocations().List(&api.QueryOptions{Filter: filter})
			var out []string
			for _, x := range list {
				out = append(out, x.ID)
			}
			return out, err
		}
		tests := map[string]struct {
			list    func(string) ([]string, error)
			filter  string
			want    []string
			wantErr string
		}{
			"meta of jobs":        {jobs, `Meta.colour == "red"`, []string{*j.ID}, ""},
			"no such meta":        {jobs, `Meta.colour == "blue"`, nil, ""},
			"type and ID":         {jobs, `Type == "batch" and ID == "` + *j.ID + `"`, []string{*j.ID}, ""},
			"attributes of nodes": {nodes, `Datacenter == "alike" and Attributes["kernel.name"] == "linux"`, []string{"a1", "a2", "a3"}, ""},
			"job of allocations":  {allocs, `JobID == "` + *j.ID + `" and ClientStatus == "running"`, []string{alloc.ID}, ""},
			"no such field":       {jobs, `Colour == "red"`, nil, "Colour"},
			"no expression":       {jobs, `ID ==`, nil, "failed to read filter expression"},
		}
		for name, test := range tests {
			got, err := test.list(test.filter)
			if test.wantErr == "" && err != nil || test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
				t.Errorf("%s: error %v, want %q in it", name, err, test.wantErr)
			}
			if err == nil && !slices.Equal(got, test.want) {
				t.Errorf("%s: %v, want %v", name, got, test.want)
			}
		}
	})
}

// A periodic job is launched by its clock and by force, as children of its own.
func TestPeriodic(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		j := e.newJob(api.JobTypeBatch, alike, 1, 0, "true")
		j.Periodic = &api.PeriodicConfig{Enabled: ptr(true), SpecType: ptr(api.PeriodicSpecCron), Spec: ptr("0 0 1 1 *")}
		if _, _, err := e.api.Jobs().Register(clone(j), nil); err != nil {
			t.Fatal(err)
		}
		began := time.Now().Unix()
		if _, _, err := e.api.Jobs().PeriodicForce(*j.ID, nil); err != nil {
			t.Fatal(err)
		}
		children := func() []*api.JobListStub {
			list, _, err := e.api.Jobs().List(&api.QueryOptions{Prefix: *j.ID + "/periodic-"})
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		e.until("a child", func() (bool, any) { return len(children()) == 1, children() })
		child := e.info(children()[0].ID)
		t.Cleanup(func() { e.purge(*child.ID) })
		if *child.ParentID != *j.ID || child.IsPeriodic() || *child.Name != *child.ID || *child.ID < *j.ID+"/periodic-"+itoa(began-1) {
			t.Errorf("child is %s of %s, periodic: %v", *child.ID, *child.ParentID, child.IsPeriodic())
		}
		e.only(*child.ID, api.AllocClientStatusComplete)
		if evals, _, err := e.api.Jobs().Evaluations(*child.ID, nil); err != nil || len(evals) == 0 || evals[len(evals)-1].TriggeredBy != "periodic-job" {
			t.Errorf("evaluations are %v, %v", evals, err)
		}

		soon := clone(j)
		soon.Periodic.Spec = ptr("*/2 * * * * * *")
		if _, _, err := e.api.Jobs().Register(soon, nil); err != nil {
			t.Fatal(err)
		}
		e.until("children by the clock", func() (bool, any) { return len(children()) >= 3, children() })
		if _, _, err := e.api.Jobs().Deregister(*j.ID, false, nil); err != nil {
			t.Fatal(err)
		}
		for _, c := range children() {
			t.Cleanup(func() { e.purge(c.ID) })
		}
		if _, _, err := e.api.Jobs().PeriodicForce(*j.ID, nil); err == nil || !strings.Contains(err.Error(), "non-tracked") {
			t.Errorf("forcing a stopped job: %v", err)
		}
	})
}

func TestPeriodicFaults(t *testing.T) {
	tests := map[string]struct {
		change func(p *api.PeriodicConfig)
		want   string
	}{
		"nothing":   {func(p *api.PeriodicConfig) { p.Spec = ptr("") }, "Must specify a spec"},
		"both":      {func(p *api.PeriodicConfig) { p.Specs = []string{"@hourly"} }, "Only cron or crons may be used"},
		"no cron":   {func(p *api.PeriodicConfig) { p.Spec = ptr("often") }, "Invalid cron spec"},
		"time zone": {func(p *api.PeriodicConfig) { p.TimeZone = ptr("Moon/Sea") }, "Invalid time zone"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, e *env) {
				j := e.newJob(api.JobTypeBatch, alike, 1, 0, "true")
				j.Periodic = &api.PeriodicConfig{Enabled: ptr(true), SpecType: ptr(api.PeriodicSpecCron), Spec: ptr("@daily")}
				test.change(j.Periodic)
				if _, _, err := e.api.Jobs().Register(clone(j), nil); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("error is %v, want %q in it", err, test.want)
				}
			})
		})
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
