package render

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Compactions writes what moves would do for gangs that wait, and why.
func Compactions(w io.Writer, s Style, list []model.Compaction) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "No gang waits for room that moves of others could make.")
		return err
	}
	g := newGrid("JOB", "GPUS", "WAIT", "SAVES", "LOSES", "MOVES")
	for i := range list {
		k := &list[i]
		loses, moves := "-", "none"
		if len(k.Moves) > 0 {
			loses = gpuTime(k.Cost.Total())
			var names []string
			for _, m := range k.Moves {
				names = append(names, fmt.Sprintf("%s to %s", Name(m.Namespace, m.Job), m.Moves))
			}
			if moves = strings.Join(names, ", "); !k.Done {
				moves = "not worth it: " + moves
			}
		}
		g.add(s.paint(bold, Name(k.For.Namespace, k.For.ID)), fmt.Sprint(k.GPUs), (time.Duration(k.WaitSeconds) * time.Second).String(), gpuTime(k.Benefit), loses, moves)
	}
	if err := g.write(w, ""); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	for i := range list {
		if _, err := fmt.Fprintf(w, "%s: %s\n", Name(list[i].For.Namespace, list[i].For.ID), list[i].Why); err != nil {
			return err
		}
	}
	return nil
}

// gpuTime is a number of GPU-seconds.
func gpuTime(seconds int64) string {
	switch {
	case seconds < 120:
		return count(int(seconds), "GPU-second")
	case seconds < 120*60:
		return count(int(seconds/60), "GPU-minute")
	default:
		return count(int(seconds/3600), "GPU-hour")
	}
}
