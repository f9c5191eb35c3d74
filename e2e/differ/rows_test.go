package differ

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recordEnv has what a real Nomad answers written to testdata, instead of
// compared with what is there.
const recordEnv = "CARAVAN_DIFFER_RECORD"

// row is a sequence and what a real Nomad showed after each of its steps.
type row struct {
	why    string
	script []step
	want   []string
}

// The text of a row: "# why", and for each step "> step" and what was seen.
const (
	whyMark  = "# "
	stepMark = "> "
)

func parseRow(text string) (row, error) {
	var r row
	for n, line := range strings.Split(text, "\n") {
		why, isWhy := strings.CutPrefix(line, whyMark)
		raw, isStep := strings.CutPrefix(line, stepMark)
		switch {
		case isWhy:
			r.why = strings.TrimSpace(r.why + " " + why)
		case isStep:
			var s step
			if err := json.Unmarshal([]byte(raw), &s); err != nil {
				return r, fmt.Errorf("line %d: read a step: %w", n+1, err)
			}
			r.script, r.want = append(r.script, s), append(r.want, "")
		case len(r.want) > 0 && line != "":
			r.want[len(r.want)-1] += line + "\n"
		}
	}
	return r, nil
}

func (r row) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s\n", whyMark, r.why)
	for i, s := range r.script {
		fmt.Fprintf(&b, "\n%s%s\n", stepMark, s)
		if i < len(r.want) {
			b.WriteString(r.want[i])
		}
	}
	return b.String()
}

// TestRows plays the sequences that once ended in another way on the stand-in,
// and some more, and compares with what a real Nomad answered. With a real
// Nomad, it is asked again.
func TestRows(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no rows: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			testRow(t, path)
		})
	}
}

func testRow(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseRow(string(text))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if w, release, ok := realNomad(t); ok {
		got, err := w.play(t.Context(), r.script)
		if err != nil {
			discard(t)
		}
		release()
		if err != nil {
			t.Fatalf("on Nomad: %v", err)
		}
		if os.Getenv(recordEnv) != "" {
			r.want = got
			if err := os.WriteFile(path, []byte(r.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		compare(t, "Nomad itself does not do what it did", r.script, r.want, got)
	}
	got, err := standIn(t).play(t.Context(), r.script)
	if err != nil {
		t.Errorf("on the stand-in: %v", err)
	}
	compare(t, "the stand-in differs from Nomad", r.script, r.want, got)
}

// compare reports the first step after which two runs differ.
func compare(t *testing.T, what string, script []step, want, got []string) {
	t.Helper()
	for i := range min(len(want), len(got)) {
		if diff := lineDiff(want[i], got[i]); diff != "" {
			t.Errorf("%s after step %d, %s (-want +got):\n%s", what, i+1, script[i], diff)
			return
		}
	}
	if len(want) != len(got) {
		t.Errorf("%s: %d steps, want %d", what, len(got), len(want))
	}
}

// lineDiff lists the lines that are in one text only. Most lines are long and
// differ in little: cmp would cut out of them what one wants to see.
func lineDiff(want, got string) string {
	var b strings.Builder
	only := func(mark, of, in string) {
		there := map[string]bool{}
		for line := range strings.SplitSeq(in, "\n") {
			there[line] = true
		}
		for line := range strings.SplitSeq(of, "\n") {
			if !there[line] {
				b.WriteString(mark + line + "\n")
			}
		}
	}
	only("-", want, got)
	only("+", got, want)
	return b.String()
}
