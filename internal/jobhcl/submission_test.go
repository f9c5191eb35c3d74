package jobhcl

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestVariableText(t *testing.T) {
	opts := Options{
		Vars: map[string]string{"count": "3", "dcs": `["x", "y"]`},
		VarFiles: []VarFile{
			{"a.hcl", []byte("name = <<EOT\nline ${\"1\"}\nEOT\ncount = 2\n")},
			{"b.hcl", []byte("dcs = [\n  \"z\",\n]\n")},
		},
		Env: []string{"NOMAD_VAR_name=env", "NOMAD_VAR_unknown=1"},
	}
	got, err := VariableText([]byte(withVariables), "v.hcl", opts)
	if err != nil {
		t.Fatal(err)
	}
	want := "count = \"3\"\ndcs = [\"x\", \"y\"]\nname = <<EOT\nline ${\"1\"}\nEOT\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestVariableTextFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		src  string
		opts Options
		want string
	}{
		"undeclared": {withVariables, Options{Vars: map[string]string{"name": "n", "x": "1"}}, `declares no variable "x"`},
		"unset":      {withVariables, Options{}, `Variable "name" has no default`},
		"rule":       {withVariables, Options{Vars: map[string]string{"name": "n", "count": "99"}}, "at most 8"},
		"syntax":     {"job {", Options{}, "f.hcl:1"},
		"JSON":       {"{}", Options{}, "JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := VariableText([]byte(tc.src), "f.hcl", tc.opts); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// Whatever the values, the job that comes out of the text is the one that
// comes out of the values themselves.
func TestVariableTextKeepsValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := Options{Vars: map[string]string{
			"name":  rapid.String().Draw(t, "name"),
			"count": rapid.SampledFrom([]string{"1", "8", " 3", "0x2", "1.5"}).Draw(t, "count"),
		}}
		direct, err := ParseWith([]byte(withVariables), "v.hcl", opts)
		text, textErr := VariableText([]byte(withVariables), "v.hcl", opts)
		if textErr != nil {
			if err == nil {
				t.Fatalf("text is refused, values are not: %v", textErr)
			}
			return
		}
		through, throughErr := ParseWith([]byte(withVariables), "v.hcl", Options{VarFiles: []VarFile{{"text", []byte(text)}}})
		if (err == nil) != (throughErr == nil) {
			t.Fatalf("values: %v, text %q: %v", err, text, throughErr)
		}
		if diff := cmp.Diff(direct, through); diff != "" {
			t.Fatalf("jobs differ (-values +text):\n%s", diff)
		}
	})
}
