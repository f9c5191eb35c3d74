package feasible

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

var testNode = &model.Node{
	ID: "9a1b", Name: "gpu-1", Datacenter: "dc1", Pool: "gpu", Class: "h100",
	Attributes: map[string]string{
		"attr.kernel.name": "linux", "attr.nomad.version": "2.0.5", "attr.cpu.numcores": "9", "attr.driver.version": "535.104.05-beta1",
		"attr.os.signals": "SIGTERM, SIGKILL,SIGHUP", "meta.rack": "r7", "meta.rack2": "r7", "meta.empty": "", "attr.load": "1.5",
	},
	Levels: map[string]string{"region": "eu"},
}

func TestNodeConstraints(t *testing.T) {
	tests := []struct {
		left, operand, right string
		want                 bool
	}{
		{"${node.unique.id}", "=", "9a1b", true},
		{"${node.unique.name}", "is", "gpu-1", true},
		{"${node.datacenter}", "==", "dc1", true},
		{"${node.pool}", "=", "gpu", true},
		{"${node.class}", "!=", "h100", false},
		{"${node.region}", "=", "eu", false}, // no such interpolation in a constraint
		{"${attr.kernel.name}", "=", "linux", true},
		{"linux", "=", "${attr.kernel.name}", true},
		{"${meta.rack}", "=", "${meta.rack2}", true},
		{"${meta.rack", "=", "r7", true}, // Nomad forgives the missing brace
		{"${meta.none}", "=", "${meta.none}", false},
		{"${meta.none}", "!=", "x", true},
		{"${meta.none}", "not", "", false}, // missing is the empty text
		{"${meta.empty}", "is_set", "", true},
		{"${meta.none}", "is_set", "", false},
		{"${meta.none}", "is_not_set", "", true},
		{"${attr.cpu.numcores}", ">", "10", false}, // as numbers
		{"${attr.cpu.numcores}", ">", "10x", true}, // as text
		{"${attr.load}", ">=", "1.50", true},
		{"${attr.load}", "<", "NaN", false},
		{"${meta.none}", "<", "5", false},
		{"${attr.kernel.name}", "regexp", "^li.*x$", true},
		{"${attr.kernel.name}", "regexp", "(", false},
		{"${attr.kernel.name}", "regexp", "inu", true},
		{"${attr.os.signals}", "set_contains", "SIGKILL , SIGTERM", true},
		{"${attr.os.signals}", "set_contains_all", "SIGKILL,SIGUSR1", false},
		{"${attr.os.signals}", "set_contains_any", "SIGUSR1, SIGHUP", true},
		{"${attr.os.signals}", "set_contains_any", "SIGUSR1", false},
		{"${attr.nomad.version}", "version", ">= 1.9, < 3", true},
		{"${attr.nomad.version}", "version", "~> 2.0", true},
		{"${attr.nomad.version}", "semver", "~> 2.0", false},
		{"${attr.driver.version}", "version", "> 500", false}, // a pre-release
		{"${attr.driver.version}", "semver", "> 500.0.0", true},
		{"${attr.kernel.name}", "version", "> 1", false},
		{"${attr.kernel.name}", "unknown", "linux", false},
		{"", "distinct_hosts", "", true},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.left, tt.operand, tt.right), func(t *testing.T) {
			c := model.Constraint{Left: tt.left, Operand: tt.operand, Right: tt.right}
			v := NewNodes([]*model.Node{testNode}).Verdicts(Filter{Group: []model.Constraint{c}})
			if got := v.Eligible(0); got != tt.want {
				t.Errorf("eligible %v, want %v", got, tt.want)
			}
		})
	}
}

func TestDeviceConstraints(t *testing.T) {
	group := &DeviceGroup{
		Vendor: "nvidia", Type: "gpu", Model: "H100", IDs: []string{"GPU-a", "GPU-b"},
		Attributes: map[string]string{"memory": "80 GiB", "driver": `"535.104"`, "cores": "132", "ecc": "true", "power": "700 W", "cuda": "12.4", "name": "x,y"},
	}
	tests := []struct {
		left, operand, right string
		want                 bool
	}{
		{"${device.attr.memory}", ">=", "80 GiB", true},
		{"${device.attr.memory}", ">", "81919 MiB", true},
		{"${device.attr.memory}", ">=", "80GiB", true},
		{"${device.attr.memory}", ">", "80", false}, // no unit: not comparable
		{"${device.attr.memory}", "!=", "80", false},
		{"${device.attr.memory}", "<", "1 W", false},
		{"${device.attr.power}", "<", "0.75 kW", true},
		{"${device.attr.power}", "=", "0.7 kW", false}, // no binary fraction is 0.7
		{"${device.attr.cores}", ">", "131.5", true},
		{"${device.attr.ecc}", "=", "true", true},
		{"${device.attr.ecc}", "!=", "false", true},
		{"${device.attr.ecc}", "=", "1", false}, // a number, not a truth value
		{"${device.attr.driver}", "version", ">= 535.100", true},
		{"${device.attr.driver}", "=", "535.104", false}, // text and number
		{"${device.attr.cuda}", "version", ">= 12", false},
		{"${device.attr.cores}", "version", ">= 100", true},
		{"${device.attr.none}", "!=", "5", true},
		{"${device.attr.none}", "!=", "${device.attr.nil}", false},
		{"${device.attr.none}", "is_not_set", "", true},
		{"${device.attr.name}", "set_contains", "y", true},
		{"${device.model}", "regexp", "H.00", true},
		{"${device.vendor}", "=", "amd", false},
		{"${device.type}", "=", "gpu", true},
		{"${device.ids}", "set_contains_any", "GPU-b,GPU-c", true},
		{"${device.ids}", "set_contains", "GPU-c", false},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.left, tt.operand, tt.right), func(t *testing.T) {
			var c Checker
			ask := model.DeviceAsk{Name: "gpu", Constraints: []model.Constraint{{Left: tt.left, Operand: tt.operand, Right: tt.right}}}
			if got := c.MatchesDevice(ask, group); got != tt.want {
				t.Errorf("matches %v, want %v", got, tt.want)
			}
		})
	}
}

func TestDeviceNames(t *testing.T) {
	group := &DeviceGroup{Vendor: "nvidia", Type: "gpu", Model: "H100/SXM"}
	for name, want := range map[string]bool{
		"gpu": true, "nvidia/gpu": true, "nvidia/gpu/H100/SXM": true, "nvidia/gpu/H100": false,
		"amd/gpu": false, "nvidia": false, "": false, "/gpu": true,
	} {
		var c Checker
		if got := c.MatchesDevice(model.DeviceAsk{Name: name}, group); got != want {
			t.Errorf("%q matches %v, want %v", name, got, want)
		}
	}
}

func TestInstances(t *testing.T) {
	group := &DeviceGroup{Type: "gpu", IDs: []string{"GPU-a", "GPU-b", "GPU-c"}}
	tests := map[string]struct {
		constraint model.Constraint
		want       []string
	}{
		"any of":   {model.Constraint{Left: "${device.ids}", Operand: "set_contains_any", Right: "GPU-a, GPU-c"}, []string{"GPU-a", "GPU-c"}},
		"reversed": {model.Constraint{Left: "GPU-a,GPU-b", Operand: "set_contains", Right: "${device.ids}"}, []string{"GPU-a", "GPU-b"}},
		"others":   {model.Constraint{Left: "${device.attr.x}", Operand: "is_not_set"}, []string{"GPU-a", "GPU-b", "GPU-c"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var c Checker
			var got []string
			for _, id := range group.IDs {
				if c.MatchesID(model.DeviceAsk{Name: "gpu", Constraints: []model.Constraint{tt.constraint}}, group, id) {
					got = append(got, id)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("instances (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFilter(t *testing.T) {
	nodes := []*model.Node{testNode, {ID: "b", Datacenter: "dc10", Pool: "default"}, {ID: "c", Datacenter: "eu-1", Pool: "gpu", Levels: map[string]string{"region": "us"}}}
	linux := []model.Constraint{{Left: "${attr.kernel.name}", Operand: "=", Right: "linux"}}
	tests := map[string]struct {
		filter Filter
		want   []bool
		reason string
	}{
		"nothing":        {Filter{}, []bool{true, true, true}, ""},
		"datacenter":     {Filter{Datacenters: []string{"dc1"}}, []bool{true, false, false}, "datacenter"},
		"glob":           {Filter{Datacenters: []string{"x", "dc*"}}, []bool{true, true, false}, "datacenter"},
		"inner glob":     {Filter{Datacenters: []string{"*-*"}}, []bool{false, false, true}, "datacenter"},
		"pool":           {Filter{Pool: "gpu"}, []bool{true, false, true}, "node pool"},
		"any pool":       {Filter{Pool: "all"}, []bool{true, true, true}, ""},
		"region":         {Filter{Region: "eu"}, []bool{true, true, false}, "region eu"},
		"default region": {Filter{Region: "global"}, []bool{true, true, true}, ""},
		"constraint":     {Filter{Constraints: linux}, []bool{true, false, false}, "constraint ${attr.kernel.name} = linux"},
		"property needs a value": {Filter{Group: []model.Constraint{{Left: "${meta.rack}", Operand: "distinct_property", Right: "2"}}},
			[]bool{true, false, false}, "constraint ${meta.rack} distinct_property 2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := NewNodes(nodes)
			for range 2 { // the second answer is a kept one
				v := n.Verdicts(tt.filter)
				got := []bool{v.Eligible(0), v.Eligible(1), v.Eligible(2)}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("eligible (-want +got):\n%s", diff)
				}
				if tt.reason != "" && !slices.Contains(v.Reasons, tt.reason) {
					t.Errorf("reasons %q, want %q", v.Reasons, tt.reason)
				}
			}
		})
	}
}

func TestDistinct(t *testing.T) {
	hosts := func(rights ...string) (out []model.Constraint) {
		for _, r := range rights {
			out = append(out, model.Constraint{Operand: "distinct_hosts", Right: r})
		}
		return out
	}
	for right, want := range map[string]bool{"": true, "true": true, "false": false, "maybe": true} {
		if got := DistinctHosts(hosts(right)); got != want {
			t.Errorf("DistinctHosts %q: %v, want %v", right, got, want)
		}
	}
	if DistinctHosts(hosts("false", "true")) {
		t.Error("the first distinct_hosts must decide")
	}
	got := Properties([]model.Constraint{{Left: "${meta.rack}", Operand: "distinct_property"}, {Left: "a", Operand: "=", Right: "b"}, {Left: "${meta.x}", Operand: "distinct_property", Right: "3"}, {Left: "${meta.y}", Operand: "distinct_property", Right: "many"}})
	want := []Property{{"${meta.rack}", 1}, {"${meta.x}", 3}, {"${meta.y}", 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Properties (-want +got):\n%s", diff)
	}
}

func TestVersions(t *testing.T) {
	tests := []struct {
		version, ranges string
		want, wantSem   bool
	}{
		{"1.2.3", ">= 1.2, < 2", true, true},
		{"v1.2", "= 1.2.0", true, true},
		{"1.2.3", "~> 1.2.0", true, false},
		{"1.3.0", "~> 1.2.0", false, false},
		{"2.0", "~> 1.2", false, false},
		{"1.0.0-rc1", "> 0.9", false, true},
		{"1.0.0-rc1", ">= 1.0.0-beta", true, true},
		{"1.0.0-rc.2", "< 1.0.0-rc.10", true, true},
		{"1.0rc1", "= 1.0.0-rc1", true, true},
		{"1.0+ent", "= 1.0", true, true},
		{"1.0", "= 1.0rc1", false, false},
		{"1.0", "", false, false},
		{"1..0", "> 0", false, false},
		{"1.0-", "> 0", false, true},
		{"1.0", "> 0, nonsense", false, false},
		{"99999999999999999999", "> 0", false, false},
	}
	for _, tt := range tests {
		var c Checker
		for range 2 {
			if got := c.versionMatches(tt.version, tt.ranges, false); got != tt.want {
				t.Errorf("%q version %q: %v, want %v", tt.version, tt.ranges, got, tt.want)
			}
			if got := c.versionMatches(tt.version, tt.ranges, true); got != tt.wantSem {
				t.Errorf("%q semver %q: %v, want %v", tt.version, tt.ranges, got, tt.wantSem)
			}
		}
	}
}

func TestQuoteAttribute(t *testing.T) {
	for in, want := range map[string]string{"H100": "H100", "535.104": `"535.104"`, "true": `"true"`, "80 GiB": `"80 GiB"`, "": "", `"x`: `"\"x"`} {
		got := QuoteAttribute(in)
		if got != want {
			t.Errorf("QuoteAttribute(%q) = %s, want %s", in, got, want)
		}
		if a := parseAttribute(got); a.kind != kindString || a.text != in {
			t.Errorf("%s is read as %+v, want the text %q", got, a, in)
		}
	}
}

// Whatever the texts, nothing panics, and what is compared both ways agrees.
func FuzzConstraints(f *testing.F) {
	f.Add("80 GiB", ">=", "81919 MiB")
	f.Add("1.0-rc1", "version", "~> 1.0")
	f.Add("a,b", "set_contains", "b")
	f.Add("x", "regexp", "(")
	f.Fuzz(func(t *testing.T, left, operand, right string) {
		var c Checker
		node := &model.Node{Attributes: map[string]string{"attr.x": left}}
		NewNodes([]*model.Node{node}).Verdicts(Filter{Group: []model.Constraint{{Left: "${attr.x}", Operand: operand, Right: right}, {Left: left, Operand: operand, Right: right}}})
		group := &DeviceGroup{Type: "gpu", IDs: []string{left}, Attributes: map[string]string{"x": left}}
		ask := model.DeviceAsk{Name: "gpu", Constraints: []model.Constraint{{Left: "${device.attr.x}", Operand: operand, Right: right}}}
		c.MatchesDevice(ask, group)
		ask.Constraints[0].Left = "${device.ids}"
		c.MatchesID(ask, group, left)
		a, b := parseAttribute(left), parseAttribute(right)
		x, xOK := a.compare(b)
		y, yOK := b.compare(a)
		if xOK != yOK || xOK && a.kind != kindBool && x != -y {
			t.Errorf("%q and %q: %d, %v one way, %d, %v the other", left, right, x, xOK, y, yOK)
		}
	})
}
