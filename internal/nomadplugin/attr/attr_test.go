package attr_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
)

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		value attr.Value
		want  string // "" is valid
	}{
		"int":             {attr.Int(1), ""},
		"int with unit":   {attr.IntUnit(80, "GiB"), ""},
		"float with rate": {attr.FloatUnit(25.5, "GB/s"), ""},
		"string":          {attr.String(""), ""},
		"bool":            {attr.Bool(false), ""},
		"nothing":         {attr.Value{}, "no value"},
		"unknown unit":    {attr.IntUnit(1, "GiBit"), `unknown unit "GiBit"; allowed: EB EB/s`},
		"NaN":             {attr.Float(math.NaN()), "finite"},
		"infinite":        {attr.FloatUnit(math.Inf(-1), "W"), "finite"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.value.Validate()
			if tt.want == "" && err != nil {
				t.Fatalf("Validate() = %v, want nil", err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Fatalf("Validate() = %v, want it to say %q", err, tt.want)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	const no = 99 // cannot be compared
	tests := map[string]struct {
		a, b attr.Value
		want int
	}{
		"ints":                       {attr.Int(1), attr.Int(2), -1},
		"int and float":              {attr.Int(2), attr.Float(1.5), 1},
		"large ints are exact":       {attr.Int(math.MaxInt64), attr.Int(math.MaxInt64 - 1), 1},
		"binary and decimal bytes":   {attr.IntUnit(1, "GiB"), attr.IntUnit(1, "GB"), 1},
		"kB and KB":                  {attr.IntUnit(3, "kB"), attr.IntUnit(3, "KB"), 0},
		"units of one dimension":     {attr.IntUnit(1024, "MiB"), attr.IntUnit(1, "GiB"), 0},
		"milliwatts":                 {attr.IntUnit(700000, "mW"), attr.IntUnit(700, "W"), 0},
		"frequency":                  {attr.FloatUnit(1.98, "GHz"), attr.IntUnit(1979, "MHz"), 1},
		"overflowing units":          {attr.IntUnit(math.MaxInt64, "EB"), attr.IntUnit(1, "EB"), 1},
		"bytes and a rate":           {attr.IntUnit(1, "GB"), attr.IntUnit(1, "GB/s"), no},
		"a unit and none":            {attr.IntUnit(1, "GB"), attr.Int(1), no},
		"strings":                    {attr.String("a"), attr.String("b"), -1},
		"a string and a number":      {attr.String("1"), attr.Int(1), no},
		"equal bools":                {attr.Bool(true), attr.Bool(true), 0},
		"different bools":            {attr.Bool(false), attr.Bool(true), 1},
		"a bool and a number":        {attr.Bool(true), attr.Int(1), no},
		"nothing and nothing":        {attr.Value{}, attr.Value{}, no},
		"NaN compares with nothing":  {attr.Float(math.NaN()), attr.Int(1), no},
		"an unknown unit is no unit": {attr.IntUnit(1, "x"), attr.Int(1), 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := tt.a.Compare(tt.b)
			if !ok {
				got = no
			}
			if got != tt.want {
				t.Errorf("Compare(%s, %s) = %d, want %d", tt.a.Text(), tt.b.Text(), got, tt.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	tests := map[string]attr.Value{
		"":           attr.String(""),
		"8":          attr.Int(8),
		"-3":         attr.Int(-3),
		"1.5":        attr.Float(1.5),
		"80 GiB":     attr.IntUnit(80, "GiB"),
		"80GiB":      attr.IntUnit(80, "GiB"),
		"25.5GB/s":   attr.FloatUnit(25.5, "GB/s"),
		"700W":       attr.IntUnit(700, "W"),
		"700mW":      attr.IntUnit(700, "mW"),
		"true":       attr.Bool(true),
		"NaN":        attr.String("NaN"),
		"infinity":   attr.String("infinity"),
		"GiB":        attr.String("GiB"),
		"H100 80 GB": attr.String("H100 80 GB"),
		"570.86.15":  attr.String("570.86.15"),
	}
	for in, want := range tests {
		t.Run(in, func(t *testing.T) {
			if diff := cmp.Diff(want, attr.Parse(in), cmp.AllowUnexported(attr.Value{})); diff != "" {
				t.Errorf("Parse(%q) (-want +got):\n%s", in, diff)
			}
		})
	}
}

func drawValue(t *rapid.T) attr.Value {
	unit := rapid.SampledFrom(append(attr.Units(), "")).Draw(t, "unit")
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		return attr.IntUnit(rapid.Int64().Draw(t, "int"), unit)
	case 1:
		return attr.FloatUnit(rapid.Float64().Draw(t, "float"), unit)
	case 2:
		return attr.String(rapid.String().Draw(t, "string"))
	default:
		return attr.Bool(rapid.Bool().Draw(t, "bool"))
	}
}

// TestWireRoundTrip draws values: what goes over the wire comes back equal, and
// a valid number that is printed and parsed compares equal.
func TestWireRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t)
		if got := attr.FromWire(v.ToWire()); got != v {
			t.Fatalf("FromWire(ToWire(%#v)) = %#v", v, got)
		}
		if v.Validate() != nil || v.Kind() == attr.KindString {
			return
		}
		if c, ok := attr.Parse(v.Text()).Compare(v); !ok || c != 0 {
			t.Fatalf("Parse(%q) does not equal %#v", v.Text(), v)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "8", "80 GiB", "1e400W", "0x10GB", "true", "-", "GB/s", "1_000", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v := attr.Parse(s)
		if err := v.Validate(); err != nil {
			t.Errorf("Parse(%q) is not valid: %v", s, err)
		}
	})
}
