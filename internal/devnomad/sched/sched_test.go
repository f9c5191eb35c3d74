package sched

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

func TestConstraints(t *testing.T) {
	n := &state.Node{Node: &api.Node{
		ID: "4f1c", Name: "n1", Datacenter: "dc1", NodePool: "gpu", NodeClass: "h100",
		Attributes: map[string]string{"nomad.version": "2.0.5", "cpu.numcores": "96", "load": "1.5"}, Meta: map[string]string{"rack": "r7", "tags": "a, b,c"},
	}}
	tests := map[string]struct {
		l, op, r string
		want     bool
	}{
		"equal":                     {"${meta.rack}", "=", "r7", true},
		"equal, missing":            {"${meta.gate}", "=", "open", false},
		"not equal":                 {"${meta.rack}", "!=", "r8", true},
		"not equal, missing":        {"${meta.gate}", "!=", "open", true},
		"numbers, not text":         {"${attr.cpu.numcores}", ">", "100", false},
		"numbers":                   {"${attr.cpu.numcores}", ">=", "96", true},
		"floats":                    {"${attr.load}", "<", "1.50001", true},
		"text":                      {"${meta.rack}", "<", "r8", true},
		"ID":                        {"${node.unique.id}", "regexp", "^(4f|aa)", true},
		"bad regexp":                {"${node.unique.id}", "regexp", "(", false},
		"version":                   {"${attr.nomad.version}", "version", ">= 2.0, < 3", true},
		"version, not met":          {"${attr.nomad.version}", "version", "< 2", false},
		"semver":                    {"${attr.nomad.version}", "semver", ">= 2.0.5", true},
		"bad version":               {"${meta.rack}", "version", ">= 1", false},
		"contains all":              {"${meta.tags}", "set_contains", "a,c", true},
		"contains all, one missing": {"${meta.tags}", "set_contains_all", "a,d", false},
		"contains any":              {"${meta.tags}", "set_contains_any", "x, b", true},
		"contains none":             {"${meta.tags}", "set_contains_any", "x,y", false},
		"set":                       {"${meta.rack}", "is_set", "", true},
		"not set":                   {"${meta.gate}", "is_not_set", "", true},
		"class, pool and dc":        {"${node.class} ${node.pool}", "=", "h100 gpu", false},
		"pool":                      {"${node.pool}", "is", "gpu", true},
		"unknown operator":          {"${meta.rack}", "resembles", "r7", false},
		"unknown target":            {"${nonsense}", "is_set", "", false},
		"elsewhere decided":         {"", "distinct_hosts", "true", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := meets(regexps{}, &api.Constraint{LTarget: tt.l, Operand: tt.op, RTarget: tt.r}, n); got != tt.want {
				t.Errorf("%s %s %s is %v, want %v", tt.l, tt.op, tt.r, got, tt.want)
			}
		})
	}
}

func gpuGroup(n int) *api.NodeDeviceResource {
	d := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: "H100/80", Attributes: map[string]*api.Attribute{
		"memory": {IntVal: ptr(int64(80)), Unit: "GiB"}, "driver": {StringVal: ptr("570.1")},
	}}
	for i := range n {
		d.Instances = append(d.Instances, &api.NodeDevice{ID: "GPU-" + strconv.Itoa(i), Healthy: true})
	}
	return d
}

func TestDeviceMatches(t *testing.T) {
	tests := map[string]struct {
		name     string
		l, op, r string
		want     bool
	}{
		"type":              {"gpu", "", "", "", true},
		"vendor":            {"nvidia/gpu", "", "", "", true},
		"model with slash":  {"nvidia/gpu/H100/80", "", "", "", true},
		"other vendor":      {"amd/gpu", "", "", "", false},
		"across units":      {"gpu", "${device.attr.memory}", ">=", "81920 MiB", true},
		"across units, not": {"gpu", "${device.attr.memory}", ">", "80 GiB", false},
		"missing attribute": {"gpu", "${device.attr.none}", "=", "1", false},
		"model":             {"gpu", "${device.model}", "regexp", "^H100", true},
		"driver":            {"gpu", "${device.attr.driver}", "version", ">= 550", true},
		"IDs":               {"gpu", "${device.ids}", "set_contains_any", "GPU-7,GPU-1", true},
		"IDs of others":     {"gpu", "${device.ids}", "set_contains_any", "GPU-7,GPU-8", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ask := &api.RequestedDevice{Name: tt.name, Count: ptr(uint64(1))}
			if tt.op != "" {
				ask.Constraints = []*api.Constraint{{LTarget: tt.l, Operand: tt.op, RTarget: tt.r}}
			}
			if got := deviceMatches(regexps{}, gpuGroup(4), ask); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestOffer: an offer has the count asked for, of free, healthy instances that
// the constraint names, and there is one exactly when there are enough.
func TestOffer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := gpuGroup(8)
		u := newDeviceUse(regexps{}, []*api.NodeDeviceResource{g}, nil)
		var named, usable []string
		for _, x := range g.Instances {
			x.Healthy = rapid.Bool().Draw(rt, "healthy")
			taken := rapid.Bool().Draw(rt, "taken")
			pinned := rapid.Bool().Draw(rt, "pinned")
			if taken {
				u.take(&api.AllocatedDeviceResource{Vendor: g.Vendor, Type: g.Type, Name: g.Name, DeviceIDs: []string{x.ID}})
			}
			if pinned {
				named = append(named, x.ID)
			}
			if pinned && x.Healthy && !taken {
				usable = append(usable, x.ID)
			}
		}
		want := rapid.IntRange(1, 8).Draw(rt, "count")
		ask := &api.RequestedDevice{Name: "nvidia/gpu", Count: ptr(uint64(want)), Constraints: []*api.Constraint{
			{LTarget: "${device.ids}", Operand: "set_contains_any", RTarget: strings.Join(append(named, "GPU-elsewhere"), ",")},
		}}
		got, why := u.offer(ask, rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0)))
		if enough := len(usable) >= want; (got != nil) != enough {
			rt.Fatalf("offer %v (%s) with %d usable for %d", got, why, len(usable), want)
		}
		if got == nil {
			return
		}
		if len(got.DeviceIDs) != want {
			rt.Fatalf("%d instances, want %d", len(got.DeviceIDs), want)
		}
		for _, id := range got.DeviceIDs {
			if !slices.Contains(usable, id) {
				rt.Fatalf("instance %s is not usable", id)
			}
		}
	})
}

// TestClassCache: what one node of a class showed is taken for granted for the
// others, unless a constraint names something unique to a node.
func TestClassCache(t *testing.T) {
	job := func(target string) *api.Job {
		j := api.NewBatchJob("j", "j", "global", 50).AddTaskGroup(api.NewTaskGroup("g", 1))
		j.TaskGroups[0].Constraints = []*api.Constraint{{LTarget: target, Operand: "=", RTarget: "x"}}
		return j
	}
	tests := map[string]struct {
		target string
		want   verdict
	}{
		"plain":            {"${meta.rack}", ineligible},
		"unique attribute": {"${attr.unique.hostname}", escaped},
		"unique meta":      {"${meta.unique.x}", escaped},
		"node":             {"${node.unique.id}", escaped},
		"devices":          {"${device.ids}", ineligible},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEligibility(job(tt.target))
			e.setGroup("g", "c1", ineligible)
			if got := e.groupVerdict("g", "c1"); got != tt.want {
				t.Errorf("verdict %d, want %d", got, tt.want)
			}
			if got := e.escaped(); got != (tt.want == escaped) {
				t.Errorf("escaped is %v", got)
			}
		})
	}
	e := newEligibility(job("${meta.rack}"))
	e.setJob("c1", eligible)
	e.setJob("c2", ineligible)
	e.setGroup("g", "c1", ineligible)
	e.setGroup("g", "c3", eligible)
	if diff := cmp.Diff(map[string]bool{"c1": false, "c2": false, "c3": true}, e.classes()); diff != "" {
		t.Errorf("classes remembered (-want +got):\n%s", diff)
	}
}

func FuzzPortList(f *testing.F) {
	for _, s := range []string{"", "22", "22,80,8500-8600", "9-1", "x,1-", "1-99999999999", "-5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, p := range portList(s) {
			if p < 0 || p > 65535 {
				t.Errorf("%q gives port %d", s, p)
			}
		}
	})
}

func FuzzAllocIndex(f *testing.F) {
	for _, s := range []string{"j.g[3]", "j.g[]", "[", "]", "a[b][7]", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if i := allocIndex(s); i >= 0 && !strings.HasSuffix(s, "]") {
			t.Errorf("%q has index %d", s, i)
		}
	})
}
