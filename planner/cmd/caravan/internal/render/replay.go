package render

import (
	"cmp"
	"fmt"
	"io"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/recording"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// Preemptions writes who gives way to whom.
func Preemptions(w io.Writer, s Style, list []model.Preemption) error {
	if len(list) == 0 {
		return nil
	}
	g := newGrid("JOB", "GIVES WAY TO", "HOW", "MEMBERS", "COST", "REASON").wrap(6)
	for i := range list {
		p := &list[i]
		g.add(s.paint(bold, Name(p.Namespace, p.Job)), Name(p.For.Namespace, p.For.ID), string(p.Action), fmt.Sprint(len(p.Members)), fmt.Sprintf("%d GPU-s", p.Cost.Total()), p.Reason)
	}
	if _, err := fmt.Fprintln(w, "\n"+s.paint(bold, "Gives way")); err != nil {
		return err
	}
	return g.write(w, "")
}

// Resizes writes which elastic gangs get another size.
func Resizes(w io.Writer, s Style, list []model.Resize) error {
	if len(list) == 0 {
		return nil
	}
	g := newGrid("JOB", "HOW", "FROM", "TO", "REASON").wrap(5)
	for i := range list {
		r := &list[i]
		g.add(s.paint(bold, Name(r.Namespace, r.Job)), string(r.Action), fmt.Sprint(r.From), fmt.Sprint(r.To), r.Reason)
	}
	if _, err := fmt.Fprintln(w, "\n"+s.paint(bold, "Other sizes")); err != nil {
		return err
	}
	return g.write(w, "")
}

// Differences writes where a plan differs from the one that was recorded; without one,
// what was found out about it before names were taken out, if they were.
func Differences(w io.Writer, s Style, list []recording.Difference, recorded bool, reproduced *bool) error {
	switch {
	case !recorded && reproduced != nil:
		was := "was"
		if !*reproduced {
			was = "was not"
		}
		_, err := fmt.Fprintf(w, "\nThe plan recorded went with the names; before that, it %s reproduced.\n", was)
		return err
	case !recorded:
		_, err := fmt.Fprintln(w, "\nNo plan is recorded to compare with.")
		return err
	case len(list) == 0:
		_, err := fmt.Fprintln(w, "\nThe plan is the one that was recorded.")
		return err
	}
	g := newGrid("JOB", "DIFFERS IN", "RECORDED", "NOW").wrap(3, 4)
	for _, d := range list {
		g.add(Name(d.Namespace, d.Job), d.What, cmp.Or(d.Then, "-"), cmp.Or(d.Now, "-"))
	}
	if _, err := fmt.Fprintf(w, "\n%s\n", s.paint(bold, count(len(list), "difference")+" from the plan recorded")); err != nil {
		return err
	}
	return g.write(w, "")
}

// effects writes what a job would change for others that wait.
func effects(w io.Writer, s Style, list []httpapi.Effect) error {
	if len(list) == 0 {
		return nil
	}
	g := newGrid("JOB", "NOW", "THEN", "REASON").wrap(4)
	for _, e := range list {
		g.add(s.paint(bold, Name(e.Namespace, e.Job)), string(e.Now), string(e.Then), e.Reason)
	}
	if _, err := fmt.Fprintln(w, "\n"+s.paint(bold, "Others that wait")); err != nil {
		return err
	}
	return g.write(w, "")
}
