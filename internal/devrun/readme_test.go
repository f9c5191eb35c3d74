package devrun

import (
	"os"
	"strings"
	"testing"
)

// README's table has every scenario.
func TestReadmeNamesScenarios(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| scenario | what happens |")
	table, _, _ = strings.Cut(table, "\n\n")
	named := map[string]bool{}
	for row := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 2 {
			continue
		}
		for name := range strings.SplitSeq(cells[1], ",") {
			named[strings.Trim(name, " `")] = true
		}
	}
	for _, name := range Scenarios() {
		if !named[name] {
			t.Errorf("scenario %s is not in README's table", name)
		}
	}
}
