package render

import (
	"fmt"
	"io"

	"github.com/caravan-sched/caravan/planner/httpapi"
)

// Doctor writes each check in a line, and below those that are not in order
// what to do.
func Doctor(w io.Writer, s Style, d httpapi.Doctor) error {
	colors := map[httpapi.CheckStatus]string{httpapi.CheckOK: green, httpapi.CheckWarn: yellow, httpapi.CheckFail: red}
	counts := map[httpapi.CheckStatus]int{}
	for _, c := range d.Checks {
		counts[c.Status]++
		text := fmt.Sprintf("%s  %s: %s\n", s.paint(colors[c.Status], fmt.Sprintf("%-4s", c.Status)), c.Name, c.Detail)
		if c.Do != "" && c.Status != httpapi.CheckOK {
			text += "      → " + c.Do + "\n"
		}
		if _, err := io.WriteString(w, text); err != nil {
			return fmt.Errorf("write checks: %w", err)
		}
	}
	_, err := fmt.Fprintf(w, "\n%s: %d ok, %s, %d failed.\n", count(len(d.Checks), "check"), counts[httpapi.CheckOK], count(counts[httpapi.CheckWarn], "warning"), counts[httpapi.CheckFail])
	if err != nil {
		return fmt.Errorf("write checks: %w", err)
	}
	return nil
}
