// Package gpunodes gives the clusters of tests nodes with simulated GPUs. Only tests
// import it.
package gpunodes

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/caravan-sched/caravan/internal/devcluster"
)

// PluginName is the base name of the device plugin's binary.
const PluginName = "nomad-device-caravan"

// parallel is how many tests run at once, whatever the machine has: they wait for
// clusters most of the time.
const parallel = "4"

var built struct {
	once sync.Once
	path string
	err  error
}

// Main runs a package's tests on such clusters, removes the plugin that they have had
// built, and returns the exit status.
func Main(m *testing.M) int {
	flag.Parse()
	if err := flag.Set("test.parallel", parallel); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if built.path != "" {
		os.RemoveAll(filepath.Dir(built.path))
	}
	return code
}

// Plugin is the path of the device plugin's binary, which is built once for all tests
// of a package. The package's TestMain is to call Main.
func Plugin(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		dir, err := os.MkdirTemp("", "caravan-plugin-")
		if err != nil {
			built.err = err
			return
		}
		built.path = filepath.Join(dir, PluginName)
		out, err := exec.Command("go", "build", "-o", built.path, "github.com/caravan-sched/caravan/devicegpu/cmd/"+PluginName).CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("build the device plugin: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

// Node has eight simulated GPUs, whose UUIDs follow from its name. More is added to
// its plugin's configuration, in HCL.
func Node(name, rack, plugin, more string) devcluster.Node {
	return devcluster.Node{
		Name: name, Meta: map[string]string{"caravan_rack": rack},
		Plugins: []devcluster.Plugin{{Name: PluginName, Path: plugin,
			Config: fmt.Sprintf("enabled = true\nsource = \"mock:dgxh100\"\nmock_seed = %q\n%s", name, more)}},
	}
}

// Ready waits until a cluster that was started is ready, and stops it when the test
// ends.
func Ready(ctx context.Context, t *testing.T, c devcluster.Cluster) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	if err := c.WaitReady(ctx); err != nil {
		t.Fatalf("wait for the cluster: %v", err)
	}
}
