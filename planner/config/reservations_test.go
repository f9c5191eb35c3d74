package config

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// The document's examples can be used as they stand.
func TestReservations(t *testing.T) {
	b, err := os.ReadFile("../../docs/reservations.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```hcl config\n(.*?)```").FindSubmatch(b)
	c, err := parse(m[1], "reservations.md", noEnv, noRead)
	if err != nil {
		t.Fatal(err)
	}
	want := []model.Reservation{
		{Name: "driver-update", Kind: model.ReserveMaintenance, Nodes: []string{"gpu-1*"}, Lead: DefaultLead,
			From: time.Date(2026, 12, 1, 22, 0, 0, 0, time.UTC), Until: time.Date(2026, 12, 2, 2, 0, 0, 0, time.UTC)},
		{Name: "interactive", Kind: model.ReserveCapacity, Queue: "org/notebooks", GPUs: 16, Level: "rack"},
		{Name: "launch", Kind: model.ReserveStart, For: model.JobName{Namespace: "research", ID: "pretrain"}},
	}
	if diff := cmp.Diff(want, c.Reservations); diff != "" {
		t.Errorf("reservations (-want +got):\n%s", diff)
	}
}

func TestReservationFaults(t *testing.T) {
	src := `reservation "m" {
  kind  = "maintenance"
  level = "rak"
  from  = "tomorrow"
  lead  = "-1h"
  gpus  = 3
}
reservation "m" {
  kind   = "capacity"
  queue  = "a//b"
  gpus   = 0
  domain = "r1"
  from   = "2026-12-02T22:00:00+02:00"
  until  = "2026-12-02T20:00:00Z"
}
reservation "s" {
  kind  = "start"
  nodes = [""]
}
reservation "x" { kind = "holiday" }
`
	_, err := ParseReservations([]byte(src), "r.hcl", Default().Levels, nil)
	if err == nil {
		t.Fatal("no fault is found")
	}
	for _, want := range []string{
		`r.hcl:3: reservation[m].level: "rak": is no level of this cluster`,
		`r.hcl:4: reservation[m].from is "tomorrow": want a time with its zone`,
		`r.hcl:1: reservation[m].until: want from and until`, `reservation[m].nodes: want nodes, or a level and a domain`,
		`r.hcl:5: reservation[m].lead: -1h0m0s: want 0s to `, `r.hcl:6: reservation[m].gpus: is of no use to a reservation of kind maintenance`,
		`reservation[m].name: "m": another reservation before it has this name`, `r.hcl:10: reservation[m].queue: "a//b": want the path of a queue`, `reservation[m].gpus: 0: want 1 to`,
		`reservation[m].domain: "r1": want its level too`, `reservation[m].until: 2026-12-02T20:00:00Z: want a time after from`,
		`reservation[s].nodes: is of no use to a reservation of kind start`, `reservation[s].nodes[0]: "": want a node's name`, `reservation[s].job: "": want the job`,
		`r.hcl:20: reservation[x].kind: "holiday": allowed are maintenance, capacity, start`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not said", want)
		}
	}
	if t.Failed() {
		t.Log(err)
	}
	if _, err := ParseReservations([]byte("policy {}"), "r.hcl", nil, nil); err == nil {
		t.Error("another block is taken")
	}
	if got, err := ParseReservations([]byte(`reservation "r" { 
  kind = "maintenance"
  level = "row"
  domain = "x"
  from = "2026-12-02T22:00:00Z"
  until = "2026-12-02T23:00:00Z"
}`), "r.hcl", []Level{{"row", "row"}}, nil); err != nil || len(got) != 1 {
		t.Errorf("a level of the cluster's own: %v, %v", got, err)
	}
}
