package core

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// drawRegions draws a cluster whose first level is the region.
func drawRegions(t testing.TB, text string) *model.Snapshot {
	s := draw(t, text)
	s.Levels = []string{model.LevelRegion, "rack"}
	for i := range s.Nodes {
		l := s.Nodes[i].Levels
		if v, ok := l["block"]; ok {
			l[model.LevelRegion] = v
			delete(l, "block")
		}
	}
	return s
}

func TestRegions(t *testing.T) {
	two := "eu r1 n1 ....\neu r1 n2 ....\nus r1 n3 ....\nus r1 n4 ...."
	tests := map[string]struct {
		cluster, jobs, want string
		set                 func(*model.Snapshot, *model.Job)
		code, reason        string
	}{
		"the data": {
			cluster: two, jobs: "M 2x4", want: "eu r1 n1 ....\neu r1 n2 ....\nus r1 n3 MMMM\nus r1 n4 MMMM",
			set: func(s *model.Snapshot, j *model.Job) {
				s.Regions = []model.Region{{Name: "eu", Price: map[string]float64{"H100": 1}}, {Name: "us", Price: map[string]float64{"H100": 9}, Data: []string{"imagenet"}}}
				j.Data = []string{"laion", "imagenet"}
			},
			code: "placed", reason: "placed 2 members with 8 GPUs in rack us/r1, on 2 nodes; in region us: it has 1 of the 2 data sets that the job reads; no region has the data set laion (caravan_data): check the name, or have it put into the planner's region blocks",
		},
		"data that is nowhere": {
			cluster: "eu r1 n1 ....\nus r1 n2 aaaa", jobs: "M 2x4", want: "eu r1 n1 ....\nus r1 n2 aaaa",
			set: func(s *model.Snapshot, j *model.Job) {
				s.Regions, j.Data = []model.Region{{Name: "us", Data: []string{"imagenet"}}}, []string{"laion", "wikitext"}
			},
			code: "too_large", reason: "needs 2 members with 4 GPUs each (8 GPUs); region eu has room for 1 of 2 even when everything in it is free and healthy; ask for fewer or smaller members, or add nodes; it may go to the regions eu, us: this is said of eu; " +
				"no region has the data sets laion, wikitext (caravan_data): check the names, or have them put into the planner's region blocks",
		},
		"data, and no regions": {
			cluster: two, jobs: "M 1x4", want: "r1 n1 MMMM\nr1 n2 ....\nr1 n3 ....\nr1 n4 ....",
			set: func(s *model.Snapshot, j *model.Job) {
				s.Levels, j.Data = []string{"rack"}, []string{"laion"}
				for i := range s.Nodes {
					delete(s.Nodes[i].Levels, model.LevelRegion)
				}
			},
			code: "placed", reason: "placed 1 member with 4 GPUs in island r1/n1/0; no region has the data set laion (caravan_data): check the name, or have it put into the planner's region blocks",
		},
		"the price": {
			cluster: two, jobs: "M 2x4", want: "eu r1 n1 ....\neu r1 n2 ....\nus r1 n3 MMMM\nus r1 n4 MMMM",
			set: func(s *model.Snapshot, j *model.Job) {
				s.Regions = []model.Region{{Name: "eu", Price: map[string]float64{"H100": 2.6}}, {Name: "us", Price: map[string]float64{"H100": 2.1}}}
			},
			code: "placed", reason: "placed 2 members with 8 GPUs in rack us/r1, on 2 nodes; in region us: a GPU costs 2.1 an hour there",
		},
		"what is known of one only does not count": {
			cluster: two, jobs: "M 2x4", want: "eu r1 n1 MMMM\neu r1 n2 MMMM\nus r1 n3 ....\nus r1 n4 ....",
			set: func(s *model.Snapshot, j *model.Job) {
				s.Regions = []model.Region{{Name: "us", Price: map[string]float64{"H100": 2.1}}}
			},
			code: "placed", reason: "placed 2 members with 8 GPUs in rack eu/r1, on 2 nodes; in region eu",
		},
		"the carbon": {
			cluster: two, jobs: "M 2x4", want: "eu r1 n1 ....\neu r1 n2 ....\nus r1 n3 MMMM\nus r1 n4 MMMM",
			set: func(s *model.Snapshot, j *model.Job) {
				s.Regions = []model.Region{{Name: "eu", Carbon: 300}, {Name: "us", Carbon: 40}}
			},
			code: "placed", reason: "placed 2 members with 8 GPUs in rack us/r1, on 2 nodes; in region us: its power costs 40 g of CO2 per kWh",
		},
		"where there is room": {
			cluster: "eu r1 n1 ....\neu r1 n2 a...\nus r1 n3 ....\nus r1 n4 ....", jobs: "M 2x4", want: "eu r1 n1 ....\neu r1 n2 a...\nus r1 n3 MMMM\nus r1 n4 MMMM",
			set: func(s *model.Snapshot, j *model.Job) {
				s.Regions = []model.Region{{Name: "eu", Data: []string{"d"}}}
				j.Data = []string{"d"}
			},
			code: "placed", reason: "placed 2 members with 8 GPUs in rack us/r1, on 2 nodes; in region us, since eu has no room now",
		},
		"never over two": {
			cluster: "eu r1 n1 ....\neu r1 n2 aaaa\nus r1 n3 ....\nus r1 n4 bbbb", jobs: "M 2x4", want: "eu r1 n1 ....\neu r1 n2 aaaa\nus r1 n3 ....\nus r1 n4 bbbb",
			set:  func(s *model.Snapshot, j *model.Job) {},
			code: "no_capacity", reason: "needs 2 members with 4 GPUs each (8 GPUs); region eu has room for 1 of 2 now; it can start when n2 has room (a holds 4 GPUs); kept for it: n1, n2; it may go to the regions eu, us: this is said of eu",
		},
		"larger than any": {
			cluster: two, jobs: "M 3x4", want: two, set: func(s *model.Snapshot, j *model.Job) {},
			code: "too_large", reason: "needs 3 members with 4 GPUs each (12 GPUs); region eu has room for 2 of 3 even when everything in it is free and healthy; ask for fewer or smaller members, or add nodes; it may go to the regions eu, us: this is said of eu",
		},
		"the one that it names": {
			cluster: two, jobs: "M 1x4", want: "eu r1 n1 ....\neu r1 n2 ....\nus r1 n3 MMMM\nus r1 n4 ....",
			set:  func(s *model.Snapshot, j *model.Job) { j.Regions = []string{"us", "ap"} },
			code: "placed", reason: "placed 1 member with 4 GPUs in island us/r1/n3/0; in region us",
		},
		"in its own order": {
			cluster: two, jobs: "M 1x4", want: "eu r1 n1 ....\neu r1 n2 ....\nus r1 n3 MMMM\nus r1 n4 ....",
			set:  func(s *model.Snapshot, j *model.Job) { j.Regions = []string{"us", "eu"} },
			code: "placed", reason: "placed 1 member with 4 GPUs in island us/r1/n3/0; in region us",
		},
		"one that is not there": {
			cluster: two, jobs: "M 1x4", want: two, set: func(s *model.Snapshot, j *model.Job) { j.Regions = []string{"ap"} },
			code: "no_node", reason: "no node is in ap; there are the regions eu, us; name one of them in caravan_regions, or leave it out",
		},
		"required, it is inside the region": {
			cluster: two, jobs: "M 2x4 require:rack", want: "eu r1 n1 ....\neu r1 n2 ....\nus r1 n3 MMMM\nus r1 n4 MMMM",
			set:  func(s *model.Snapshot, j *model.Job) { j.Regions = []string{"us"} },
			code: "placed", reason: "placed 2 members with 8 GPUs in rack us/r1, on 2 nodes; in region us",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := drawRegions(t, tt.cluster)
			submit(t, s, tt.jobs)
			tt.set(s, &s.Jobs[len(s.Jobs)-1])
			plan := mustDecide(t, s, Policy{})
			checkPlan(t, s, plan)
			if diff := cmp.Diff(trimLines(tt.want), redraw(s, plan)); diff != "" {
				t.Errorf("placements (-want +got):\n%s", diff)
			}
			if d := plan.Decisions[0]; d.Detail.Code != tt.code || d.Reason != tt.reason {
				t.Errorf("%s: %s\nwant %s: %s", d.Detail.Code, d.Reason, tt.code, tt.reason)
			}
		})
	}
}

// A faster model elsewhere goes before a slower one that is cheaper, or where the
// data is.
func TestRegionsAndModels(t *testing.T) {
	s := drawRegions(t, "eu r1 n1 ....\nus r1 n2 ....")
	for g := range s.Nodes[0].GPUs {
		s.Nodes[0].GPUs[g].Model = "A100"
	}
	submit(t, s, "M 1x4")
	s.Jobs[0].Models = []model.ModelSpeed{{Name: "A100", Speed: 0.5}, {Name: "H100", Speed: 1}}
	want := "placed 1 member with 4 GPUs in island us/r1/n2/0; on H100 at speed 1, the fastest of the 2 models that it takes; in region us, since eu has no room now"
	if d := decision(t, s, "M"); d.Reason != want {
		t.Errorf("%s\nwant %s", d.Reason, want)
	}
}

// Where every node is in one of several regions no gang spans two, and one is
// placed exactly when it fits into one of those that it may go to.
func TestNoGangSpansRegions(t *testing.T) {
	placed, waited := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := anyCluster(t)
		s.Levels = []string{model.LevelRegion, "block", "rack"}
		for i := range s.Nodes {
			s.Nodes[i].Levels[model.LevelRegion] = fmt.Sprint("e", rapid.IntRange(0, 1).Draw(t, "region"))
		}
		j := anyJob(t, 0, true)
		j.Gang = model.GangJob
		if rapid.Bool().Draw(t, "named") {
			j.Regions = []string{"e1"}
		}
		s.Jobs = []model.Job{j}
		if rapid.Bool().Draw(t, "known") {
			s.Regions = []model.Region{{Name: "e1", Price: map[string]float64{"A": 1}}, {Name: "e0", Price: map[string]float64{"A": 2}}}
		}
		plan := mustDecide(t, s, Policy{})
		for _, fault := range planFaults(s, plan) {
			t.Error(fault)
		}
		fits := false
		for _, region := range []string{"e0", "e1"} {
			in := *s
			in.Nodes = nil
			for _, n := range s.Nodes {
				if n.Levels[model.LevelRegion] == region && (len(j.Regions) == 0 || j.Regions[0] == region) {
					in.Nodes = append(in.Nodes, n)
				}
			}
			fits = fits || bruteForce(&in, &j)
		}
		d := plan.Decisions[0]
		if (d.Action == model.ActionAdmit) != fits {
			t.Fatalf("%s, fits %v: %s", d.Action, fits, d.Reason)
		}
		regions := map[string]bool{}
		for _, m := range d.Members {
			for _, n := range s.Nodes {
				if n.ID == m.Node {
					regions[n.Levels[model.LevelRegion]] = true
				}
			}
		}
		if len(regions) > 1 || len(j.Regions) > 0 && regions["e0"] {
			t.Fatalf("in %v: %s", regions, d.Reason)
		}
		if fits {
			placed++
		} else {
			waited++
		}
	})
	if placed == 0 || waited == 0 {
		t.Errorf("%d placed, %d waited", placed, waited)
	}
}

// Members that a gang lacks go where the others are.
func TestGrowthStaysInItsRegion(t *testing.T) {
	s := drawRegions(t, "eu r1 n1 ..\neu r1 n2 aa\nus r1 n3 ..\nus r1 n4 ..")
	submit(t, s, "M 2x2 gang:group")
	j := &s.Jobs[1]
	j.State = model.StateRunning
	j.Members = []model.Member{{Group: "g0", Node: "n1", GPUs: []string{"n1.0", "n1.1"}}}
	d := decision(t, s, "M")
	if len(d.Members) != 0 || !strings.Contains(d.Reason, "region eu has room for 0 of 1") && !strings.Contains(d.Reason, "comes nearest") {
		t.Errorf("%+v: %s", d.Members, d.Reason)
	}
}
