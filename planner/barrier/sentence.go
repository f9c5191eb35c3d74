package barrier

import (
	"fmt"
	"strings"
	"time"
)

// Summary says in a few words how the gang is: who is missing, or how far it
// has come.
func (st Status) Summary() string {
	switch st.Phase {
	case "waiting":
		return st.Reason
	case "running":
		return st.Work()
	}
	text := st.Phase
	if st.Reason != "" {
		text += ": " + st.Reason
	}
	return text
}

// Work is how far a gang that runs has come: the step that all have reached, the
// throughput that its first rank has told, and the age of the checkpoint that
// is the oldest of its members' last ones; "" if nobody has told anything.
func (st Status) Work() string {
	var step, age *int64
	var throughput *float64
	for i := range st.Members {
		m := &st.Members[i]
		if m.Step != nil && (step == nil || *m.Step < *step) {
			step = m.Step
		}
		if m.CheckpointAgeMS != nil && (age == nil || *m.CheckpointAgeMS > *age) {
			age = m.CheckpointAgeMS
		}
		if throughput == nil {
			throughput = m.Throughput
		}
	}
	var parts []string
	if step != nil {
		parts = append(parts, fmt.Sprintf("step %d", *step))
	}
	if throughput != nil {
		parts = append(parts, fmt.Sprintf("%.4g/s", *throughput))
	}
	switch {
	case age != nil:
		parts = append(parts, fmt.Sprintf("checkpoint %s ago", (time.Duration(*age)*time.Millisecond).Round(time.Second)))
	case len(parts) > 0:
		parts = append(parts, "no checkpoint yet")
	}
	return strings.Join(parts, ", ")
}

// Summaries joins those of a job's gangs.
func Summaries(gangs []Status) string {
	var parts []string
	for _, g := range gangs {
		text := g.Summary()
		if text == "" {
			continue
		}
		if g.Gang != "" && len(gangs) > 1 {
			text = g.Gang + ": " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}
