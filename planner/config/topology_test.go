package config

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var testLevels = []string{"region", "zone", "block", "rack", "domain"}

func TestParseTopology(t *testing.T) {
	got, err := ParseTopology([]byte(`
block "b1" {
  rack "r1" { nodes = ["gpu-[01-02]", "5f3c2a1e-0000-0000-0000-000000000001"] }
  nodes = ["spare"]
}
rack "r1" { nodes = ["other"] }
`), "t.hcl", testLevels)
	if err != nil {
		t.Fatal(err)
	}
	r1 := Place{Levels: map[string]string{"block": "b1", "rack": "r1"}, Line: 3}
	want := &Topology{Path: "t.hcl", Places: map[string]Place{
		"gpu-01": r1, "gpu-02": r1, "5f3c2a1e-0000-0000-0000-000000000001": r1,
		"spare": {Levels: map[string]string{"block": "b1"}, Line: 4},
		"other": {Levels: map[string]string{"rack": "r1"}, Line: 6},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("topology (-want +got):\n%s", diff)
	}
}

func TestParseTopologyFaults(t *testing.T) {
	tests := map[string]struct {
		src  string
		want []string
	}{
		"unknown level":         {"bloc \"b\" {}", []string{`t.hcl:1: no level is named "bloc": did you mean "block"?`}},
		"turned around":         {"rack \"r\" {\n block \"b\" {}\n}", []string{`t.hcl:2: block "b" cannot be inside rack "r"`}},
		"a cycle":               {"rack \"r\" {\n rack \"r\" {}\n}", []string{`t.hcl:2: rack "r" cannot be inside rack "r"`}},
		"a node in two places":  {"rack \"a\" { nodes = [\"n1\"] }\nrack \"b\" { nodes = [\"n[1-2]\"] }", []string{`t.hcl:2: node "n1" is in line 1 too`}},
		"a domain twice":        {"rack \"a\" {}\nrack \"a\" {}", []string{"defined in line 1 already"}},
		"nodes nowhere":         {"nodes = [\"a\"]", []string{"belong into a block"}},
		"unknown key":           {"rack \"a\" { node = [] }", []string{`unknown key "node"`}},
		"no name":               {"rack {}", []string{"needs one name"}},
		"nodes of a wrong type": {"rack \"a\" { nodes = [[1]] }", []string{`t.hcl:1: nodes[0] is [1]: want a text in quotes`}},
		"slash in a name":       {"rack \"a/b\" {}", []string{"slash"}},
		"bad range":             {"rack \"a\" { nodes = [\"g[1-x]\"] }", []string{"neither a number nor a range"}},
		"two faults at once":    {"rak \"a\" {}\nrack \"b\" { nodes = [\"[\"] }", []string{"t.hcl:1:", "t.hcl:2:"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ParseTopology([]byte(test.src), "t.hcl", testLevels)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestExpand(t *testing.T) {
	tests := map[string]struct {
		pattern string
		want    []string
		wantErr string
	}{
		"plain":            {pattern: "gpu-1", want: []string{"gpu-1"}},
		"range":            {pattern: "g[9-11]", want: []string{"g9", "g10", "g11"}},
		"width":            {pattern: "g[08-10]x", want: []string{"g08x", "g09x", "g10x"}},
		"list":             {pattern: "g[1,3-4]", want: []string{"g1", "g3", "g4"}},
		"two brackets":     {pattern: "r[1-2]n[1-2]", want: []string{"r1n1", "r1n2", "r2n1", "r2n2"}},
		"backwards":        {pattern: "g[2-1]", wantErr: "backwards"},
		"not closed":       {pattern: "g[1", wantErr: "without its ]"},
		"not opened":       {pattern: "g1]", wantErr: "without its ["},
		"empty":            {pattern: "", wantErr: "empty"},
		"empty bracket":    {pattern: "g[]", wantErr: "neither"},
		"too many":         {pattern: "g[0-4000000000]", wantErr: "more than"},
		"too many product": {pattern: "g[1-40][1-40]", wantErr: "more than"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := expand(test.pattern, 1000)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("error = %v, want %q in it", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpandGivesWhatItIsAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(0, 500).Draw(t, "from")
		n := rapid.IntRange(1, 300).Draw(t, "n")
		pattern := "x[" + strconv.Itoa(from) + "-" + strconv.Itoa(from+n-1) + "]"
		got, err := expand(pattern, 300)
		if err != nil {
			t.Fatalf("expand %s: %v", pattern, err)
		}
		if len(got) != n || got[0] != "x"+strconv.Itoa(from) || got[n-1] != "x"+strconv.Itoa(from+n-1) {
			t.Errorf("expand %s = %d names, %s to %s", pattern, len(got), got[0], got[len(got)-1])
		}
	})
}

func FuzzParseTopology(f *testing.F) {
	f.Add(`block "b1" { rack "r1" { nodes = ["gpu-[01-08]"] } }`)
	f.Add(`rack "r" { rack "r" {} }`)
	f.Add(`rack "r" { nodes = ["[1-999999999]"] }`)
	f.Fuzz(func(t *testing.T, src string) {
		top, err := ParseTopology([]byte(src), "t.hcl", testLevels)
		if err == nil && top == nil {
			t.Error("neither a topology nor an error")
		}
	})
}
