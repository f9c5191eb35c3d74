package daemon

import (
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// What is set counts beside what the file says, whoever leads, until it is taken
// away.
func TestReservationsBesideTheFile(t *testing.T) {
	store := &fakeUsage{}
	file := config.Default()
	file.Reservations = []model.Reservation{{Name: "file", Kind: model.ReserveStart, For: model.JobName{ID: "x"}}}
	names := func(d *Daemon) string {
		var out []string
		for _, r := range d.queues.reserved(d.now()) {
			out = append(out, r.Name)
		}
		return strings.Join(out, " ")
	}
	d := settingDaemon(t, store)
	d.Reload(file)
	start := func(name string) *httpapi.SettingText {
		return hcl("reservation \"" + name + "\" {\n  kind = \"start\"\n  job = \"big\"\n}\n")
	}
	steps := []struct {
		name, want string
		text       *httpapi.SettingText
		refused    string
	}{
		{"one", "file a", start("a"), ""},
		{"another in its place", "file b", start("b"), ""},
		{"one of the file's name", "file b", start("file"), `p.hcl:1: reservation[file].name: "file": the planner's own file has a reservation of this name; want another`},
		{"nonsense", "file b", hcl("reservation \"c\" {}"), "reservation[c].kind"},
		{"none", "file", nil, ""},
		{"one again", "file a", start("a"), ""},
	}
	for _, step := range steps {
		_, err := (backend{d}).Set(t.Context(), httpapi.SettingReservations, step.text)
		if (err != nil) != (step.refused != "") || err != nil && !strings.Contains(err.Error(), step.refused) {
			t.Errorf("%s: %v, want %q", step.name, err, step.refused)
		}
		if got := names(d); got != step.want {
			t.Errorf("%s: %q count, want %q", step.name, got, step.want)
		}
	}
	next := settingDaemon(t, store)
	if err := next.loadSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := names(next); got != "a" {
		t.Errorf("the next leader, with another file, goes by %q", got)
	}
	if got := (backend{d}).Settings().Reservations; got.Set == nil || len(got.Reservations) != 2 {
		t.Errorf("settings %+v", got)
	}
}
