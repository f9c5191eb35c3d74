package render

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestReservations(t *testing.T) {
	at := time.Date(2026, 12, 1, 22, 0, 0, 0, time.UTC)
	var out strings.Builder
	if err := Reservations(&out, []model.ReservationUse{
		{Name: "driver", Kind: model.ReserveMaintenance, State: "planned", From: at, Until: at.Add(time.Hour), Nodes: 3, Reason: "3 nodes will be empty by then"},
		{Name: "team-a", Kind: model.ReserveCapacity, State: "active", Nodes: 8, GPUs: 16, Used: 4, Reason: "queue a uses 4, 12 are free for it"},
		{Name: "launch", Kind: model.ReserveStart, State: "draining", Start: at, Reason: "waits"},
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"RESERVATION KIND STATE FROM UNTIL NODES GPUS START WHAT",
		"driver maintenance planned 2026-12-01 22:00Z 2026-12-01 23:00Z 3 - - 3 nodes will be empty by then",
		"team-a capacity active - - 8 4 of 16 used - queue a uses 4, 12 are free for it",
		"launch start draining - - 0 - 2026-12-01 22:00Z waits",
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	out.Reset()
	if err := Reservations(&out, nil); err != nil || out.String() != "Nothing is reserved.\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
