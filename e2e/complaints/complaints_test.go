package complaints

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// complaint is a row of docs/complaints.md.
type complaint struct {
	// name is the test's, and where the complaint is.
	name string
	// fact is what was complained about, caravan what happens on Caravan.
	fact, caravan string
	test          func(t *testing.T)
}

var complaints = []complaint{
	{"nomad#27102", "A group with two tasks of two GPUs each finds no node that has four, when the node lists them in more than one device group.",
		"Both tasks run, each with devices of its own.", severalTasks},
	{"nomad#26584", "A node with one GPU each of two models cannot serve a task that asks for two GPUs of any model.",
		"A task that names each model in a device block of its own gets both. One request for two of any model, which Nomad serves from one model only, waits with a reason and keeps nobody from the GPUs.", twoModels},
	{"nomad#27820", "A task with two device blocks is told that the node is exhausted, although evicting a job of lower priority would free enough.",
		"Nothing is evicted one allocation at a time. The job waits, the reason names who holds the GPUs, and it gets all its devices when they are free.", twoRequests},
	{"nomad#25808", "Evaluations that run at the same time choose the same devices; the plans are rejected as oversubscribed, over and over, and nothing is placed.",
		"Jobs that arrive at the same moment are decided on together: each GPU is decided once, those that fit run, the others wait with a reason.", manyAtOnce},
	{"nomad#7696", "A change that restarts nothing gives a running allocation other device IDs on paper.",
		"A change that restarts nothing keeps every member on the GPUs that it has, in Nomad's books and in Caravan's.", sameGPUs},
	{"nomad#9473", "A task restarted before the device plugin of a restarted client has fingerprinted comes up without its devices.",
		"The plugin answers a reservation from its own look at the GPUs: with all that were asked for, or with an error that names what is missing.", beforeFingerprint},
	{"nomad#18364", "A job pinned to a GPU that is taken is placed without it, and nobody is warned.",
		"It is not placed. It waits, and the reason says what is in its way.", takenGPU},
	{"nomad-device-nvidia#60", "A GPU node shows no GPU in Nomad, and nothing says that the plugin is at fault.",
		"`caravan doctor` names the node that should have GPUs and shows none, and what to do there.", noFingerprint},
	{"nomad-device-nvidia#35", "How does one see that the plugin is installed and works?",
		"`nomad-device-caravan check` on the node says what Nomad will be shown; `caravan doctor` says how many GPUs it was shown.", seeThatItWorks},
	{"k8s-device-plugin#1078", "On nodes with whole and divided GPUs, what a container sees is not what it asked for.",
		"A request for a model gets whole GPUs, one for a profile gets instances, each as many as asked for, and never parts of both for one request. A request for any GPU may get an instance, as in Nomad; `${device.attr.mig_profile}` with `is_not_set` rules that out.", mixedNode},
	{"k8s-device-plugin#1193", "On a node with NVLink pairs, single-GPU pods that come first take one GPU of each pair, and those that need two get GPUs without NVLink between them.",
		"Single GPUs fill up a pair that is broken already before another one is broken, whoever comes first; what needs two gets a pair.", pairsStayWhole},
	{"k8s-device-plugin#2038", "One GPU off the bus makes every allocation on its node fail, those on healthy GPUs too.",
		"The sick GPU stays listed with its reason; jobs get the seven others, and one that needs eight waits with a reason.", oneSick},
}

func TestComplaints(t *testing.T) {
	for _, c := range complaints {
		t.Run(c.name, c.test)
	}
}

// only returns the lines that leave a simulated node these of its GPUs.
func only(t *testing.T, node string, keep ...int) string {
	t.Helper()
	source, err := nvml.Open(nvml.Spec{Source: "mock:dgxh100", Seed: node})
	if err != nil {
		t.Fatal(err)
	}
	inv, err := source.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	var ignored []string
	for i, g := range inv.Matrix.GPUs {
		if !slices.Contains(keep, i) {
			ignored = append(ignored, fmt.Sprintf("%q", g.UUID))
		}
	}
	return "source = \"mock:dgxh100\"\nignored_gpu_ids = [" + strings.Join(ignored, ", ") + "]\n"
}

// models are the device groups of a node, with how many devices each has.
func models(n *api.Node) map[string]int {
	out := map[string]int{}
	for _, d := range n.NodeResources.Devices {
		out["nvidia/gpu/"+d.Name] = len(d.Instances)
	}
	return out
}

func severalTasks(t *testing.T) {
	e := start(t, gpuNode("mixed", only(t, "mixed", 0, 1)+`mock_mig = ["0:3g.40gb,3g.40gb", "1:2g.20gb,2g.20gb"]`))
	if got := slices.Collect(maps.Values(models(e.node("mixed")))); !slices.Equal(got, []int{2, 2}) {
		t.Fatalf("devices by group: %v, want two and two", got)
	}
	e.submit(job("j", 1, asks(devices("nvidia/gpu", 2)), asks(devices("nvidia/gpu", 2))))
	e.explain("j", running)
	for _, a := range e.allocs("j") {
		if got := e.gpus(a); len(got["t0"]) != 2 || len(got["t1"]) != 2 {
			t.Errorf("devices of the two tasks: %v, want two each", got)
		}
	}
}

func twoModels(t *testing.T) {
	e := start(t, gpuNode("mixed", only(t, "mixed", 0, 1)+`mock_mig = ["0:3g.40gb", "1:2g.20gb"]`))
	names := slices.Sorted(maps.Keys(models(e.node("mixed"))))
	if len(names) != 2 {
		t.Fatalf("device groups: %q, want two of one device", names)
	}
	// Nomad takes the devices of one request from one group; what can never be
	// placed waits, and says so.
	e.submit(job("any", 1, asks(devices("nvidia/gpu", 2))))
	e.explain("any", waits)
	e.submit(job("both", 1, asks(devices(names[0], 1), devices(names[1], 1))))
	e.explain("both", running)
	if got := e.gpus(e.allocs("both")[0]); len(got["t0"]) != 2 {
		t.Errorf("devices: %v, want one of each model", got)
	}
	if got := e.allocs("any"); len(got) != 0 {
		t.Errorf("the job that cannot be served is placed: %v", e.gpus(got[0]))
	}
}

func twoRequests(t *testing.T) {
	e := start(t, gpuNode("n", ""))
	low := job("low", 1, asks(devices("nvidia/gpu", 8)))
	low.Priority = ptr(10)
	e.submit(low)
	e.explain("low", running)
	before := e.allocs("low")[0].ID
	high := job("high", 1, asks(devices("nvidia/gpu", 1), devices("nvidia/gpu", 1)))
	high.Priority = ptr(100)
	e.submit(high)
	if x := e.explain("high", waits); !strings.Contains(x.Reason, "low") {
		t.Errorf("the reason does not name who holds the GPUs: %q", x.Reason)
	}
	if now := e.allocs("low"); len(now) != 1 || now[0].ID != before {
		t.Errorf("the running job was disturbed")
	}
	if _, _, err := e.user.Jobs().Deregister("low", true, nil); err != nil {
		t.Fatal(err)
	}
	e.explain("high", running)
	if got := e.gpus(e.allocs("high")[0]); len(got["t0"]) != 2 {
		t.Errorf("devices: %v, want two", got)
	}
}

func manyAtOnce(t *testing.T) {
	e := start(t, gpuNode("n1", ""), gpuNode("n2", ""))
	const jobs = 12 // of two GPUs each; eight fit
	var wg sync.WaitGroup
	for i := range jobs {
		wg.Go(func() {
			if _, _, err := e.user.Jobs().Register(job(fmt.Sprintf("j%02d", i), 1, asks(devices("nvidia/gpu", 2))), nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	e.until("eight run and four wait", func() (bool, any) {
		run, wait := 0, 0
		for i := range jobs {
			x, err := e.caravan.Explain(t.Context(), "default", fmt.Sprintf("j%02d", i))
			if err == nil && running(x) {
				run++
			} else if err == nil && waits(x) {
				wait++
			}
		}
		return run == 8 && wait == 4, []int{run, wait}
	})
	holder := map[string]string{}
	for i := range jobs {
		id := fmt.Sprintf("j%02d", i)
		for _, a := range e.allocs(id) {
			for _, g := range e.gpus(a)["t0"] {
				if other := holder[g]; other != "" {
					t.Errorf("GPU %s is given to %s and %s", g, other, id)
				}
				holder[g] = id
			}
		}
	}
	if len(holder) != 16 {
		t.Errorf("%d GPUs are in use, want 16", len(holder))
	}
}

func sameGPUs(t *testing.T) {
	e := start(t, gpuNode("n1", ""), gpuNode("n2", ""))
	e.submit(gang(job("j", 2, asks(devices("nvidia/gpu", 2)))))
	e.explain("j", running)
	held := func() map[string][]string {
		out := map[string][]string{}
		for _, a := range e.allocs("j") {
			out[a.ID] = e.gpus(a)["t0"]
		}
		return out
	}
	before := held()
	version := e.version("j")
	next := gang(job("j", 2, asks(devices("nvidia/gpu", 2))))
	next.Priority = ptr(70)
	e.submit(next)
	e.until("every member runs under the new version", func() (bool, any) {
		all := e.allocs("j")
		return len(all) == 2 && !slices.ContainsFunc(all, func(a *api.Allocation) bool { return *a.Job.Version <= version || *a.Job.Priority != 70 }), len(all)
	})
	if diff := cmp.Diff(before, held()); diff != "" {
		t.Errorf("members and their GPUs (-before +after):\n%s", diff)
	}
	x := e.explain("j", running)
	for _, m := range x.Placement {
		slices.Sort(m.GPUs)
		if got := before[m.Alloc]; !slices.Equal(got, m.GPUs) {
			t.Errorf("member %s %d: Caravan has %v on its books, Nomad %v", m.Group, m.Index, m.GPUs, got)
		}
	}
}

// version is a job's in Nomad.
func (e *env) version(id string) uint64 {
	e.Helper()
	j, _, err := e.nomad.Jobs().Info(id, nil)
	if err != nil {
		e.Fatal(err)
	}
	return *j.Version
}

func takenGPU(t *testing.T) {
	e := start(t, gpuNode("n", ""))
	e.submit(job("holder", 1, asks(devices("nvidia/gpu", 1))))
	e.explain("holder", running)
	gpu := e.gpus(e.allocs("holder")[0])["t0"][0]
	e.submit(job("wants", 1, asks(devices("nvidia/gpu", 1, "${device.ids} set_contains "+gpu))))
	if x := e.explain("wants", waits); !strings.Contains(x.Reason, "holder") {
		t.Errorf("the reason does not name who holds the GPU: %q", x.Reason)
	}
	if got := e.allocs("wants"); len(got) != 0 {
		t.Errorf("it was placed all the same, with %v", e.gpus(got[0]))
	}
	if _, _, err := e.user.Jobs().Deregister("holder", true, nil); err != nil {
		t.Fatal(err)
	}
	e.explain("wants", running)
	if got := e.gpus(e.allocs("wants")[0])["t0"]; !slices.Equal(got, []string{gpu}) {
		t.Errorf("GPUs %v, want %s", got, gpu)
	}
}

func noFingerprint(t *testing.T) {
	e := start(t, gpuNode("good", ""), devcluster.Node{Name: "silent", Meta: map[string]string{"caravan_rack": "r1"}})
	c := e.doctor("device-plugin")
	if c.Status != httpapi.CheckWarn || !strings.Contains(c.Detail, "silent") || !strings.Contains(c.Do, pluginBin+" check") {
		t.Errorf("check: %+v; want a warning that names the node and what to do", c)
	}
}

func seeThatItWorks(t *testing.T) {
	out, err := exec.Command(filepath.Join(bin, pluginBin), "check", "--source", "mock:dgxh100").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "H100") {
		t.Errorf("check: %v\n%s", err, out)
	}
	e := start(t, gpuNode("n", ""))
	if c := e.doctor("device-plugin"); c.Status != httpapi.CheckOK || !strings.Contains(c.Detail, "8 GPUs") {
		t.Errorf("check: %+v; want the number of GPUs", c)
	}
}

func oneSick(t *testing.T) {
	faults := filepath.Join(t.TempDir(), "faults")
	if err := os.WriteFile(faults, []byte("3 lost\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := start(t, gpuNode("n", fmt.Sprintf("source = \"mock:dgxh100\"\nmock_faults = %q", faults)))
	sick := ""
	for _, d := range e.node("n").NodeResources.Devices {
		for _, x := range d.Instances {
			if !x.Healthy {
				sick += x.ID + " " + x.HealthDescription
			}
		}
	}
	if sick == "" {
		t.Fatal("no GPU is listed as unhealthy")
	}
	for i := range 7 {
		e.submit(job(fmt.Sprintf("one%d", i), 1, asks(devices("nvidia/gpu", 1))))
	}
	for i := range 7 {
		id := fmt.Sprintf("one%d", i)
		e.explain(id, running)
		if got := e.gpus(e.allocs(id)[0])["t0"]; len(got) != 1 || strings.HasPrefix(sick, got[0]) {
			t.Errorf("job %s got %v; %s is sick", id, got, sick)
		}
	}
	e.submit(job("eight", 1, asks(devices("nvidia/gpu", 8))))
	e.explain("eight", waits)
}

// node is a node by its name.
func (e *env) node(name string) *api.Node {
	e.Helper()
	list, _, err := e.nomad.Nodes().List(nil)
	if err != nil {
		e.Fatal(err)
	}
	for _, s := range list {
		if s.Name == name {
			n, _, err := e.nomad.Nodes().Info(s.ID, nil)
			if err != nil {
				e.Fatal(err)
			}
			return n
		}
	}
	e.Fatalf("no node %s", name)
	return nil
}

// doctor is a check of caravan doctor.
func (e *env) doctor(name string) httpapi.Check {
	e.Helper()
	d, err := e.caravan.Doctor(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	for _, c := range d.Checks {
		if c.Name == name {
			return c
		}
	}
	e.Fatalf("no check %s in %+v", name, d.Checks)
	return httpapi.Check{}
}
