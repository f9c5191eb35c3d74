package health

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
)

func ptr[T any](v T) *T { return &v }

// node is a node of two H100s with 18 NVLinks to switches.
func node(change ...func(a, b *nvml.Health)) nvml.Inventory {
	inv := nvml.Inventory{Matrix: topology.Empty(2, 0), GPUs: make([]nvml.GPU, 2)}
	for i, uuid := range []string{"a", "b"} {
		inv.Matrix.GPUs[i].UUID, inv.Matrix.GPUs[i].Model = uuid, "H100"
		inv.GPUs[i].Health = nvml.Health{
			UncorrectedVolatile: ptr(uint64(0)), RemapPending: ptr(false), RemapFailed: ptr(false), SRAMThreshold: ptr(false),
			LinksActive: 18, LinksToSwitches: 18, Fabric: nvml.FabricCompleted,
		}
	}
	for _, c := range change {
		c(&inv.GPUs[0].Health, &inv.GPUs[1].Health)
	}
	return inv
}

const over = " (over: trusted again after 3 good looks)"

func TestReasons(t *testing.T) {
	ecc := func(a, _ *nvml.Health) { a.UncorrectedVolatile = ptr(uint64(2)) }
	const eccText = "2 uncorrectable memory errors since the driver was loaded: reset the GPU"
	down := func(a, _ *nvml.Health) { a.LinksActive, a.LinksToSwitches, a.LinksInactive = 16, 16, 2 }
	joining := func(a, _ *nvml.Health) { a.Fabric = nvml.FabricInProgress }
	lost := func(a, _ *nvml.Health) { *a = nvml.Health{Lost: "fell off"} }
	silent := func(a, _ *nvml.Health) { *a = nvml.Health{Silent: "error 999"} }
	const silentText, linkText = "the driver does not answer for it: error 999", "16 of 18 NVLinks are active"
	const fabricText = "it has not joined the NVLink fabric: in progress"
	pending := func(a, _ *nvml.Health) { a.RemapPending = ptr(true) }
	failed := func(a, _ *nvml.Health) { a.RemapFailed = ptr(true) }
	const pendingText, failedText = "memory rows are to be replaced: reset the GPU", "memory rows could not be replaced: have the GPU replaced"
	type change = func(a, b *nvml.Health)
	tests := map[string]struct {
		looks []change // nil is a healthy look
		want  []string // reasons of GPU a after each
	}{
		"healthy":                     {[]change{nil, nil}, []string{"", ""}},
		"ECC at once, trusted slowly": {[]change{nil, ecc, nil, nil, nil}, []string{"", eccText, eccText + over, eccText + over, ""}},
		"a relapse starts anew":       {[]change{ecc, nil, nil, ecc, nil, nil, nil}, []string{eccText, eccText + over, eccText + over, eccText, eccText + over, eccText + over, ""}},
		"links on the second look":    {[]change{nil, down, nil, down, down}, []string{"", "", "", "", linkText}},
		"links at first sight":        {[]change{down}, []string{linkText}},
		"fabric at first sight":       {[]change{joining, nil, nil, nil}, []string{fabricText, fabricText + over, fabricText + over, ""}},
		"fabric on the second look":   {[]change{nil, joining, joining}, []string{"", "", fabricText}},
		"lost at once":                {[]change{nil, lost}, []string{"", "fell off"}},
		"silent on the second look":   {[]change{nil, silent, silent}, []string{"", "", silentText}},
		"two reasons": {[]change{func(a, b *nvml.Health) { pending(a, b); failed(a, b) }},
			[]string{failedText + "; " + pendingText}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tracker := New(nil, nil)
			var got []string
			for _, c := range tt.looks {
				inv := node()
				if c != nil {
					inv = node(c)
				}
				tracker.Look(inv)
				got = append(got, tracker.Reason("a"))
				if other := tracker.Reason("b"); other != "" {
					t.Errorf("its sibling is unhealthy: %s", other)
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("reasons (-want +got):\n%s", d)
			}
		})
	}
}

// TestSilenceHealsNothing: a GPU that cannot be read is not getting better.
func TestSilenceHealsNothing(t *testing.T) {
	tracker := New(nil, nil)
	tracker.Look(node(func(a, _ *nvml.Health) { a.RemapFailed = ptr(true) }))
	want := tracker.Reason("a")
	for range 5 {
		tracker.Look(node(func(a, _ *nvml.Health) { *a = nvml.Health{Silent: "x"} }))
	}
	if got := tracker.Reason("a"); got != want+"; the driver does not answer for it: x" {
		t.Errorf("reason %q", got)
	}
}

func TestXIDs(t *testing.T) {
	tests := map[string]struct {
		pass   []uint64
		faults []Kind
		events []nvml.Event
		want   map[string]string
	}{
		"the application's": {events: []nvml.Event{{UUID: "a", XID: 13}, {UUID: "a", XID: 31}, {UUID: "a", XID: 43}, {UUID: "a", XID: 45}, {UUID: "a", XID: 68}, {UUID: "a", XID: 109}}},
		"the GPU's": {events: []nvml.Event{{UUID: "a", XID: 94}, {UUID: "a", XID: 79}, {UUID: "a", XID: 79}},
			want: map[string]string{"a": "XID 79: reset the GPU and restart the agent; XID 94: reset the GPU and restart the agent"}},
		"passed over":   {pass: []uint64{94}, events: []nvml.Event{{UUID: "a", XID: 94}}},
		"none counts":   {faults: []Kind{XID}, events: []nvml.Event{{UUID: "a", XID: 79}}},
		"only a nudge":  {events: []nvml.Event{{UUID: "a"}}},
		"of nobody":     {events: []nvml.Event{{XID: 79}}, want: map[string]string{"a": "XID 79: reset the GPU and restart the agent", "b": "XID 79: reset the GPU and restart the agent"}},
		"of a stranger": {events: []nvml.Event{{UUID: "c", XID: 79}}},
		"instance of an undivided GPU": {events: []nvml.Event{{UUID: "b", XID: 79, GPUInstance: ptr(1), ComputeInstance: ptr(0)}},
			want: map[string]string{"b": "XID 79: reset the GPU and restart the agent"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tracker := New(tt.pass, tt.faults)
			tracker.Look(node())
			for _, e := range tt.events {
				tracker.Event(e)
			}
			for range 10 {
				tracker.Look(node()) // looks do not heal it
			}
			for _, uuid := range []string{"a", "b"} {
				if got := tracker.Reason(uuid); got != tt.want[uuid] {
					t.Errorf("reason of %s is %q, want %q", uuid, got, tt.want[uuid])
				}
			}
		})
	}
}

// TestResetEndsXIDs: a GPU that went away and came back was reset.
func TestResetEndsXIDs(t *testing.T) {
	tracker := New(nil, nil)
	tracker.Look(node())
	tracker.Event(nvml.Event{UUID: "a", XID: 95})
	gone := node()
	gone.GPUs, gone.Matrix = gone.GPUs[1:], gone.Matrix.Subset([]int{1})
	tracker.Look(gone)
	for range calm {
		if tracker.Reason("a") == "" {
			t.Error("trusted too early")
		}
		tracker.Look(node())
	}
	if got := tracker.Reason("a"); got != "" {
		t.Errorf("reason %q", got)
	}
}

func TestInstancesOfADividedGPU(t *testing.T) {
	inv := node(func(a, _ *nvml.Health) { a.LinksActive, a.LinksInactive = 0, 18 })
	inv.GPUs[0].MIG = ptr(true)
	tracker := New(nil, nil)
	tracker.Look(inv)
	tracker.Event(nvml.Event{UUID: "a", XID: 94, GPUInstance: ptr(1), ComputeInstance: ptr(0)})
	if got := tracker.Reason("a"); got != "" {
		t.Errorf("the GPU is unhealthy: %s", got)
	}
	if got := tracker.InstanceReason("a", 1, 0); got == "" {
		t.Error("the instance is healthy")
	}
	if got := tracker.InstanceReason("a", 2, 0) + tracker.InstanceReason("z", 1, 0); got != "" {
		t.Errorf("others are unhealthy: %s", got)
	}
}

func TestDriverAway(t *testing.T) {
	tracker := New(nil, nil)
	tracker.Look(node())
	for look, want := range []string{"", "", "away", "away"} {
		tracker.Fail("away")
		if got := tracker.Reason("b"); got != want {
			t.Errorf("after %d failures the reason is %q, want %q", look+1, got, want)
		}
	}
	tracker.Look(node())
	if got := tracker.Reason("b"); got != "" {
		t.Errorf("reason %q", got)
	}
}

func TestBridgesAreNoSiblings(t *testing.T) {
	// Three links here and two there, and none at all, may all be as built.
	inv := node(func(a, b *nvml.Health) {
		a.LinksActive, a.LinksInactive, a.LinksToSwitches = 8, 4, 0
		b.LinksActive, b.LinksInactive, b.LinksToSwitches = 0, 12, 0
	})
	tracker := New(nil, nil)
	tracker.Look(inv)
	if got := tracker.Reason("a") + tracker.Reason("b"); got != "" {
		t.Errorf("reasons %q", got)
	}
	worse := node(func(a, b *nvml.Health) {
		a.LinksActive, a.LinksInactive, a.LinksToSwitches = 4, 8, 0
		b.LinksActive, b.LinksInactive, b.LinksToSwitches = 0, 12, 0
	})
	tracker.Look(worse)
	tracker.Look(worse)
	if got := tracker.Reason("a"); got != "4 of 8 NVLinks are active" {
		t.Errorf("reason %q", got)
	}
}

func TestIgnorable(t *testing.T) {
	for _, k := range []Kind{Driver, Lost, Silent} {
		if slices.Contains(Ignorable(), k) {
			t.Errorf("%s can be passed over", k)
		}
	}
	tracker := New(nil, Ignorable())
	tracker.Look(node(func(a, _ *nvml.Health) {
		*a = nvml.Health{UncorrectedVolatile: ptr(uint64(1)), RemapFailed: ptr(true), SRAMThreshold: ptr(true), LinksInactive: 3, Fabric: nvml.FabricNotStarted, MIGPending: ptr(true), RetiredPending: ptr(true), RemapPending: ptr(true)}
	}))
	if got := tracker.Reason("a"); got != "" {
		t.Errorf("reason %q", got)
	}
}

// TestTrackerProperty: whatever happened, a GPU without XID is healthy after
// calm good looks, and a GPU that reports a lasting fault is not.
func TestTrackerProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tracker := New(nil, nil)
		for range rapid.IntRange(0, 20).Draw(t, "looks") {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				tracker.Fail("away")
			case 1:
				tracker.Event(nvml.Event{UUID: "a", XID: rapid.SampledFrom(ApplicationXIDs()).Draw(t, "xid")})
			default:
				tracker.Look(node(func(a, _ *nvml.Health) {
					a.RemapFailed = ptr(rapid.Bool().Draw(t, "failed"))
					a.LinksActive -= rapid.IntRange(0, 2).Draw(t, "down")
					if rapid.Bool().Draw(t, "lost") {
						*a = nvml.Health{Lost: "lost"}
					}
				}))
			}
		}
		tracker.Look(node(func(a, _ *nvml.Health) { a.RemapFailed = ptr(true) }))
		if tracker.Reason("a") == "" {
			t.Fatal("healthy with a lasting fault")
		}
		for range calm {
			tracker.Look(node())
		}
		if got := tracker.Reason("a") + tracker.Reason("b"); got != "" {
			t.Fatalf("unhealthy after good looks: %s", got)
		}
	})
}
