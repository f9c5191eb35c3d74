package core

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
)

// stream is a cluster of blocks and racks through which jobs flow.
type stream struct {
	random *rand.Rand
	p      *Prepared
	// plain leaves the shapes that the queue asks for out of account.
	plain bool
	jobs  map[string]*streamJob
	next  int
	mix   []streamShape
}

type streamShape struct {
	members, gpus, weight int
	// level is required.
	level string
}

type streamJob struct {
	model.Job
	lasts, ends int
}

func newStream(t testing.TB, seed uint64, mix []streamShape, plain bool) *stream {
	s := &model.Snapshot{Now: testNow, Levels: []string{"block", "rack"}}
	for b := range 4 {
		for r := range 4 {
			for n := range 4 {
				node := model.Node{ID: fmt.Sprintf("b%dr%dn%d", b, r, n), Levels: map[string]string{"block": fmt.Sprint(b), "rack": fmt.Sprint(r)}}
				for g := range 8 {
					node.GPUs = append(node.GPUs, model.GPU{UUID: fmt.Sprintf("%s.%d", node.ID, g), Vendor: "nvidia", Type: "gpu", Model: "A", Island: 0})
				}
				s.Nodes = append(s.Nodes, node)
			}
		}
	}
	p, err := Prepare(s, Policy{Order: "fifo"})
	if err != nil {
		t.Fatal(err)
	}
	return &stream{random: rand.New(rand.NewPCG(seed, 7)), p: p, plain: plain, jobs: map[string]*streamJob{}, mix: mix}
}

func (s *stream) arrive() *streamJob {
	total := 0
	for _, m := range s.mix {
		total += m.weight
	}
	at, shape := s.random.IntN(total), streamShape{}
	for _, m := range s.mix {
		if at < m.weight {
			shape = m
			break
		}
		at -= m.weight
	}
	s.next++
	j := &streamJob{lasts: 5 + s.random.IntN(40)}
	j.Job = model.Job{ID: fmt.Sprintf("j%05d", s.next), Type: "batch", State: model.StateQueued, Gang: model.GangJob, Submitted: testNow.Add(time.Duration(s.next) * time.Second),
		Groups: []model.TaskGroup{{Name: "g", Count: shape.members, Devices: []model.DeviceAsk{{Name: "gpu", Count: shape.gpus}}}}}
	if shape.level != "" {
		j.Topology = model.Topology{Mode: model.TopologyRequire, Level: shape.level}
	}
	return j
}

// step lets time go on by one, with so many jobs that come.
func (s *stream) step(t testing.TB, tick int, arrivals int) {
	ch := Change{}
	for id, j := range s.jobs {
		if j.State == model.StateRunning && j.ends <= tick {
			ch.DropJobs = append(ch.DropJobs, JobRef{ID: id})
			delete(s.jobs, id)
		}
	}
	for range arrivals {
		j := s.arrive()
		s.jobs[j.ID] = j
		ch.PutJobs = append(ch.PutJobs, j.Job)
	}
	if err := s.p.Apply(ch); err != nil {
		t.Fatal(err)
	}
	if s.plain {
		s.p.wants = []place.Want{}
	}
	ch = Change{}
	for _, d := range s.p.Decide(testNow).Decisions {
		if d.Action == model.ActionAdmit {
			j := s.jobs[d.Job]
			j.State, j.Members, j.ends = model.StateRunning, d.Members, tick+j.lasts
			ch.PutJobs = append(ch.PutJobs, j.Job)
		}
	}
	if err := s.p.Apply(ch); err != nil {
		t.Fatal(err)
	}
}

// fragmentation is the mean over the mix of what of the free GPUs gangs of each
// shape cannot use, inside the tightest level that holds them.
func (s *stream) fragmentation() float64 {
	total, weights := 0.0, 0.0
	for _, m := range s.mix {
		if m.members == 1 {
			continue
		}
		g := &model.TaskGroup{Name: "g", Count: m.members, Devices: []model.DeviceAsk{{Name: "gpu", Count: m.gpus}}}
		r, w := s.p.catalog.Compile(&model.Job{}, g), float64(m.weight)
		weights += w
		for _, d := range s.p.tree.ByLevel[s.p.catalog.Natural(r, m.members)] {
			total += s.p.views[viewNow].Fragmentation(d, []place.Want{{Request: r, Members: m.members, Weight: w}})
		}
	}
	return total / weights
}

// Domains kept whole for the shapes of the queue leave less stranded, whatever
// the mixture.
func TestShapesStrandLess(t *testing.T) {
	mixes := map[string][]streamShape{
		"racks and blocks": {{1, 1, 40, ""}, {1, 4, 20, ""}, {1, 8, 20, ""}, {2, 8, 10, "rack"}, {4, 8, 5, "rack"}, {8, 8, 3, "block"}, {16, 8, 2, "block"}},
		"whole nodes":      {{1, 8, 60, ""}, {2, 8, 20, "rack"}, {4, 8, 15, "rack"}, {8, 8, 5, "block"}},
		"racks":            {{1, 8, 50, ""}, {4, 8, 50, "rack"}},
		"halves":           {{1, 4, 50, ""}, {3, 8, 25, "rack"}, {12, 8, 5, "block"}},
		"blocks":           {{2, 8, 50, "rack"}, {16, 8, 5, "block"}},
	}
	for name, mix := range mixes {
		t.Run(name, func(t *testing.T) {
			var stranded, waiting [2]float64
			for i, plain := range []bool{true, false} {
				for seed := range uint64(4) {
					f, w := runStream(t, newStream(t, seed, mix, plain))
					stranded[i], waiting[i] = stranded[i]+f/4, waiting[i]+w/4
				}
			}
			t.Logf("stranded GPUs %.1f, without heed of shapes %.1f; GPUs waited for %.1f and %.1f", stranded[1], stranded[0], waiting[1], waiting[0])
			if stranded[1] > stranded[0] {
				t.Errorf("%.1f GPUs are stranded, %.1f without heed of the queue's shapes", stranded[1], stranded[0])
			}
		})
	}
}

// runStream lets jobs come for three quarters of the GPUs, and returns the means
// of what is stranded and of what is waited for.
func runStream(t testing.TB, s *stream) (stranded, waiting float64) {
	const ticks, warm, gpus, lasts = 300, 50, 512, 24.5
	asked, weights := 0.0, 0.0
	for _, m := range s.mix {
		asked, weights = asked+float64(m.weight*m.members*m.gpus), weights+float64(m.weight)
	}
	rate, due := 0.75*gpus/(asked/weights*lasts), 0.0
	for tick := range ticks {
		due += rate
		s.step(t, tick, int(due))
		if due -= float64(int(due)); tick < warm {
			continue
		}
		stranded += s.fragmentation() / (ticks - warm)
		for _, j := range s.jobs {
			if j.State == model.StateQueued {
				waiting += float64(gpusOfGroup(&j.Groups[0])) / (ticks - warm)
			}
		}
	}
	return stranded, waiting
}

// The free GPUs that no whole gang of a shape can use, computed by hand: of the
// 28 in the rack two members of 8 leave 12, four of 8 have no room and leave
// all, and seven of 4 leave none.
func TestFragmentation(t *testing.T) {
	s := draw(t, "b1 r1 n1 ........\nb1 r1 n2 ........\nb1 r1 n3 ........\nb1 r1 n4 aaaa....")
	p, err := Prepare(s, Policy{})
	if err != nil {
		t.Fatal(err)
	}
	shape := func(members, gpus int, weight float64) place.Want {
		g := &model.TaskGroup{Devices: []model.DeviceAsk{{Name: "gpu", Count: gpus}}}
		return place.Want{Request: p.catalog.Compile(&model.Job{}, g), Members: members, Weight: weight}
	}
	rack := p.tree.ByLevel[1][0]
	for _, tt := range []struct {
		shapes []place.Want
		want   float64
	}{
		{[]place.Want{shape(2, 8, 1)}, 12}, {[]place.Want{shape(4, 8, 1)}, 28}, {[]place.Want{shape(7, 4, 1)}, 0},
		{[]place.Want{shape(2, 8, 0.5), shape(4, 8, 0.3), shape(7, 4, 0.2)}, 0.5*12 + 0.3*28},
	} {
		if got := p.views[viewNow].Fragmentation(rack, tt.shapes); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("fragmentation %g, want %g", got, tt.want)
		}
	}
}
