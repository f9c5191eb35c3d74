package render

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// Reservations writes how the reservations stand.
func Reservations(w io.Writer, uses []model.ReservationUse) error {
	if len(uses) == 0 {
		_, err := fmt.Fprintln(w, "Nothing is reserved.")
		return err
	}
	g := newGrid("RESERVATION", "KIND", "STATE", "FROM", "UNTIL", "NODES", "GPUS", "START", "WHAT")
	for i := range uses {
		u := &uses[i]
		gpus := "-"
		if u.Kind == model.ReserveCapacity {
			gpus = fmt.Sprintf("%d of %d used", u.Used, u.GPUs)
		}
		g.add(u.Name, u.Kind, u.State, moment(u.From), moment(u.Until), strconv.Itoa(u.Nodes), gpus, moment(u.Start), u.Reason)
	}
	return g.write(w, "")
}

// moment is a point in time, to the minute.
func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04Z")
}

// ReservationsSet writes which reservations count now.
func ReservationsSet(w io.Writer, s Style, set httpapi.ReservationsSetting) error {
	names := make([]string, len(set.Reservations))
	for i := range set.Reservations {
		names[i] = set.Reservations[i].Name
	}
	g := newGrid()
	g.add("Reservations", count(len(names), "reservation")+label(": ", strings.Join(names, ", ")))
	from := "the planner's file"
	if set.Set != nil {
		from += fmt.Sprintf(", and some set %s ago; caravan reservations reset takes these away", s.age(set.Set.At))
	}
	g.add("From", from)
	return g.write(w, "")
}
