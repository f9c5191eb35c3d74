package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestDecodeSnapshotErrors(t *testing.T) {
	tests := map[string]struct {
		input string
		want  []string // every fault, in order
	}{
		"empty":           {"", []string{"decode: empty: want an object"}},
		"only a BOM":      {"\ufeff", []string{"decode: empty: want an object"}},
		"null":            {"null", []string{"decode: found null, want an object"}},
		"top-level array": {`[{"a": [1]}]`, []string{"decode: found a list, want an object"}},
		"cut off":         {`{"nodes": [`, []string{"decode: ends in the middle (in nodes)"}},
		"syntax":          {"{\n \"nodes\": [}", []string{"decode: line 2 column 12 (in nodes): invalid character '}' looking for beginning of value"}},
		"more after":      {whole + ` {}`, []string{"decode: more data after the object, at line 1 column 59"}},
		"nothing in it":   {`{}`, []string{"decode: now: missing: want a date and time like 2026-01-02T03:04:05Z", "decode: nodes: missing: want a list", "decode: jobs: missing: want a list"}},
		"twice":           {with(`"nodes": [{"id": "nX"}]`), []string{"decode: nodes: is given twice; want it once"}},
		"twice in a map":  {with(`"allocs": [{"id": "a", "node": "n", "id": "b"}]`), []string{"decode: allocs[0].id: is given twice; want it once", `allocs[0] (a).node: "n": is no node of the snapshot`}},
		"another case":    {with(`"ALLOCS": []`), []string{`decode: ALLOCS: unknown field; want "allocs"`}},
		"not UTF-8":       {with("\"levels\": [\"a\xff\"]"), []string{"decode: line 1 column 71: bytes that are not UTF-8; want UTF-8 text", "decode: levels[0]: \"a\ufffd\": is no Unicode text, or has U+FFFD in it; want text without"}},
		"half a pair":     {with(`"levels": ["a\ud800"]`), []string{"decode: levels[0]: \"a\ufffd\": is no Unicode text, or has U+FFFD in it; want text without"}},
		"fields of a group": {job(`{"name": "g", "vendor": null, "count": null}`), []string{
			"decode: jobs[0].groups[0].vendor: unknown field", "decode: jobs[0].groups[0].count: found null, want an integer"}},
		"a group without its count": {job(`{"name": "g"}`), []string{"decode: jobs[0].groups[0].count: missing: want an integer"}},
		"models": {strings.Replace(job(`{"name": "g", "count": 1}`), `"id": "j"`, `"id": "j", "models": [{"name": "", "speed": 1}, {"name": "A", "speed": 0}, {"name": "A", "speed": 1e300}]`, 1), []string{
			"jobs[0] (j).models[0].name: empty: want a GPU's model", "jobs[0] (j).models[1].speed: 0: want above 0, at most 3.4e38",
			`jobs[0] (j).models[2].name: "A": is listed before; want each once`, "jobs[0] (j).models[2].speed: 1e+300: want above 0, at most 3.4e38"}},
		"speed": {strings.Replace(job(`{"name": "g", "count": 1}`), `"id": "j"`, `"id": "j", "speed": {"unit": "tokens", "noise_scale": -1, "declared": [{"members": 0, "rate": 1}, {"members": 2, "rate": 0}, {"members": 2, "rate": 2}], "samples": [{"members": 0, "gpus": -1, "level": "zone", "rate": 1e19, "count": 0, "spread": -0.1, "fetch_s": 1e300}]}`, 1), []string{
			`jobs[0] (j).speed.unit: "tokens": want "samples" or "steps"`, "jobs[0] (j).speed.noise_scale: -1: want 0 to 1e18",
			"jobs[0] (j).speed.declared[0].members: 0: want 1 to 1048576, each once", "jobs[0] (j).speed.declared[1].rate: 0: want 1e-09 to 1e18",
			"jobs[0] (j).speed.declared[2].members: 2: want 1 to 1048576, each once", "jobs[0] (j).speed.samples[0].members: 0: want 1 to 1048576",
			"jobs[0] (j).speed.samples[0].gpus: -1: want 0 to 67108864", "jobs[0] (j).speed.samples[0].count: 0: want 1 or more",
			`jobs[0] (j).speed.samples[0].level: "zone": want one of island, node, domain, rack, block, wider`, "jobs[0] (j).speed.samples[0].rate: 1e+19: want 1e-09 to 1e18",
			"jobs[0] (j).speed.samples[0].spread: -0.1: want 0 to 1e18", "jobs[0] (j).speed.samples[0].fetch_s: 1e+300: want 0 to 1e18"}},
		"an operand": {job(`{"name": "g", "count": 1, "constraints": [{"operand": "foo"}]}`), []string{`decode: jobs[0].groups[0].constraints[0].operand: "foo": want one of ` + strings.Join(Operands, " ")}},
		"numbers": {job(`{"name": "g", "count": 1.5, "min": 1e99, "max": 1e-400000000, "resources": {"cpu_mhz": 1e400000000, "cores": "1"}}`), []string{
			"decode: jobs[0].groups[0].count: 1.5: want an integer of at most 64 bits", "decode: jobs[0].groups[0].min: 1e99: want an integer of at most 64 bits",
			"decode: jobs[0].groups[0].max: 1e-400000000: want an integer of at most 64 bits",
			"decode: jobs[0].groups[0].resources.cpu_mhz: 1e400000000: want an integer of at most 64 bits", "decode: jobs[0].groups[0].resources.cores: found a string, want an integer"}},
		"every fault at once": {`{"now": "yesterday", "nodes": [{"id": 7, "gpus": {"a": [1]}, "capacity": {"cpu_mhz": -1}, "attributes": {"a": 1}}, {"id": "n", "links": [[{"gb_s": "x"}]]}], "jobs": [true], "odd": {"a": [{}]}}`, []string{
			`decode: now: "yesterday": want a date and time like 2026-01-02T03:04:05Z`, "decode: nodes[0].id: found a number, want a string",
			"decode: nodes[0].gpus: found an object, want a list", `decode: nodes[0].attributes["a"]: found a number, want a string`,
			"decode: nodes[1].links[0][0].gb_s: found a string, want a number", "decode: nodes[1].links[0][0].kind: missing: want a string",
			"decode: jobs[0]: found a truth value, want an object", "decode: odd: unknown field",
			"nodes[0] ().capacity.cpu_mhz: -1: want 0 to 2147483648", "nodes[1] (n).links: 1 rows: want one for each of 0 GPUs", "nodes[1] (n).links[0]: 1 columns: want one for each of 0 GPUs",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeSnapshot(strings.NewReader(tt.input))
			if !errors.Is(err, ErrSnapshot) {
				t.Fatalf("got %v, want ErrSnapshot", err)
			}
			got := strings.Split(strings.ReplaceAll(err.Error(), ErrSnapshot.Error()+": ", ""), "\n")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// whole is a snapshot with nothing in it.
const whole = `{"now": "2026-01-02T03:04:05Z", "nodes": [], "jobs": []}`

func with(more string) string { return strings.TrimSuffix(whole, "}") + ", " + more + "}" }

func job(group string) string {
	return strings.Replace(whole, `"jobs": []`, `"jobs": [{"id": "j", "state": "queued", "groups": [`+group+`]}]`, 1)
}

// What the schema allows is read.
func TestDecodeSnapshotTakes(t *testing.T) {
	for name, text := range map[string]string{
		"a BOM": "\ufeff" + whole, "lists that are null": `{"now": "2026-01-02T03:04:05Z", "nodes": null, "jobs": null, "allocs": null}`,
		"integers with a fraction of 0": job(`{"name": "g", "count": 1.0, "min": 1e0, "max": 0.2e1}`),
	} {
		s, err := DecodeSnapshot(strings.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(s.Jobs) > 0 {
			if g := s.Jobs[0].Groups[0]; g.Count != 1 || g.Min != 1 || g.Max != 2 {
				t.Errorf("%s: %+v", name, g)
			}
		}
	}
}

// The decoder demands what the schema does, whatever is left out or null.
func TestDecoderAgreesWithTheSchema(t *testing.T) {
	data, err := os.ReadFile(schemaPath)
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../testdata/example.snapshot.json")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		var doc any
		if err := json.Unmarshal(example, &doc); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			damage(t, doc)
		}
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		_, err = DecodeSnapshot(bytes.NewReader(text))
		decodes := err == nil || !strings.Contains(err.Error(), "decode:")
		if conforms := conforms(schema, schema, doc); conforms && !decodes {
			t.Fatalf("the schema allows what the decoder refuses: %v\n%s", err, text)
		} else if !conforms && err == nil {
			t.Fatalf("the schema forbids what the decoder takes:\n%s", text)
		}
	})
}

// damage removes, renames or replaces something in a JSON value.
func damage(t *rapid.T, v any) {
	switch x := v.(type) {
	case map[string]any:
		if len(x) == 0 {
			return
		}
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(x))).Draw(t, "field")
		switch rapid.IntRange(0, 9).Draw(t, "damage") {
		case 0:
			delete(x, name)
		case 1:
			x[name] = nil
		case 2:
			x[strings.ToUpper(name)] = x[name]
			delete(x, name)
		case 3:
			x[name] = rapid.SampledFrom([]any{1.0, -1.0, 1.5, "x", "", true, []any{}, map[string]any{}}).Draw(t, "value")
		default:
			damage(t, x[name])
		}
	case []any:
		if len(x) > 0 {
			damage(t, x[rapid.IntRange(0, len(x)-1).Draw(t, "index")])
		}
	}
}

// conforms evaluates the keywords of JSON Schema that the published one uses.
func conforms(root, schema map[string]any, v any) bool {
	if ref, ok := schema["$ref"].(string); ok {
		schema = root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	if list, ok := schema["enum"].([]any); ok {
		return slices.Contains(list, v)
	}
	types, many := schema["type"].([]any)
	if !many {
		types = []any{schema["type"]}
	}
	if !slices.ContainsFunc(types, func(typ any) bool { return isA(typ.(string), v) }) {
		return false
	}
	switch x := v.(type) {
	case float64:
		least, bounded := schema["minimum"].(float64)
		return !bounded || x >= least
	case string:
		if schema["format"] == "date-time" {
			_, err := time.Parse(time.RFC3339, x)
			return err == nil
		}
	case []any:
		for _, item := range x {
			if !conforms(root, schema["items"].(map[string]any), item) {
				return false
			}
		}
	case map[string]any:
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, there := x[name.(string)]; !there {
				return false
			}
		}
		properties, _ := schema["properties"].(map[string]any)
		for name, item := range x {
			of, known := properties[name].(map[string]any)
			if !known {
				of, known = schema["additionalProperties"].(map[string]any)
			}
			if !known || !conforms(root, of, item) {
				return false
			}
		}
	}
	return true
}

func isA(typ string, v any) bool {
	switch x := v.(type) {
	case nil:
		return typ == "null"
	case bool:
		return typ == "boolean"
	case string:
		return typ == "string"
	case float64:
		return typ == "number" || typ == "integer" && x == math.Trunc(x)
	case []any:
		return typ == "array"
	default:
		return typ == "object"
	}
}

// However much is wrong, the error stays readable.
func TestFaultsAreBounded(t *testing.T) {
	text := strings.Replace(whole, `"nodes": []`, `"nodes": [{}`+strings.Repeat(",{}", 9999)+`]`, 1)
	_, err := DecodeSnapshot(strings.NewReader(text))
	if err == nil {
		t.Fatal("no error")
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) != maxFaults+1 || !strings.Contains(lines[maxFaults], "and 9900 more faults") {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

// Members of a snapshot that somebody wrote are checked as allocations are.
func TestMembersAreChecked(t *testing.T) {
	member := func(more string) string {
		return `{"now": "2026-01-02T03:04:05Z", "nodes": [{"id": "n0", "gpus": [{"uuid": "a"}]}, {"id": "n1", "gpus": [{"uuid": "b"}]}], "jobs": [
			{"id": "j", "state": "running", "groups": [{"name": "g", "count": 1}], "members": [` + more + `]},
			{"id": "k", "state": "running", "groups": [{"name": "g", "count": 1}], "members": [{"group": "g", "index": 0, "node": "n0", "gpus": ["a"]}]}]}`
	}
	for more, want := range map[string]string{
		`{"group": "g", "index": 0, "node": "n0", "gpus": ["a"]}`:                                                           `jobs[1] (k).members[0].gpus[0]: "a": is held by a member of job "j" too; want one holder`,
		`{"group": "g", "index": 0, "node": "n0", "gpus": ["b"]}`:                                                           `jobs[0] (j).members[0].gpus[0]: "b": is on node "n1", not on "n0"`,
		`{"group": "g", "index": 77, "node": "n1", "gpus": ["b"]}`:                                                          `jobs[0] (j).members[0].index: 77: want less than the group's count, 1`,
		`{"group": "g", "index": 0, "node": "n1", "gpus": ["b"], "rank": -5}`:                                               `jobs[0] (j).members[0].rank: -5: want 0 to 1048576`,
		`{"group": "g", "index": 0, "node": "n0", "gpus": ["a"], "ended": true}`:                                            "",
		`{"group": "g", "index": 0, "node": "n1", "gpus": ["one that fell off", "b"]}`:                                      "",
		`{"group": "g", "index": 0, "node": "n1", "gpus": ["b"], "since_checkpoint_s": 0, "checkpoint_step": 3, "step": 5}`: "",
		`{"group": "g", "index": 0, "node": "n1", "gpus": ["b"], "since_checkpoint_s": -1}`:                                 `jobs[0] (j).members[0].since_checkpoint_s: -1: want 0 or more`,
		`{"group": "g", "index": 0, "node": "n1", "gpus": ["b"], "step": null}`:                                             `decode: jobs[0].members[0].step: found null, want an integer`,
	} {
		_, err := DecodeSnapshot(strings.NewReader(member(more)))
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != ErrSnapshot.Error()+": "+want) {
			t.Errorf("%s\ngot  %v\nwant %s", more, err, want)
		}
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	s := &Snapshot{
		Version: 7,
		Levels:  []string{"rack", "node", "rack"},
		Nodes: []Node{
			{ID: "n1", Levels: map[string]string{"row": "1"}, GPUs: []GPU{{UUID: "a"}, {UUID: "a"}}, Links: [][]Link{{{}}}},
			{ID: "n1", ReservedPorts: []int{0}},
			{ID: "n2", Capacity: Resources{MemoryMiB: -1}, GPUs: []GPU{{UUID: "a"}, {UUID: "b", Island: -1, NUMA: -2}}, ReservedPorts: []int{70000}},
			{Divisions: []Division{{At: time.Unix(9, 0), Again: time.Unix(8, 0), State: "undone"}}},
		},
		Jobs: []Job{
			{ID: "j", State: "lost", Gang: "all", Topology: Topology{Mode: "must", Level: "row"}, Groups: []TaskGroup{
				{Name: "g", Count: -1, Ports: []int{0}, Devices: []DeviceAsk{{Count: -1}}}, {Name: "g"},
			}, Members: []Member{{Group: "h", Node: "n9"}, {Group: "g", Node: "n2"}, {Group: "g", Node: "n2"}}},
			{ID: "j", State: StateQueued, Gang: "most"},
			{ID: "k", State: StateQueued, Topology: Topology{Mode: TopologyRequire}},
		},
		Allocs: []Alloc{
			{ID: "x", Node: "n9"},
			{ID: "y", Node: "n2", GPUs: []string{"b"}},
			{ID: "y", Node: "n2", Ports: []int{0}},
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
		`nodes[0].gpus[1].uuid: "a": is on node "n1" too`, `nodes[1].id: "n1": is nodes[0]'s too`, "nodes[1] (n1).reserved_ports[0]: 0",
		"nodes[2] (n2).capacity.memory_mib: -1", `nodes[2].gpus[0].uuid: "a": is on node "n1" too`,
		"gpus[1].island: -1", "gpus[1].numa: -2", "reserved_ports[0]: 70000", "nodes[3].id: empty",
		"nodes[3] ().divisions[0].gpu: empty", `nodes[3] ().divisions[0].state: "undone"`, "nodes[3] ().divisions[0].again: ",
		`jobs[0] (j).state: "lost"`, `gang: "all"`, `topology.mode: "must"`, `topology.level: "row"`, "count: -1", "ports[0]: 0",
		"devices[0].count: -1", "devices[0].name: empty", `groups[1].name: "g"`, `members[0].group: "h"`, `members[0].node: "n9"`,
		`members[2]: group "g" index 0`, `jobs[1].id: "j"`, `jobs[1] (j).gang: "most"`, "jobs[2] (k).topology.level: empty",
		`allocs[0] (x).node: "n9"`, `allocs[2].id: "y"`, "allocs[2] (y).ports[0]: 0", `"b": is on node "n2", not on "n1"`, `"b": is held by alloc "y" too`,
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
	f.Add([]byte(`{"now": "2026-01-02T03:04:05Z", "nodes": null, "jobs": [{"id": "j", "state": "queued", "groups": [{"name": "g", "count": 1}]}]}`))
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

func TestServiceFaults(t *testing.T) {
	for text, want := range map[string]string{
		`"attained_gpu_s": 7, "ran_ns": 5, "forgotten_gpu_s": 7, "forgotten_ran_ns": 5`: "",
		`"ran_ns": 5, "ran_by_model_ns": {"A": 2, "B": 3}`:                              "",
		`"ran_ns": 5, "ran_by_model_ns": {"A": 3, "B": 3}`:                              `jobs[0] (j).ran_by_model_ns["B"]: 3: want 0 or more, and with the others at most ran_ns, 5`,
		`"ran_ns": 5, "ran_by_model_ns": {"A": -1}`:                                     `jobs[0] (j).ran_by_model_ns["A"]: -1: want 0 or more`,
		`"attained_gpu_s": -1`:                                                          `jobs[0] (j).attained_gpu_s: -1: want 0 to`,
		`"ran_ns": -1`:                                                                  `jobs[0] (j).ran_ns: -1: want 0 or more`,
		`"attained_gpu_s": 1, "forgotten_gpu_s": 2`:                                     `jobs[0] (j).forgotten_gpu_s: 2: want 0 to attained_gpu_s, 1`,
		`"ran_ns": 1, "forgotten_ran_ns": 2`:                                            `jobs[0] (j).forgotten_ran_ns: 2: want 0 to ran_ns, 1`,
		`"estimate_ns": 5, "estimate_spread_ns": 5, "estimate_runs": 1`:                 "",
		`"estimate_spread_ns": -1`:                                                      `jobs[0] (j).estimate_spread_ns: -1: want 0 (unknown) or more`,
		`"estimate_runs": -1`:                                                           `jobs[0] (j).estimate_runs: -1: want 0 (unknown) or more`,
	} {
		_, err := DecodeSnapshot(strings.NewReader(`{"now": "2026-01-02T03:04:05Z", "nodes": [], "jobs": [{"id": "j", "state": "queued", "groups": [], ` + text + `}]}`))
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestHistoryFaults(t *testing.T) {
	s := &Snapshot{History: History{Demands: []float64{0, -1, math.Inf(1), MaxQuantity, math.NaN()}}}
	err := s.Validate()
	for _, want := range []string{"history.demands_gpu_s[1]: -1: want 0 to", "history.demands_gpu_s[2]: +Inf", "history.demands_gpu_s[4]: NaN"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	s.History.Demands = make([]float64, MaxDemands+1)
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "history.demands_gpu_s: 10001 of them: want at most 10000") {
		t.Errorf("%v", err)
	}
	s.History.Demands = s.History.Demands[1:]
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
}
