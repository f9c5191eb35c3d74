package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// The reservations' form in the file; the doc of each key is in
// docs/reservations.md.
type fileReservation struct {
	Name   string    `hcl:"name,label"`
	Kind   *string   `hcl:"kind,optional"`
	Nodes  *[]string `hcl:"nodes,optional"`
	Level  *string   `hcl:"level,optional"`
	Domain *string   `hcl:"domain,optional"`
	From   *string   `hcl:"from,optional"`
	Until  *string   `hcl:"until,optional"`
	Lead   *string   `hcl:"lead,optional"`
	Evict  *bool     `hcl:"evict,optional"`
	Queue  *string   `hcl:"queue,optional"`
	GPUs   *int      `hcl:"gpus,optional"`
	Job    *string   `hcl:"job,optional"`
}

// DefaultLead is from how long before a maintenance jobs are kept off of which
// nobody knows how long they run.
const DefaultLead = 4 * time.Hour

// mergeReservations takes the reservations of one file.
func (l *loader) mergeReservations(c *Config, list []fileReservation) {
	for i := range list {
		f := &list[i]
		key, place := "reservation["+f.Name+"]", fmt.Sprintf("reservation[#%d]", i)
		r := model.Reservation{Name: f.Name}
		set(&r.Kind, f.Kind)
		set(&r.Nodes, f.Nodes)
		set(&r.Level, f.Level)
		set(&r.Domain, f.Domain)
		l.time(&r.From, f.From, key, place, ".from")
		l.time(&r.Until, f.Until, key, place, ".until")
		if r.Kind == model.ReserveMaintenance {
			r.Lead = DefaultLead
		}
		l.durationAt(&r.Lead, f.Lead, key+".lead", place+".lead")
		set(&r.Evict, f.Evict)
		set(&r.Queue, f.Queue)
		set(&r.GPUs, f.GPUs)
		if f.Job != nil {
			namespace, id, both := strings.Cut(*f.Job, "/")
			if !both {
				namespace, id = DefaultNamespace, *f.Job
			}
			r.For = model.JobName{Namespace: namespace, ID: id}
		}
		c.Reservations = append(c.Reservations, r)
	}
}

// time reads a point in time that stands at a place.
func (l *loader) time(dst *time.Time, src *string, key, place, field string) {
	if src == nil {
		return
	}
	t, err := time.Parse(time.RFC3339, *src)
	if err != nil {
		l.faultText(place+field, fmt.Sprintf(`%s%s is %q: want a time with its zone, like "2026-12-01T22:00:00Z" or "2026-12-01T22:00:00+01:00"`, key, field, *src))
		l.unread[place+field] = true
		return
	}
	*dst = t.UTC()
}

// reservationNames are the names in the file of what is called otherwise in a
// snapshot.
var reservationNames = strings.NewReplacer("lead_ns", "lead", "for", "job")

func (l *loader) checkReservations(c *Config) {
	for _, f := range model.CheckReservations(c.Reservations, c.LevelNames()) {
		r := &c.Reservations[f.Reservation]
		name, place := reservationNames.Replace(f.Field), fmt.Sprintf("reservation[#%d].", f.Reservation)
		text := f.Text
		kinds := []string{model.ReserveMaintenance, model.ReserveCapacity, model.ReserveStart}
		if f.Field == "kind" && !slices.Contains(kinds, r.Kind) {
			text = strconv.Quote(r.Kind) + ": " + suggest(r.Kind, kinds)
		}
		var others []string
		switch f.Field {
		case "level":
			others = []string{"levels"}
		case "nodes":
			others = []string{place + "level", place + "domain"}
		case "domain":
			others = []string{place + "level"}
		}
		// Two may have one name; the index tells them apart.
		field, _, _ := strings.Cut(name, "[")
		l.faultText(place+field, fmt.Sprintf("reservation[%s].%s: %s", r.Name, name, text), others...)
	}
}

// checkBeside finds names that the planner's own file has, too.
func (l *loader) checkBeside(list, own []model.Reservation) {
	for i := range list {
		if slices.ContainsFunc(own, func(r model.Reservation) bool { return r.Name == list[i].Name }) {
			l.faultText(fmt.Sprintf("reservation[#%d]", i), fmt.Sprintf("reservation[%s].name: %q: the planner's own file has a reservation of this name; want another", list[i].Name, list[i].Name))
		}
	}
}

// ParseReservations reads reservation blocks, any number of them. levels are the
// cluster's, and own the reservations of the planner's file, beside which they count.
func ParseReservations(src []byte, name string, levels []Level, own []model.Reservation) ([]model.Reservation, error) {
	d := part(src, name, "reservation", levels)
	d.own = own
	c, err := d.parse()
	return c.Reservations, err
}
