// Package render turns the planner's answers into text for people. It only
// writes; what is shown is decided by the answers.
package render

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Style is how text is written.
type Style struct {
	// Color turns on ANSI colours.
	Color bool
	// Now is the time that ages are counted from.
	Now time.Time
	// Long shows whole UUIDs instead of their first eight digits.
	Long bool
	// Nodes are names by ID, as far as they are known.
	Nodes map[string]string
}

const (
	red    = "31"
	green  = "32"
	yellow = "33"
	bold   = "1"
	faint  = "2"
)

func (s Style) paint(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// state is a job's or member's state in its colour.
func (s Style) state(state string) string {
	switch state {
	case string(model.StateRunning), "placed", "complete", "ended":
		return s.paint(green, state)
	case string(model.StateQueued), string(model.StateAdmitted), string(model.StateStopping), "none":
		return s.paint(yellow, state)
	case "lost", "dead", "misplaced", "failed":
		return s.paint(red, state)
	default:
		return state
	}
}

// node is a node's name, or else the part of its ID that Nomad's own commands
// show.
func (s Style) node(id string) string {
	if name := s.Nodes[id]; name != "" {
		return name
	}
	if len(id) == 36 && id[8] == '-' {
		return id[:8]
	}
	return id
}

// age is how long ago a time was, "" for the zero time.
func (s Style) age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(s.Now.Sub(t))
}

// span is a duration in its two largest units.
func span(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	d = d.Round(time.Second)
	day := 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	default:
		return fmt.Sprintf("%ds", d/time.Second)
	}
}

// clock is a point in time.
func clock(t time.Time) string {
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// gpu is a UUID as it is shown in lists.
func (s Style) gpu(uuid string) string {
	if s.Long {
		return uuid
	}
	head, digits, ok := strings.Cut(uuid, "-")
	if !ok || len(digits) <= 8 {
		return uuid
	}
	return head + "-" + digits[:8]
}

// grid is a table without lines.
type grid struct {
	w    table.Writer
	rows int
}

func newGrid(header ...string) *grid {
	g := &grid{w: table.NewWriter()}
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	g.w.SetStyle(style)
	if len(header) > 0 {
		g.w.AppendHeader(row(header))
	}
	return g
}

func (g *grid) add(cells ...string) {
	g.w.AppendRow(row(cells))
	g.rows++
}

func row(cells []string) table.Row {
	r := make(table.Row, len(cells))
	for i, c := range cells {
		r[i] = c
	}
	return r
}

// wrap breaks the lines of columns with sentences in them, by their numbers from 1.
func (g *grid) wrap(columns ...int) *grid {
	var configs []table.ColumnConfig
	for _, n := range columns {
		configs = append(configs, table.ColumnConfig{Number: n, WidthMax: sentenceWidth / len(columns), WidthMaxEnforcer: text.WrapSoft})
	}
	g.w.SetColumnConfigs(configs)
	return g
}

// sentenceWidth is how wide columns with sentences are at most, all together.
const sentenceWidth = 84

// write puts the table out, each line after an indent and without the padding
// at its end.
func (g *grid) write(w io.Writer, indent string) error {
	if g.rows == 0 {
		return nil
	}
	var buf bytes.Buffer
	for line := range strings.Lines(g.w.Render() + "\n") {
		buf.WriteString(strings.TrimRight(indent+strings.TrimRight(line, "\n"), " ") + "\n")
	}
	if _, err := w.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}
