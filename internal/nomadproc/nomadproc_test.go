package nomadproc_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/nomadplugin/plugintest"
	"github.com/caravan-sched/caravan/internal/nomadproc"
)

// TestNomadRunsOurDevicePlugin is the test that counts for the plugin
// protocol: a real client loads a plugin that was built on it, believes its
// fingerprint, and gives its devices to a task.
func TestNomadRunsOurDevicePlugin(t *testing.T) {
	c := start(t, devcluster.Spec{Nodes: []devcluster.Node{
		{Name: "a", Meta: map[string]string{"caravan_rack": "r1"}, Plugins: []devcluster.Plugin{plugin(t, `
			prefix = "a-"`)}},
		{Name: "b", Meta: map[string]string{"caravan_rack": "r1"}, Plugins: []devcluster.Plugin{plugin(t, `
			count  = 4
			prefix = "b-"`)}},
		{Name: "c", DistinctClass: true, Class: "gpu"},
	}})
	all := nodes(t, c)
	classA, classB, classC := computedClass(t, c, all["a"]), computedClass(t, c, all["b"]), computedClass(t, c, all["c"])
	if classA != classB || classA == "" {
		t.Errorf("classes of like nodes are %q and %q, want them equal: unique attributes must not count", classA, classB)
	}
	if all["c"].NodeClass != "gpu" || classC == classA {
		t.Errorf("node c has class %q, computed %q as node a", all["c"].NodeClass, classC)
	}
	checkDevices(t, all["b"])

	if _, _, err := c.Client().Jobs().Register(sleeper(), nil); err != nil {
		t.Fatal(err)
	}
	alloc := waitRunning(t, c)
	got := alloc.AllocatedResources.Tasks["main"].Devices[0]
	slices.Sort(got.DeviceIDs)
	if diff := cmp.Diff([]string{"b-1", "b-2"}, got.DeviceIDs); alloc.NodeName != "b" || diff != "" {
		t.Errorf("on node %s, want b, with devices (-want +got):\n%s", alloc.NodeName, diff)
	}

	// The task survives a crash of its client, and is the same afterwards.
	if err := c.StopNode("b"); err != nil {
		t.Fatal(err)
	}
	if err := c.StopNode("b"); err == nil {
		t.Error("StopNode of a stopped node = nil, want an error")
	}
	if err := c.StartNode("b"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if again := nodes(t, c)["b"]; again.ID != all["b"].ID {
		t.Errorf("node b came back as %s, was %s", again.ID, all["b"].ID)
	}
	if again := waitRunning(t, c); again.ID != alloc.ID || again.TaskStates["main"].Restarts != 0 {
		t.Errorf("allocation %s with %d restarts, want %s with none", again.ID, again.TaskStates["main"].Restarts, alloc.ID)
	}

	left := marked(t, alloc.ID)
	if len(left) == 0 {
		t.Fatal("found no process of the task; the check for leftovers would be void")
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	if left := marked(t, alloc.ID); len(left) != 0 {
		t.Errorf("processes left after Stop: %v", left)
	}
}

// computedClass is what the API client leaves out.
func computedClass(t *testing.T, c devcluster.Cluster, n *api.Node) string {
	t.Helper()
	var out struct{ ComputedClass string }
	if _, err := c.Client().Raw().Query("/v1/node/"+n.ID, &out, nil); err != nil {
		t.Fatal(err)
	}
	return out.ComputedClass
}

func checkDevices(t *testing.T, n *api.Node) {
	t.Helper()
	if len(n.NodeResources.Devices) != 1 {
		t.Fatalf("node %s has device groups %v, want one", n.Name, n.NodeResources.Devices)
	}
	group := n.NodeResources.Devices[0]
	var ids []string
	for _, d := range group.Instances {
		if !d.Healthy {
			t.Errorf("device %s is not healthy", d.ID)
		}
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	if diff := cmp.Diff([]string{"b-0", "b-1", "b-2", "b-3"}, ids); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	attributes := map[string]string{}
	for k, v := range group.Attributes {
		attributes[k] = v.String()
	}
	want := map[string]string{}
	for k, v := range plugintest.DeviceGroups(plugintest.Config{Count: 4, Prefix: "b-"})[0].Attributes {
		want[k] = v.Text()
	}
	want["memory"], want["clock"] = "80 GiB", "1.98 GHz" // the API client puts a blank before the unit
	if diff := cmp.Diff(want, attributes); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if name := fmt.Sprintf("%s/%s/%s", group.Vendor, group.Type, group.Name); name != "nvidia/gpu/Test GPU" {
		t.Errorf("device group is %s", name)
	}
}

func waitRunning(t *testing.T, c devcluster.Cluster) *api.Allocation {
	t.Helper()
	var alloc *api.Allocation
	eventually(t, "allocation of the job", func() (bool, any) {
		stubs, _, err := c.Client().Jobs().Allocations("sleeper", false, nil)
		if err != nil || len(stubs) != 1 {
			evals, _, _ := c.Client().Jobs().Evaluations("sleeper", nil)
			for _, e := range evals {
				for _, m := range e.FailedTGAllocs {
					return false, fmt.Sprintf("%+v", m)
				}
			}
			return false, fmt.Sprint(len(stubs), err)
		}
		if stubs[0].ClientStatus != api.AllocClientStatusRunning {
			return false, stubs[0].ClientStatus
		}
		alloc, _, err = c.Client().Allocations().Info(stubs[0].ID, nil)
		return err == nil, err
	})
	return alloc
}

// marked lists the processes with the text in their environment.
func marked(t *testing.T, text string) []string {
	t.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range environs {
		// A process that has ended meanwhile is none.
		if data, err := os.ReadFile(e); err == nil && strings.Contains(string(data), text) {
			out = append(out, filepath.Base(filepath.Dir(e)))
		}
	}
	return out
}

func TestACL(t *testing.T) {
	c := start(t, devcluster.Spec{ACL: true})
	if _, err := c.Client().Operator().RaftGetConfiguration(nil); err != nil {
		t.Errorf("with the cluster's token: %v", err)
	}
	anonymous, err := api.NewClient(&api.Config{Address: c.Address()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := anonymous.Operator().RaftGetConfiguration(nil); err == nil || c.Token() == "" {
		t.Errorf("without a token = %v with token %q, want it refused", err, c.Token())
	}
	if c.Backend() != devcluster.BackendNomad || c.Version() == "" {
		t.Errorf("backend %q, version %q", c.Backend(), c.Version())
	}
}

// TestKilledProcessLeavesNothing kills the process that started a cluster.
func TestKilledProcessLeavesNothing(t *testing.T) {
	binary(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "cluster")
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envHelper+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "ready <nil>" {
		t.Fatalf("helper says %q, %v", line, err)
	}
	agents := func() []string { return commands(t, dir) }
	if got := agents(); len(got) != 2 {
		t.Fatalf("found agents %v, want 2", got)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	eventually(t, "agents after the kill", func() (bool, any) { got := agents(); return len(got) == 0, got })
}

// commands lists the agents with a configuration in the directory.
func commands(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(data), "\x00agent\x00") && strings.Contains(string(data), dir) {
			out = append(out, filepath.Base(filepath.Dir(f)))
		}
	}
	return out
}

func TestStartFails(t *testing.T) {
	bad := devcluster.Spec{Nodes: []devcluster.Node{{Name: "a"}, {Name: "a"}, {Name: "x/y"}, {Name: "b", Plugins: []devcluster.Plugin{{Name: "p"}}}}}
	_, err := nomadproc.Start(t.Context(), "/bin/true", bad)
	if err == nil || !strings.Contains(err.Error(), "Nomad v") {
		t.Errorf("Start of /bin/true = %v, want it to say that this is not Nomad", err)
	}
	if _, err := nomadproc.Start(t.Context(), "/nonexistent", bad); err == nil || !strings.Contains(err.Error(), "/nonexistent") {
		t.Errorf("Start of nothing = %v, want it to name the file", err)
	}
	fake := filepath.Join(t.TempDir(), "nomad")
	script := "#!/bin/sh\n[ \"$1\" = version ] && { echo 'Nomad v9.9.9'; exit; }\necho 'no port left' >&2\nexit 1\n"
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = nomadproc.Start(t.Context(), fake, bad)
	for _, want := range []string{`"a" is taken`, `"x/y"`, `plugin "p"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start of a bad cluster = %v, want it to say %s", err, want)
		}
	}
	dir := filepath.Join(t.TempDir(), "data")
	_, err = nomadproc.Start(t.Context(), fake, devcluster.Spec{DataDir: dir})
	if err == nil || !strings.Contains(err.Error(), "no port left") {
		t.Errorf("Start with an agent that fails = %v, want its log", err)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	t.Setenv(nomadproc.EnvBinary, "")
	if path, ok := nomadproc.Find(); ok {
		t.Errorf("Find() = %s, want none", path)
	}
	onPath := filepath.Join(dir, "nomad")
	if err := os.WriteFile(onPath, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if path, ok := nomadproc.Find(); !ok || path != onPath {
		t.Errorf("Find() = %s, %v, want %s", path, ok, onPath)
	}
	t.Setenv(nomadproc.EnvBinary, "/some/where")
	if path, ok := nomadproc.Find(); !ok || path != "/some/where" {
		t.Errorf("Find() = %s, %v, want what NOMAD_BIN says", path, ok)
	}
}
