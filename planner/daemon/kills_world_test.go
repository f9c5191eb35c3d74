package daemon

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// A world in virtual time in which nodes are bought: a cloud with a diary, a Nomad,
// and the jobs that run there. What happens in it does not depend on what any of
// Caravan's processes remembers.

const (
	// look is how often processes look around, and boot, fit and restart how long a
	// machine takes until it joins, a node until its GPUs are found, and an agent to
	// be started again.
	look    = 30 * time.Second
	boot    = 3 * time.Minute
	fit     = 3 * time.Minute
	restart = 3 * time.Minute
	// mended is how long it takes until somebody has started processes again that were
	// killed.
	mended = 5 * time.Minute
	// keeperID is the job that has the home cluster.
	keeperID = "keeper"
	// period is that of billing.
	period = time.Hour
)

// machine is one that was made in the cloud.
type machine struct {
	id, name, purchase, market string
	made, gone                 time.Time
	// joined is when its agent joins Nomad the next time, and down when Nomad lost it.
	// An agent that was killed comes back, unless broken.
	joined, down            time.Time
	broken                  bool
	drained                 bool
	purged                  bool
	runs                    []span
	knownToNomad, wasSeenUp bool
}

// span is a time in which a member of a job ran on a machine.
type span struct {
	job      string
	from, to time.Time
}

func (m *machine) exists() bool { return m.gone.IsZero() }

// up says that its agent answers, and ready that its GPUs were found too.
func (w *world) up(m *machine) bool {
	return m.exists() && m.down.IsZero() && !w.now.Before(m.joined)
}
func (w *world) ready(m *machine) bool { return w.up(m) && !w.now.Before(m.joined.Add(fit)) }

// gang is a job and how far it is.
type gang struct {
	model.Job
	saved  time.Duration // work that no stop loses
	begins time.Time     // when its members are up, once it is admitted
	whole  []string      // where it runs
	done   time.Time
	runs   []span
}

type world struct {
	t       *testing.T
	now     time.Time
	cloud   []*machine
	gangs   []*gang
	events  []string
	trigger trigger
	planner *plannerProcess
	scaler  *scaler
	tf      terraformProcess
	// skew is how far the autoscaler's clock is ahead of the planner's, and leaderless
	// until when Nomad has no leader.
	skew       time.Duration
	leaderless time.Time
	store      *killStore
	pools      model.Burst
}

// say adds to what is shown when the test fails.
func (w *world) say(format string, args ...any) {
	w.events = append(w.events, w.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// alive are the machines that are paid for.
func (w *world) alive() (out []*machine) {
	for _, m := range w.cloud {
		if m.exists() {
			out = append(out, m)
		}
	}
	return out
}

func (w *world) named(name string) *machine {
	at := slices.IndexFunc(w.cloud, func(m *machine) bool { return m.name == name && m.exists() })
	if at < 0 {
		return nil
	}
	return w.cloud[at]
}

func (w *world) byID(id string) *machine {
	at := slices.IndexFunc(w.cloud, func(m *machine) bool { return m.id == id })
	if at < 0 {
		return nil
	}
	return w.cloud[at]
}

// create makes a machine, and destroy ends it.
func (w *world) create(name, purchase, market string) {
	m := &machine{id: fmt.Sprintf("i-%d", len(w.cloud)), name: name, purchase: purchase, market: market, made: w.now, joined: w.now.Add(boot)}
	w.cloud = append(w.cloud, m)
	w.say("cloud: made %s (%s)", name, m.id)
}

func (w *world) destroy(m *machine) {
	m.gone = w.now
	w.say("cloud: destroyed %s (%s)", m.name, m.id)
	for _, g := range w.gangs {
		if slices.Contains(g.whole, m.id) {
			w.stop(g, false, "its node is destroyed")
		}
	}
}

// advance lets time pass for everybody but the autoscaler.
func (w *world) advance() {
	w.now = w.now.Add(look)
	for _, m := range w.cloud {
		switch {
		case m.exists() && !m.down.IsZero() && !m.broken && w.now.Sub(m.down) >= restart:
			m.down, m.joined = time.Time{}, w.now
			w.say("node %s: its agent is back", m.name)
		case w.up(m) && !m.wasSeenUp:
			m.wasSeenUp, m.knownToNomad, m.purged = true, true, false
			w.say("node %s: joined", m.name)
			w.trigger.reach(w, stepUp)
		}
	}
	for _, g := range w.gangs {
		w.live(g)
	}
	w.tf.step(w)
	w.planner.turn(w)
}

func (w *world) busy(m *machine) bool {
	return slices.ContainsFunc(w.gangs, func(g *gang) bool { return slices.Contains(g.whole, m.id) })
}

// live lets a gang begin, and end.
func (w *world) live(g *gang) {
	lost := ""
	for _, id := range g.whole {
		if m := w.byID(id); m != nil && !w.up(m) {
			lost = m.name
		}
	}
	switch {
	case lost != "":
		w.stop(g, false, "it has lost "+lost)
	case g.State == model.StateAdmitted && !w.now.Before(g.begins):
		g.State = model.StateRunning
		w.say("%s: runs on %v", g.ID, g.whole)
		for _, id := range g.whole {
			if m := w.byID(id); m != nil {
				m.runs = append(m.runs, span{job: g.ID, from: w.now})
			}
		}
		g.runs = append(g.runs, span{job: g.ID, from: w.now})
	case g.State == model.StateRunning && g.saved+w.now.Sub(g.begins) >= g.Duration:
		w.stop(g, true, "it is done")
		g.done, g.State = w.now, ""
	case g.State == model.StateRunning && w.now.Sub(g.begins) >= 10*time.Minute && g.ID != keeperID:
		w.trigger.reach(w, stepRunning)
	}
}

// stop ends a gang's run, and queues it again.
func (w *world) stop(g *gang, saves bool, why string) {
	w.say("%s: stops, since %s", g.ID, why)
	if g.State == model.StateRunning {
		ran := w.now.Sub(g.begins)
		if !saves {
			ran = ran.Truncate(g.Checkpoint)
		}
		g.saved += ran
		g.runs[len(g.runs)-1].to = w.now
		for _, id := range g.whole {
			if m := w.byID(id); m != nil {
				m.runs[len(m.runs)-1].to = w.now
			}
		}
	}
	g.whole, g.Members, g.State, g.Ran = nil, nil, model.StateQueued, min(g.saved, g.Duration)
}

// admit starts a gang where the planner says.
func (w *world) admit(g *gang, members []model.Member) {
	g.Members, g.State, g.Started, g.begins = members, model.StateAdmitted, w.now, w.now.Add(2*look)
	g.whole = nil
	for _, m := range members {
		g.whole = append(g.whole, m.Node)
	}
	w.say("planner: %s starts on %v", g.ID, g.whole)
	if g.ID != keeperID {
		w.trigger.reach(w, stepStarting)
	}
}

// snapshot is what the planner sees.
func (w *world) snapshot() *model.Snapshot {
	s := &model.Snapshot{Now: w.now, Levels: []string{"block"}, Nodes: []model.Node{killNode("home")}}
	s.Nodes[0].Levels = map[string]string{"block": "home"}
	for _, m := range w.cloud {
		if !m.knownToNomad || m.purged {
			continue
		}
		n := killNode(m.id)
		n.Name = m.name
		n.Bought = &model.Bought{Pool: "p", Name: m.name, Purchase: m.purchase, Market: m.market}
		n.Levels = map[string]string{"block": m.purchase}
		switch {
		case !w.up(m):
			n.Unschedulable = "down"
		case m.drained && w.busy(m):
			n.Unschedulable = "draining"
		case m.drained:
			n.Unschedulable = "ineligible"
		case !w.ready(m):
			n.GPUs = nil
		}
		s.Nodes = append(s.Nodes, n)
	}
	for _, g := range w.gangs {
		if g.State != "" {
			s.Jobs = append(s.Jobs, g.Job)
		}
	}
	return s
}

// killNode is a node with four GPUs.
func killNode(id string) model.Node {
	n := model.Node{ID: id, Name: id, Capacity: model.Resources{CPUMHz: 8000, MemoryMiB: 8000, DiskMiB: 8000}}
	for i := range 4 {
		n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprintf("%s.%d", id, i), Vendor: "nvidia", Type: "gpu", Model: "H100", NUMA: -1})
	}
	return n
}

// addGang submits a gang of members with four GPUs each.
func (w *world) addGang(id string, members int, runs time.Duration) *gang {
	g := &gang{Job: model.Job{
		ID: id, Type: "batch", State: model.StateQueued, Gang: model.GangJob, Submitted: w.now, Duration: runs, Checkpoint: 10 * time.Minute,
		Groups: []model.TaskGroup{{Name: "g", Count: members, Devices: []model.DeviceAsk{{Name: "gpu", Count: 4}}}},
	}}
	w.gangs = append(w.gangs, g)
	return g
}
