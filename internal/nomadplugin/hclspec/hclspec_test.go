package hclspec_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zclconf/go-cty/cty"

	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

type inner struct {
	Name  string   `codec:"name"`
	Ports []int    `codec:"ports"`
	Extra []string `codec:"extra"`
}

type config struct {
	Enabled bool              `codec:"enabled"`
	Count   int               `codec:"count"`
	Ratio   float64           `codec:"ratio"`
	Labels  map[string]string `codec:"labels"`
	Inner   *inner            `codec:"inner"`
	Steps   []inner           `codec:"step"`
	By      map[string]inner  `codec:"by"`
}

func schema() *hclspec.Spec {
	in := hclspec.Object(map[string]*hclspec.Spec{
		"name":  hclspec.Attr("name", "string", true),
		"ports": hclspec.Attr("ports", "list(number)", false),
		"extra": hclspec.Array(hclspec.Literal(`upper("a")`), hclspec.Attr("more", "string", false)),
	})
	named := hclspec.Object(map[string]*hclspec.Spec{"ports": hclspec.Attr("ports", "list(number)", false)})
	return hclspec.Object(map[string]*hclspec.Spec{
		"enabled": hclspec.Default(hclspec.Attr("enabled", "bool", false), hclspec.Literal("true")),
		"count":   hclspec.Attr("", "number", false),
		"ratio":   hclspec.Attr("ratio", "number", false),
		"labels":  hclspec.BlockAttrs("labels", "string", false),
		"inner":   hclspec.Block("inner", false, in),
		"step":    hclspec.BlockListLimited("step", 0, 2, in),
		"by":      hclspec.BlockMap("by", []string{"key"}, named),
	})
}

func TestEncode(t *testing.T) {
	tests := map[string]struct {
		src  string
		want config
		errs []string
	}{
		"empty takes defaults": {src: "", want: config{Enabled: true}},
		"everything": {
			src: `
				enabled = false
				count   = length(["a", "b"]) + 6
				ratio   = 0.5
				labels { a = "1" }
				inner { name = "x" }
				step {
				  name  = "s0"
				  ports = [1, 2]
				  more  = "m"
				}
				step { name = "s1" }
				by "k" { ports = [3] }`,
			want: config{
				Count: 8, Ratio: 0.5, Labels: map[string]string{"a": "1"},
				Inner: &inner{Name: "x", Extra: []string{"A", ""}},
				Steps: []inner{{Name: "s0", Ports: []int{1, 2}, Extra: []string{"A", "m"}}, {Name: "s1", Extra: []string{"A", ""}}},
				By:    map[string]inner{"k": {Ports: []int{3}}},
			},
		},
		"every fault is told": {
			src:  "enabled = \"perhaps\"\nbogus = 1\ninner {}\nstep { name = \"a\" }\nstep { name = \"b\" }\nstep { name = \"c\" }\n",
			errs: []string{"bogus", "bool", `"name"`, "step"},
		},
		"not HCL": {src: "count = = 1", errs: []string{"plugin.hcl:1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			data, err := hclspec.Encode(schema(), []byte(tt.src), "plugin.hcl")
			if len(tt.errs) > 0 {
				for _, want := range tt.errs {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("Encode() = %v, want it to name %q", err, want)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got config
			if err := (base.Config{Raw: data}).Decode(&got); err != nil {
				t.Fatal(err)
			}
			if len(got.Steps) == 0 {
				got.Steps = nil
			}
			if len(got.By) == 0 {
				got.By = nil
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestEncodeMap reads what Nomad's API has as a task's config, where a block
// is a list with one map.
func TestEncodeMap(t *testing.T) {
	vars := map[string]cty.Value{"NOMAD": cty.ObjectVal(map[string]cty.Value{"port": cty.NumberIntVal(7)})}
	data, err := hclspec.EncodeMap(schema(), map[string]any{
		"count": "${NOMAD.port}",
		"inner": []any{map[string]any{"name": "x"}},
		"step":  []any{map[string]any{"name": "a"}, map[string]any{"name": "b"}},
	}, vars)
	if err != nil {
		t.Fatal(err)
	}
	var got config
	if err := (base.Config{Raw: data}).Decode(&got); err != nil {
		t.Fatal(err)
	}
	got.By = nil
	want := config{
		Enabled: true, Count: 7, Inner: &inner{Name: "x", Extra: []string{"A", ""}},
		Steps: []inner{{Name: "a", Extra: []string{"A", ""}}, {Name: "b", Extra: []string{"A", ""}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := hclspec.EncodeMap(schema(), nil, nil); err != nil {
		t.Errorf("EncodeMap of no config = %v, want nil", err)
	}
}

// TestConvertFaults gives specs that no plugin should send; none may panic,
// and every fault is named.
func TestConvertFaults(t *testing.T) {
	deep := hclspec.Literal("1")
	for range 100 {
		deep = hclspec.Array(deep)
	}
	tests := map[string]struct {
		spec *hclspec.Spec
		want []string
	}{
		"nil":             {nil, []string{"a spec is empty"}},
		"empty":           {&hclspec.Spec{}, []string{"a spec is empty"}},
		"several at once": {hclspec.Array(hclspec.Attr("", "string", false), hclspec.Attr("x", "strin", false)), []string{"attr has no name", `type "strin"`}},
		"no nested":       {hclspec.Block("b", false, nil), []string{"a spec is empty"}},
		"no labels":       {hclspec.BlockMap("b", nil, hclspec.Literal("1")), []string{"no labels"}},
		"bad literal":     {hclspec.Literal("nope("), []string{`literal "nope("`}},
		"bad reference":   {hclspec.Literal("nope"), []string{`literal "nope"`}},
		"bad attrs type":  {hclspec.BlockAttrs("b", "list(", false), []string{`type "list("`}},
		"too deep":        {deep, []string{"deeper"}},
		"nil in default":  {hclspec.Default(nil, nil), []string{"a spec is empty"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := hclspec.Convert(tt.spec)
			if !errors.Is(err, hclspec.ErrSpec) {
				t.Fatalf("Convert() = %v, want ErrSpec", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Convert() = %v, want it to name %q", err, want)
				}
			}
		})
	}
}

func FuzzEncode(f *testing.F) {
	for _, s := range []string{"", "enabled = false", "inner { name = \"x\" }", "count = 1/0", "count = 1e999", "labels {", "step {}", "by \"a\" \"b\" {}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		data, err := hclspec.Encode(schema(), []byte(src), "fuzz.hcl")
		if err != nil {
			return
		}
		var got config
		// A number may be too large for the struct; that must be an error too.
		_ = (base.Config{Raw: data}).Decode(&got)
	})
}
