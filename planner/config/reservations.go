package config

import (
	"errors"
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
		key := "reservation[" + f.Name + "]"
		r := model.Reservation{Name: f.Name}
		set(&r.Kind, f.Kind)
		set(&r.Nodes, f.Nodes)
		set(&r.Level, f.Level)
		set(&r.Domain, f.Domain)
		l.time(&r.From, f.From, key+".from")
		l.time(&r.Until, f.Until, key+".until")
		if r.Kind == model.ReserveMaintenance {
			r.Lead = DefaultLead
		}
		l.duration(&r.Lead, f.Lead, key+".lead")
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

// time reads a point in time.
func (l *loader) time(dst *time.Time, src *string, key string) {
	if src == nil {
		return
	}
	t, err := time.Parse(time.RFC3339, *src)
	if err != nil {
		l.fault(key, *src, `want a time with its zone, like "2026-12-01T22:00:00Z" or "2026-12-01T22:00:00+01:00"`)
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
		key := "reservation[" + r.Name + "]." + reservationNames.Replace(f.Field)
		text := f.Text
		kinds := []string{model.ReserveMaintenance, model.ReserveCapacity, model.ReserveStart}
		if f.Field == "kind" && !slices.Contains(kinds, r.Kind) {
			text = strconv.Quote(r.Kind) + ": " + suggest(r.Kind, kinds)
		}
		// Two may have one name; the index tells them apart.
		field, _, _ := strings.Cut(reservationNames.Replace(f.Field), "[")
		l.faultText(fmt.Sprintf("reservation[#%d].%s", f.Reservation, field), key+": "+text)
	}
}

// ParseReservations reads reservation blocks, any number of them. levels are the
// cluster's.
func ParseReservations(src []byte, name string, levels []Level) ([]model.Reservation, error) {
	if err := only(src, name, "reservation", 0); err != nil {
		return nil, err
	}
	none := func(string) (string, bool) { return "", false }
	c, err := parseFor(src, name, levels, none, func(string) ([]byte, error) { return nil, errors.New("no other file is read") })
	return c.Reservations, err
}
