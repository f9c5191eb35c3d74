package random

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

var quiet = log.New(io.Discard, "", 0)

// node is a Nomad client without processes: what runs on it is a list, so
// that no time passes, and what is on a GPU is known for sure.
type node struct {
	w    *world
	id   string
	name string
	rack string
	up   bool
	// sick is the GPU that the device plugin calls unhealthy, counted from 1; 0
	// is none.
	sick int
	// runs are what is on the machine, by allocation, whatever the servers
	// think of it.
	runs map[string]*run
	// past is how many IDs the client had before this one.
	past int
}

// run is an allocation's tasks on a machine.
type run struct {
	id string
	// of is the client's ID when it began.
	of    string
	job   string
	group string
	batch bool
	gpus  []string
	// ends is when it will have stopped; zero while it is to run.
	ends time.Time
	// created is its index in Nomad.
	created uint64
	// purged: the servers have forgotten it, and it may run for killTime still.
	purged bool
	// seen is the latest planner that has seen it.
	seen int
	// sick: it has failed or completed, and is to be reported so.
	status string
}

func gpuID(node string, i int) string { return fmt.Sprintf("GPU-%s-%d", node, i) }

// start brings the agent up; what runs on the machine is reported anew.
func (n *node) start() error {
	n.up = true
	dev := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: "H100", Attributes: map[string]*api.Attribute{}}
	for i := range gpusPerNode {
		dev.Instances = append(dev.Instances, &api.NodeDevice{ID: gpuID(n.name, i), Healthy: i+1 != n.sick})
	}
	x := &api.Node{
		ID: n.id, Name: n.name, Datacenter: "dc1", NodePool: api.NodePoolDefault,
		Attributes: map[string]string{"kernel.name": "linux", "driver.mock_driver": "1", "unique.hostname": n.name, "nomad.version": "2.0.5"},
		Drivers:    map[string]*api.DriverInfo{"mock_driver": {Detected: true, Healthy: true}},
		Meta:       map[string]string{"caravan_rack": n.rack}, HostVolumes: map[string]*api.HostVolumeInfo{}, Links: map[string]string{},
		ReservedResources: &api.NodeReservedResources{},
		NodeResources: &api.NodeResources{
			Cpu:    api.NodeCpuResources{CpuShares: 64_000, TotalCpuCores: 32},
			Memory: api.NodeMemoryResources{MemoryMB: 512 << 10}, Disk: api.NodeDiskResources{DiskMB: 1 << 20},
			Devices: []*api.NodeDeviceResource{dev}, MinDynamicPort: 20000, MaxDynamicPort: 32000,
		},
	}
	if err := n.w.server.Connect(&state.Node{Node: x, ComputedClass: "v1:" + n.rack}); err != nil {
		return err
	}
	var reports []*api.Allocation
	for _, id := range sortedKeys(n.runs) {
		if n.runs[id].of != n.id {
			continue
		}
		reports = append(reports, report(id, api.AllocClientStatusRunning, n.w.clock.Now()))
	}
	return n.w.server.UpdateAllocs(reports)
}

// renew brings the agent up with nothing of what it knew: it has a new ID, and
// the tasks of the old one live on, which nobody looks after.
func (n *node) renew() error {
	n.w.server.Disconnect(n.id)
	n.past++
	n.id = fmt.Sprintf("%08d-%04d%s", n.past, n.past, n.id[13:])
	return n.start()
}

// forgotten are IDs of the client's that the servers do not know any more: the
// machine was looked after before somebody told them so.
func (n *node) forgotten(id string) (gone bool) {
	n.w.server.Store().View(func(v *state.View) { gone = v.Node(id) == nil })
	return gone
}

// stop kills the agent; its tasks live on.
func (n *node) stop() {
	n.up = false
	n.w.server.Disconnect(n.id)
}

func report(id, status string, now time.Time) *api.Allocation {
	s := &api.TaskState{State: "dead", FinishedAt: now, Failed: status == api.AllocClientStatusFailed}
	switch status {
	case api.AllocClientStatusRunning:
		s = &api.TaskState{State: "running", StartedAt: now}
	case api.AllocClientStatusPending:
		s = &api.TaskState{State: "pending"}
	}
	if s.Failed {
		s.Events = []*api.TaskEvent{{Type: api.TaskTerminated, DisplayMessage: "Exit Code: 1", Time: now.UnixNano()}}
	}
	return &api.Allocation{ID: id, ClientStatus: status, TaskStates: map[string]*api.TaskState{"main": s}}
}

// sync is what a client does when the servers tell it its allocations.
func (n *node) sync() (moved bool) {
	if !n.up {
		return false
	}
	now := n.w.clock.Now()
	var mine []*api.Allocation
	n.w.server.Store().View(func(v *state.View) { mine = v.AllocsOfNode(n.id) })
	known := map[string]bool{}
	var reports []*api.Allocation
	// Those that go are told before those that come begin.
	slices.SortStableFunc(mine, func(a, b *api.Allocation) int {
		return cmp.Compare(b.DesiredStatus, a.DesiredStatus)
	})
	for _, a := range mine {
		known[a.ID] = true
		r := n.runs[a.ID]
		wants := a.DesiredStatus == api.AllocDesiredStatusRun
		switch {
		case r == nil && a.ClientTerminalStatus():
		case r == nil && a.ClientStatus == api.AllocClientStatusUnknown:
			reports = append(reports, report(a.ID, api.AllocClientStatusComplete, now))
		case r == nil && !wants:
			reports = append(reports, report(a.ID, api.AllocClientStatusComplete, now))
		case r == nil && n.runs[a.PreviousAllocation] != nil: // waits for its predecessor
		case r == nil:
			n.begin(a)
			reports = append(reports, report(a.ID, api.AllocClientStatusRunning, now))
		case r.status != "":
			reports = append(reports, report(a.ID, r.status, now))
			delete(n.runs, a.ID)
		case !wants && r.ends.IsZero():
			r.ends = now.Add(killTime)
		case !r.ends.IsZero() && !now.Before(r.ends):
			reports = append(reports, report(a.ID, api.AllocClientStatusComplete, now))
			delete(n.runs, a.ID)
		}
	}
	for id, r := range n.runs {
		switch {
		case r.of != n.id && n.forgotten(r.of):
			delete(n.runs, id)
			moved = true
		case r.of != n.id || known[id]:
		case r.ends.IsZero():
			r.ends, r.purged = now.Add(killTime), true
		case !now.Before(r.ends):
			delete(n.runs, id)
			moved = true
		default:
			r.purged = true
		}
	}
	if len(reports) == 0 {
		return moved
	}
	if err := n.w.server.UpdateAllocs(reports); err != nil {
		n.w.fail("report: %v", err)
	}
	return true
}

// begin starts an allocation, whose GPUs must be free.
func (n *node) begin(a *api.Allocation) {
	r := &run{id: a.ID, of: n.id, job: a.Namespace + "/" + a.JobID, group: a.TaskGroup, batch: *a.Job.Type == api.JobTypeBatch, gpus: gpusOf(a), created: a.CreateIndex}
	for _, other := range n.runs {
		for _, g := range r.gpus {
			// What Nomad replaces by itself where there are no pins, it replaces in
			// its own way: the new one waits for its predecessor only, not for other
			// members whose GPUs it is given. Nor does it know of what runs on where
			// a client is back under a new ID.
			if own := other.job == r.job && !other.ends.IsZero(); (own || other.of != n.id) && !rewrite.IsPinned(a.Job) {
				continue
			}
			if other.purged && !n.w.answersFor(a, other) {
				continue
			}
			if slices.Contains(other.gpus, g) {
				n.w.fail("GPU %s is given to %s of %s while %s of %s is on it", g, r.id, r.job, other.id, other.job)
			}
		}
	}
	n.runs[a.ID] = r
}

// answersFor says whether it is for the planner to keep an allocation off what
// was purged: not what Nomad places without pins or with those of before the
// other was there, nor if it was purged before this planner has seen it.
func (w *world) answersFor(a *api.Allocation, purged *run) bool {
	return rewrite.IsPinned(a.Job) && *a.Job.JobModifyIndex > purged.created && purged.seen == w.planners
}

func gpusOf(a *api.Allocation) (out []string) {
	if a.AllocatedResources == nil {
		return nil
	}
	for _, t := range a.AllocatedResources.Tasks {
		for _, d := range t.Devices {
			out = append(out, d.DeviceIDs...)
		}
	}
	return out
}

func sortedKeys[T any](m map[string]T) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
