package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Many comparisons with one command, and the document of them.
func TestCompare(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"cluster02", "cluster03", "cluster09"} {
		var b strings.Builder
		b.WriteString("job_id,submission_time,duration,num_gpu\n")
		for i := range 30 {
			fmt.Fprintf(&b, "%s-%d,%d,%d,%d\n", name, i, i*7000, 3600*(1+i%5), 1<<(i%6))
		}
		if err := os.WriteFile(filepath.Join(dir, name+".csv.gz"), []byte(b.String()), 0o644); err != nil { // plain is read too
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "out")
	page := filepath.Join(dir, "evaluation.md")
	args := []string{"simulate", "--compare", "--quick", "--only", "traces", "--trace-dir", dir, "--out", out, "--evaluation", page}
	got := newFakePlanner(t).call(nil, "", args...)
	if got.code != CodeOK || !strings.Contains(got.out, "traces: 256 GPUs, cluster03, load 0.9, 2 seeds") {
		t.Fatalf("exit code %d: %s%s", got.code, got.out, got.errOut)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "256 GPUs, ITP cluster09") || !strings.Contains(string(text), "--quick --only traces\n") || strings.Contains(string(text), "## The published claim") {
		t.Errorf("the document lacks a comparison, or what was asked for, or claims what was not compared: %v", err)
	}
	if files, err := filepath.Glob(filepath.Join(out, "traces-*.json")); err != nil || len(files) != 3 {
		t.Errorf("results: %v, %v", files, err)
	}
	if got := newFakePlanner(t).call(nil, "", append(args, "--json")...); got.code != CodeOK || !strings.Contains(got.out, `"jct_p99_bound_s"`) {
		t.Errorf("as JSON: exit code %d: %s", got.code, got.errOut)
	}
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"simulate", "--compare", "--only", "luck"}, 2, `--only "luck": want some of headline`},
		{[]string{"simulate", "--compare", "--only", "traces", "--trace-dir", "/no/such", "--out", out}, 1, "/no/such"},
		{[]string{"simulate", "--compare", "--only", "traces", "--trace-dir", dir, "--out", "/dev/null/x"}, 1, "write study"},
	} {
		if got := newFakePlanner(t).call(nil, "", test.args...); got.code != test.code || !strings.Contains(got.errOut, test.want) {
			t.Errorf("%v: exit code %d: want %d and %q: %s", test.args, got.code, test.code, test.want, got.errOut)
		}
	}
}
