package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/devicegpu"
	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
	"github.com/caravan-sched/caravan/internal/nomadplugin/host"
)

// runMain tells the test's binary to be the command.
const runMain = "CARAVAN_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func launch(t *testing.T, config string) (*device.Client, error) {
	t.Helper()
	t.Setenv(runMain, "1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := host.Launch(ctx, host.Options{Path: os.Args[0], Config: config})
	if err != nil {
		return nil, err
	}
	t.Cleanup(p.Close)
	if p.Info.Name != devicegpu.Name || p.Info.Version != devicegpu.Version || p.Type != base.TypeDevice {
		t.Errorf("plugin %+v of type %s", p.Info, p.Type)
	}
	return p.Device()
}

// first returns the first fingerprint.
func first(t *testing.T, client *device.Client) []device.Group {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var groups []device.Group
	got := errors.New("got it")
	if err := client.Fingerprint(ctx, func(g []device.Group) error { groups = g; return got }); !errors.Is(err, got) {
		t.Fatalf("fingerprint: %v", err)
	}
	return groups
}

// TestPlugin runs the binary as Nomad does.
func TestPlugin(t *testing.T) {
	config := `
		source = "mock:dgxh100"
		mock_seed = "node1"
		nccl_topology = "` + t.TempDir() + `"`
	client, err := launch(t, config)
	if err != nil {
		t.Fatal(err)
	}
	groups := first(t, client)
	if len(groups) != 1 || groups[0].Name != "NVIDIA H100 80GB HBM3" || len(groups[0].Devices) != 8 {
		t.Fatalf("groups %+v", groups)
	}
	if n, ok := groups[0].Attributes["nvlink_island_size"].AsInt(); !ok || n != 8 {
		t.Errorf("nvlink_island_size is %d", n)
	}
	encoded, _ := groups[0].Attributes[topology.AttrTopology].AsString()
	m, err := topology.Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if i, ok := m.Index(groups[0].Devices[5].ID); !ok || i != 5 {
		t.Errorf("device 5 is GPU %d of the matrix", i)
	}

	ids := []string{groups[0].Devices[6].ID, groups[0].Devices[2].ID}
	r, err := client.Reserve(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(ids)
	if got := r.Env["CUDA_VISIBLE_DEVICES"]; got != strings.Join(ids, ",") || len(r.Devices) > 0 {
		t.Errorf("CUDA_VISIBLE_DEVICES=%s, devices %v", got, r.Devices)
	}
	if _, err := client.Reserve(t.Context(), []string{"GPU-nobody"}); err == nil || !strings.Contains(err.Error(), `"GPU-nobody" is unknown`) {
		t.Errorf("error %v", err)
	}

	got := errors.New("got it")
	err = client.Stats(t.Context(), time.Second, func(stats []device.GroupStats) error {
		if len(stats) != 1 || len(stats[0].Instances) != 8 {
			t.Errorf("statistics %+v", stats)
		}
		return got
	})
	if !errors.Is(err, got) {
		t.Errorf("statistics: %v", err)
	}

	// Another process of the same node, as after an agent's restart.
	again, err := launch(t, config)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := groups[0].Devices[0].ID, first(t, again)[0].Devices[0].ID; a != b {
		t.Errorf("the first GPU was %s and is now %s", a, b)
	}
}

func TestPluginRefusesBadConfig(t *testing.T) {
	_, err := launch(t, `
		source = "mock:dgx2"
		fingerprint_period = "0s"`)
	for _, want := range []string{`source = "mock:dgx2"`, `fingerprint_period = "0s"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
}

func TestByHand(t *testing.T) {
	run := func(args ...string) (string, int) {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), runMain+"=1")
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := run(); code != 0 || !strings.Contains(out, "Usage:") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if out, code := run("check", "--source", "mock:dgxb200"); code != 0 || !strings.Contains(out, "8 GPUs in 1 island") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if out, code := run("check", "--source", "x"); code != 1 || !strings.Contains(out, "allowed are") {
		t.Errorf("exit code %d, %s", code, out)
	}
}
