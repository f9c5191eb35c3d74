package jobhcl

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
)

// jobFiles are the job files whose parse is compared with Nomad's, each with
// the place of Nomad's answer.
func jobFiles(t testing.TB) map[string]string {
	t.Helper()
	files := map[string]string{}
	for pattern, dir := range map[string]string{
		"testdata/jobs/*.hcl":  "testdata/jobs",
		"../../jobspecs/*.hcl": "testdata/jobspecs",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			files[f] = filepath.Join(dir, strings.TrimSuffix(filepath.Base(f), ".hcl")+".json")
		}
	}
	if len(files) < 15 {
		t.Fatalf("only %d job files found", len(files))
	}
	return files
}

// asJSON is a value as plain data, so that two jobs are compared as Nomad
// would see them.
func asJSON(t *testing.T, v any) any {
	t.Helper()
	b, ok := v.([]byte)
	if !ok {
		var err error
		if b, err = json.Marshal(v); err != nil {
			t.Fatal(err)
		}
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The expected answers were given by a Nomad server; TestParseLikeNomad
// compares with a living one.
func TestParseEqualsRecordedAnswer(t *testing.T) {
	for file, recorded := range jobFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(recorded)
			if err != nil {
				t.Fatalf("%v (record it with: NOMAD_BIN=/path/to/nomad go test ./internal/jobhcl -run LikeNomad -update)", err)
			}
			job, err := Parse(src, file, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(asJSON(t, want), asJSON(t, job)); diff != "" {
				t.Errorf("job differs from Nomad's (-nomad +ours):\n%s", diff)
			}
		})
	}
}

const withVariables = `
variable "count" {
  type    = number
  default = 1
  validation {
    condition     = var.count < 9
    error_message = "at most 8"
  }
}
variable "name" {
  type = string
}
variable "dcs" {
  type    = list(string)
  default = ["dc1"]
}
job "v" {
  name        = var.name
  datacenters = var.dcs
  group "g" {
    count = var.count
  }
}
`

func TestVariables(t *testing.T) {
	tests := map[string]struct {
		opts      Options
		wantName  string
		wantCount int
		wantDCs   []string
		wantErr   string
	}{
		"arguments": {
			opts:     Options{Vars: map[string]string{"name": "n", "count": "4", "dcs": `["a", "b"]`}},
			wantName: "n", wantCount: 4, wantDCs: []string{"a", "b"},
		},
		"arguments win over files, later files over earlier, files over the environment": {
			opts: Options{
				Vars:     map[string]string{"count": "3"},
				VarFiles: []VarFile{{"a.hcl", []byte("name = \"a\"\ncount = 2")}, {"b.hcl", []byte(`name = "b"`)}},
				Env:      []string{"NOMAD_VAR_name=env", "NOMAD_VAR_dcs=[\"e\"]", "NOMAD_VAR_other=x", "PATH=/bin", "name=no"},
			},
			wantName: "b", wantCount: 3, wantDCs: []string{"e"},
		},
		"missing":               {wantErr: `v.hcl:10,1-16: Variable without a value; Variable "name" has no default; give it one with -var name=VALUE.`},
		"undeclared argument":   {opts: Options{Vars: map[string]string{"name": "n", "nmae": "m"}}, wantErr: `The job file declares no variable "nmae"; it declares count, dcs, name.`},
		"undeclared in file":    {opts: Options{VarFiles: []VarFile{{"a.hcl", []byte("name = \"n\"\nx = 1")}}}, wantErr: `a.hcl:2,1-2: Undeclared variable;`},
		"undeclared is ignored": {opts: Options{IgnoreUndeclared: true, Vars: map[string]string{"name": "n", "x": "1"}}, wantName: "n", wantCount: 1, wantDCs: []string{"dc1"}},
		"wrong type":            {opts: Options{Vars: map[string]string{"name": "n", "count": "many"}}, wantErr: `Variable "count" does not take this value: a number is required.`},
		"rule broken":           {opts: Options{Vars: map[string]string{"name": "n", "count": "9"}}, wantErr: `Variable "count": at most 8 (rule at v.hcl:5,3-13).`},
		"expression does not parse": {
			opts:    Options{Vars: map[string]string{"name": "n", "dcs": "[1"}},
			wantErr: "-var dcs:1,1-2: Unterminated tuple",
		},
		"file is JSON": {opts: Options{VarFiles: []VarFile{{"a.json", []byte("{}")}}}, wantErr: "The file is JSON; write `name = value` lines."},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job, err := ParseWith([]byte(withVariables), "v.hcl", tc.opts)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("got error %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if *job.Name != tc.wantName || *job.TaskGroups[0].Count != tc.wantCount {
				t.Errorf("got name %q count %d, want %q and %d", *job.Name, *job.TaskGroups[0].Count, tc.wantName, tc.wantCount)
			}
			if diff := cmp.Diff(tc.wantDCs, job.Datacenters); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	tests := map[string]struct {
		src  string
		want []string // the lines of the error
	}{
		"no job":          {"", []string{"f.hcl:1,1-1: Missing job block; A job file needs a `job \"name\" { … }` block."}},
		"two jobs":        {"job \"a\" {}\njob \"b\" {}", []string{"f.hcl:2,1-8: Duplicate job block; A file holds one job; another was defined at f.hcl:1,1-8."}},
		"job has no name": {"job {}", []string{"f.hcl:1,1-4: Wrong number of labels; A job block takes 1 label(s), this one has 0."}},
		"syntax":          {"job \"a\" {", []string{"f.hcl:1,9-10: Unclosed configuration block; There is no closing brace for this block before the end of the file. This may be caused by incorrect brace nesting elsewhere in this file."}},
		"every fault is listed": {
			src: "job \"a\" {\n  tpye = \"batch\"\n  group \"g\" {\n    cuont = 1\n    task \"t\" {\n      divice {}\n      kill_timeout = \"5 s\"\n    }\n  }\n}",
			want: []string{
				`f.hcl:2,3-7: Unsupported argument; "tpye" is not expected in a job block. Did you mean "type"?`,
				`f.hcl:4,5-10: Unsupported argument; "cuont" is not expected in a group block. Did you mean "count"?`,
				`f.hcl:6,7-13: Unsupported block type; Blocks of type "divice" are not expected in a task block.`,
				`f.hcl:7,22-27: Unsuitable value; "5 s" is no duration; write one like "30s" or "1h30m".`,
			},
		},
		"wrong types": {
			src: "job \"a\" {\n  priority = \"high\"\n  datacenters = \"dc1\"\n  meta { x = [1] }\n}",
			want: []string{
				"f.hcl:2,14-20: Unsuitable value; This argument does not take the value: a number is required.",
				"f.hcl:3,17-22: Unsuitable value; This argument does not take the value: list of string required, but have string.",
				"f.hcl:4,14-17: Unsuitable value; This argument does not take the value: string required, but have tuple.",
			},
		},
		"block for argument and argument for block": {
			src: "job \"a\" {\n  type {}\n  group = {}\n}",
			want: []string{
				"f.hcl:2,3-7: Unsupported block type; \"type\" is an argument: write `type = …`.",
				"f.hcl:3,3-8: Unsupported argument; \"group\" is a block: write `group { … }` without the equals sign.",
			},
		},
		"labels and required arguments": {
			src: "job \"a\" {\n  group \"g\" \"h\" {}\n  group \"i\" {\n    task \"t\" {\n      lifecycle {}\n      action \"x\" {}\n    }\n  }\n}",
			want: []string{
				"f.hcl:2,3-16: Wrong number of labels; A group block takes 1 label(s), this one has 2.",
				"f.hcl:5,7-16: Missing required argument; A lifecycle block needs \"hook\".",
				"f.hcl:6,7-17: Missing required argument; A action block needs \"command\".",
			},
		},
		"duplicate blocks": {
			src:  "job \"a\" {\n  update {}\n  update {}\n}",
			want: []string{"f.hcl:3,3-9: Duplicate block; Only one update block is allowed; another was defined at f.hcl:2,3-9."},
		},
		"meta twice": {
			src:  "job \"a\" {\n  meta = {}\n  meta {}\n}",
			want: []string{"f.hcl:3,3-7: Duplicate block; Only one meta is allowed; another was defined at f.hcl:2,3-7."},
		},
		"unknown constraint key": {
			src:  "job \"a\" {\n  constraint {\n    atribute = \"x\"\n  }\n}",
			want: []string{`f.hcl:3,5-13: Unsupported argument; "atribute" is not expected in a constraint block. Did you mean "attribute"?`},
		},
		"unknown function, variable and local": {
			src: "job \"a\" {\n  name = uper(\"x\")\n  type = var.x\n  region = local.y\n}",
			want: []string{
				"f.hcl:2,10-14: Call to unknown function; There is no function named \"uper\". Did you mean \"upper\"?",
				"f.hcl:3,13-15: Unsupported attribute; This object does not have an attribute named \"x\".",
				"f.hcl:4,17-19: Unsupported attribute; This object does not have an attribute named \"y\".",
			},
		},
		"circular locals": {
			src:  "locals {\n  a = local.b\n  b = local.a\n}\njob \"a\" {}",
			want: []string{"f.hcl:3,7-14: Circular locals; local.b and local.a need each other."},
		},
		"a file may not be read": {
			src:  "job \"a\" {\n  name = file(\"/etc/passwd\")\n}",
			want: []string{"f.hcl:2,10-15: Error in function call; Call to function \"file\" failed: functions that read files work only where the job file is parsed on your machine; use `nomad job run`, or put the content into a variable."},
		},
		"dynamic blocks": {
			src: "job \"a\" {\n  dynamic \"group\" {\n    for_each = 5\n    content {}\n  }\n  dynamic \"group\" {\n    content {}\n  }\n  dynamic \"group\" {\n    for_each = [1]\n    x = 1\n    content {}\n  }\n}",
			want: []string{
				"f.hcl:3,16-17: Invalid for_each; for_each takes a list, set, map or object, not number.",
				"f.hcl:6,3-18: Incomplete dynamic block; A dynamic block needs for_each and one content block.",
				"f.hcl:9,3-18: Wrong number of labels; A group block takes 1 label(s), this one has 0.",
				"f.hcl:11,5-6: Unsupported argument; A dynamic block takes for_each, iterator, labels and one content block, not \"x\".",
			},
		},
		"scaling": {
			src: "job \"a\" {\n  group \"g\" {\n    scaling {}\n    task \"t\" {\n      scaling \"gpu\" {}\n    }\n  }\n}",
			want: []string{
				"f.hcl:2,3-12: Invalid scaling block; A group's scaling block needs max, and its type can only be \"horizontal\".",
				"f.hcl:5,7-20: Invalid scaling block; A task's scaling block is named \"cpu\" or \"mem\", not \"gpu\".",
			},
		},
		"stray things at the top": {
			src: "x = 1\nfoo {}\njob \"a\" {}",
			want: []string{
				`f.hcl:1,1-2: Unsupported argument; "x" is not expected here; a job file holds job, variable, variables and locals blocks.`,
				`f.hcl:2,1-4: Unsupported block type; Blocks of type "foo" are not expected here; a job file holds job, variable, variables and locals blocks.`,
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tc.src), "f.hcl", nil)
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(tc.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			var list *Error
			if !errors.As(err, &list) || len(list.Diagnostics) != len(tc.want) {
				t.Errorf("error is no *Error with %d diagnostics: %T", len(tc.want), err)
			}
		})
	}
}

func TestJSONIsRefused(t *testing.T) {
	_, err := Parse([]byte(" \n{\"job\": {}}"), "f.json", nil)
	if !errors.Is(err, ErrJSON) {
		t.Errorf("got %v, want ErrJSON", err)
	}
}

// Each of these would end the process by overflowing its stack.
func TestNestingIsBounded(t *testing.T) {
	for name, src := range map[string]string{
		"brackets":     `job "a" { name = ` + strings.Repeat("[", 900_000),
		"blocks":       strings.Repeat("a {\n", 250_000),
		"negations":    `job "a" { name = ` + strings.Repeat("!", 900_000),
		"conditionals": `job "a" { name = ` + strings.Repeat("a?b:", 200_000),
		"templates":    `job "a" { name = ` + strings.Repeat(`"${`, 300_000),
		"size":         strings.Repeat("#", maxSourceBytes+1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(src), "f.hcl", nil)
			if err == nil || !strings.Contains(err.Error(), "Job file too large") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestFileFunctions(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "name.txt"), []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	job, err := ParseWith([]byte(`job "a" { name = chomp(file("name.txt")) }`), filepath.Join(dir, "a.hcl"), Options{FileFunctions: true})
	if err != nil {
		t.Fatal(err)
	}
	if *job.Name != "from-file" {
		t.Errorf("got %q", *job.Name)
	}
}

// A secret at a group goes to each of its tasks, one at a time.
func TestGroupDefaultsReachTasks(t *testing.T) {
	job, err := Parse([]byte(`job "a" {
  secret "j" {}
  group "g" {
    vault { role = "r" }
    secret "s" {}
    task "t" {
      secret "own" {}
    }
    task "u" {
      vault { role = "mine" }
    }
  }
}`), "a.hcl", nil)
	if err != nil {
		t.Fatal(err)
	}
	secrets := func(task *api.Task) (names []string) {
		for _, s := range task.Secrets {
			names = append(names, s.Name)
		}
		return names
	}
	tasks := job.TaskGroups[0].Tasks
	if diff := cmp.Diff([][]string{{"own", "s", "j"}, {"s", "j"}}, [][]string{secrets(tasks[0]), secrets(tasks[1])}); diff != "" {
		t.Error(diff)
	}
	if tasks[0].Vault.Role != "r" || tasks[1].Vault.Role != "mine" {
		t.Errorf("vault roles %q and %q", tasks[0].Vault.Role, tasks[1].Vault.Role)
	}
}

// Whatever the text, Parse returns a job or an error, the same each time.
func FuzzParse(f *testing.F) {
	for file := range jobFiles(f) {
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Add([]byte(withVariables))
	for _, s := range []string{
		`job "a" { group "g" { count = "${x" } }`, `job "a" { name = "%{ for x in var.y }${x}%{ endfor }" }`,
		`job "a" { meta = { for k, v in { a = 1 } : k => v... } }`, `job "a" { type = "${a.*.b}${c[*].d[0]}" }`,
		"locals {\n a = local.a\n}\njob \"a\" {}", `job "a" { name = convert(null, list(string)) }`,
		"variable \"x\" {\n type = object({a = optional(string)})\n}\njob \"a\" { }", "job \"a\" {\n dynamic \"dynamic\" {\n for_each = [1]\n content {}\n}\n}",
		"job \"a\" { meta = null }", "\xef\xbb\xbfjob \"a\" {}", "job \"a\" { group \"g\" { count = 1e400 } }", "job \"a\" {\n periodic {\n crons = null\n}\n}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		job, err := Parse(src, "fuzz.hcl", map[string]string{})
		if (job == nil) == (err == nil) {
			t.Fatalf("job %v with error %v", job, err)
		}
		if err == nil {
			if _, err := json.Marshal(job); err != nil && !strings.Contains(err.Error(), "unsupported value") {
				t.Fatalf("job cannot be encoded: %v", err)
			}
			return
		}
		if strings.Contains(err.Error(), "expression cannot be evaluated") {
			return
		}
		if err.Error() == "" {
			t.Fatal("an error without words")
		}
	})
}
