package devicegpu

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/devicegpu/health"
	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// TestDocumentation: every key that an operator or a job may write is in the
// documentation.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile("../docs/device-plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := nvml.Open(nvml.Spec{Source: "mock:dgxh100", Seed: "x"})
	if err != nil {
		t.Fatal(err)
	}
	inv, err := source.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	for i := range inv.Matrix.GPUs {
		inv.Matrix.GPUs[i].Fabric = topology.Fabric{ClusterUUID: "ab"}
	}
	groups, err := Groups(inv, true)
	if err != nil {
		t.Fatal(err)
	}
	keys := slices.Concat(
		slices.Sorted(maps.Keys(groups[0].Attributes)),
		slices.Sorted(maps.Keys(configSchema().GetObject().GetAttributes())),
		[]string{envCUDADevices, envCUDAOrder, envNVIDIADevices, envIMEXChannels, envNCCLTopology, envROCmDevices, envBusIDs, imexChannel},
		controlNodes, rivals,
		[]string{topology.AttrInstances, topology.AttrDivisions, "mig_profile", "mig_slices", "mig_multiprocessors"},
		[]string{topology.AttrShares, "shared_slices", "shared_memory", envSlice, envSlices, envMemory, envMPSPipe, envMPSMemory, envMPSThreads},
		slices.Sorted(fields[sharing]()),
		statNames(),
	)
	for _, k := range health.Kinds() {
		keys = append(keys, string(k))
	}
	for _, key := range keys {
		if !strings.Contains(string(data), "`"+key+"`") {
			t.Errorf("%s is not documented", key)
		}
	}
}

// statNames are the names of all statistics.
func statNames() []string {
	n := uint64(1)
	s := nvml.Sample{UUID: "GPU-0", Throttled: &[]string{}}
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		if v.Field(i).Type() == reflect.TypeFor[*uint64]() {
			v.Field(i).Set(reflect.ValueOf(&n))
		}
	}
	return slices.Sorted(maps.Keys(stats(nvml.GPU{}, s, s, time.Time{}, time.Second).Values))
}
