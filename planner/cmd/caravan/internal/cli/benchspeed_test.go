package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var quoted = regexp.MustCompile(`'([^']*)'|(\S+)`)

// The commands in the document on speed can be run, and measure something.
func TestPerformanceDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "docs/performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for line := range strings.Lines(string(text)) {
		line, found := strings.CutPrefix(strings.TrimSpace(line), "$ caravan ")
		if !found {
			continue
		}
		commands++
		var args []string
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			args = append(args, m[1]+m[2])
		}
		got := newFakePlanner(t).call(nil, "", append(args, "--reps", "1", "--least", "0s")...)
		if got.code != 0 || strings.Count(got.out, " ms") < 3 {
			t.Errorf("caravan %s ended with %d:\n%s%s", line, got.code, got.out, got.errOut)
		}
	}
	if commands == 0 {
		t.Error("no commands found")
	}
}
