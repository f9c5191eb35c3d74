package render

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/barrier"
)

// maxEvents is how many events of a gang are shown.
const maxEvents = 5

// gangs shows the gangs of a job that wait at the barrier or run.
func gangs(w io.Writer, s Style, list []barrier.Status) error {
	for _, g := range list {
		if err := gang(w, s, g); err != nil {
			return err
		}
	}
	return nil
}

func gang(w io.Writer, s Style, st barrier.Status) error {
	title := "Gang"
	if st.Gang != "" {
		title += " " + st.Gang
	}
	text := st.Phase
	if !st.Started.IsZero() {
		since := st.Started
		if !st.Suspended.IsZero() {
			since = st.Suspended
		}
		text += fmt.Sprintf(" for %s, epoch %s", s.age(since), st.Epoch)
		if st.Generation > 1 {
			text += fmt.Sprintf(" (generation %d)", st.Generation)
		}
	}
	switch {
	case st.Phase == "waiting" && st.Reason != "":
		text = st.Reason
	case st.Reason != "":
		text += ": " + st.Reason
	}
	if work := st.Work(); st.Phase == "running" && work != "" {
		text += "; " + work
	}
	if _, err := fmt.Fprintf(w, "\n%s %s\n", s.paint(bold, title), text); err != nil {
		return err
	}
	g := newGrid("MEMBER", "NODE", "STATE", "STEP", "THROUGHPUT", "CHECKPOINT")
	told := false
	for _, m := range st.Members {
		if m.State == "" && m.Why == "" {
			continue
		}
		told = true
		g.add(fmt.Sprintf("%s[%d]", m.Group, m.Index), m.NodeName, cmp.Or(string(m.State), m.Why),
			number(m.Step, "%d"), number(m.Throughput, "%.4g/s"), checkpoint(m))
	}
	if told {
		if err := g.write(w, "  "); err != nil {
			return err
		}
	}
	for i, e := range st.Events {
		if i == maxEvents {
			break
		}
		if _, err := fmt.Fprintf(w, "  %s  %s\n", clock(e.At), e.Text); err != nil {
			return err
		}
	}
	return nil
}

func number[T any](n *T, format string) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf(format, *n)
}

// checkpoint is "2m ago, step 100".
func checkpoint(m barrier.MemberStatus) string {
	var parts []string
	if m.CheckpointAgeMS != nil {
		parts = append(parts, (time.Duration(*m.CheckpointAgeMS)*time.Millisecond).Round(time.Second).String()+" ago")
	}
	if m.CheckpointStep != nil {
		parts = append(parts, fmt.Sprintf("step %d", *m.CheckpointStep))
	}
	return strings.Join(parts, ", ")
}
