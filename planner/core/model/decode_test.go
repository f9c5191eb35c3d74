package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeSnapshotErrors(t *testing.T) {
	tests := map[string]struct{ input, want string }{
		"empty":           {"", "empty"},
		"null":            {"null", "want an object"},
		"cut off":         {`{"nodes": [`, "ends in the middle"},
		"unknown field":   {`{"nodes": [{"id": "n1", "gpu": []}]}`, `unknown field "gpu"`},
		"wrong type":      {`{"nodes": [{"id": 7}]}`, "found a number, want string"},
		"syntax":          {`{"nodes": [}`, "at byte 12"},
		"more after":      {`{} {}`, "more data"},
		"bad time":        {`{"now": "yesterday"}`, "yesterday"},
		"number too big":  {`{"nodes": [{"id": "n", "capacity": {"cpu_mhz": 1e99}}]}`, "capacity.cpu_mhz"},
		"top-level array": {`[]`, "found a array"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeSnapshot(strings.NewReader(tt.input))
			if !errors.Is(err, ErrSnapshot) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want ErrSnapshot with %q", err, tt.want)
			}
		})
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	s := &Snapshot{
		Version: 7,
		Levels:  []string{"rack", "node", "rack"},
		Nodes: []Node{
			{ID: "n1", Levels: map[string]string{"row": "1"}, GPUs: []GPU{{UUID: "a"}, {UUID: "a"}}, Links: [][]Link{{{}}}},
			{ID: "n1"},
			{ID: "n2", Capacity: Resources{MemoryMiB: -1}, GPUs: []GPU{{UUID: "a"}, {UUID: "b", Island: -1, NUMA: -2}}, ReservedPorts: []int{70000}},
			{},
		},
		Jobs: []Job{
			{ID: "j", State: "lost", Gang: "all", Topology: Topology{Mode: "must", Level: "row"}, Groups: []TaskGroup{
				{Name: "g", Count: -1, Ports: []int{0}, Devices: []DeviceAsk{{Count: -1}}}, {Name: "g"},
			}, Members: []Member{{Group: "h", Node: "n9"}, {Group: "g", Node: "n2"}, {Group: "g", Node: "n2"}}},
			{ID: "j", State: StateQueued},
			{ID: "k", State: StateQueued, Topology: Topology{Mode: TopologyRequire}},
		},
		Allocs: []Alloc{
			{ID: "x", Node: "n9"},
			{ID: "y", Node: "n2", GPUs: []string{"b"}},
			{ID: "y", Node: "n2"},
			{ID: "z", Node: "n1", GPUs: []string{"b"}},
		},
	}
	err := s.Validate()
	if !errors.Is(err, ErrSnapshot) {
		t.Fatalf("Validate: %v, want ErrSnapshot", err)
	}
	want := []string{
		"version: 7: want 1",
		`levels[1]: "node"`, `levels[2]: "rack": is listed before`,
		`nodes[0] (n1).levels: "row"`, "nodes[0] (n1).links: 1 rows", "nodes[0] (n1).links[0]: 1 columns",
		`nodes[0].gpus[1].uuid: "a": is on node "n1" too`, `nodes[1].id: "n1": is nodes[0]'s too`,
		"nodes[2] (n2).capacity.memory_mib: -1", `nodes[2].gpus[0].uuid: "a": is on node "n1" too`,
		"gpus[1].island: -1", "gpus[1].numa: -2", "reserved_ports[0]: 70000", "nodes[3].id: empty",
		`jobs[0] (j).state: "lost"`, `gang: "all"`, `topology.mode: "must"`, `topology.level: "row"`, "count: -1", "ports[0]: 0",
		"devices[0].count: -1", "devices[0].name: empty", `groups[1].name: "g"`, `members[0].group: "h"`, `members[0].node: "n9"`,
		`members[2]: group "g" index 0`, `jobs[1].id: "j"`, "jobs[2] (k).topology.level: empty",
		`allocs[0] (x).node: "n9"`, `allocs[2].id: "y"`, `"b": is on node "n2", not on "n1"`, `"b": is held by alloc "y" too`,
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("no fault %q", text)
		}
	}
	if got := strings.Count(err.Error(), "\n") + 1; got != len(want) {
		t.Errorf("%d faults, want %d:\n%v", got, len(want), err)
	}
}

func FuzzDecodeSnapshot(f *testing.F) {
	f.Add([]byte(`{"now": "2026-01-02T03:04:05Z", "nodes": [{"id": "n1", "gpus": [{"uuid": "a"}]}], "jobs": []}`))
	f.Add([]byte(`{"nodes": null, "jobs": [{"id": "j", "state": "queued", "groups": [{"name": "g", "count": 1}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := DecodeSnapshot(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, ErrSnapshot) {
				t.Fatalf("error is not ErrSnapshot: %v", err)
			}
			return
		}
		if err := s.Validate(); err != nil && !errors.Is(err, ErrSnapshot) {
			t.Fatalf("error is not ErrSnapshot: %v", err)
		}
		text, err := json.Marshal(s)
		if err != nil {
			return // a year beyond 9999 can be read but not written
		}
		again, err := DecodeSnapshot(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		text2, err := json.Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(text), string(text2)); diff != "" {
			t.Fatalf("round trip (-first +second):\n%s", diff)
		}
	})
}
