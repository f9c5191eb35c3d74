package federate_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

func (r *rig) managed(id string) *observe.Managed {
	r.t.Helper()
	m, ok := r.last.Job("default", id)
	if !ok {
		r.t.Fatalf("no job %s:%s", id, r.state())
	}
	return m
}

// A region that cannot be reached is left as it is: what runs there runs on, what
// is to happen there waits, and the other region's jobs are placed meanwhile.
func TestRegionAway(t *testing.T) {
	r := newRig(t)
	r.submit(gang("big", 2, ""))
	r.until("big runs in us", func() bool { return runsIn("us", 2)(r, "big") && r.managed("big").Model.State == model.StateRunning })
	// What is asked from another region does not get there.
	r.regions["us"].Fail(func(req *http.Request) (int, string) {
		if req.URL.Query().Get("region") == "us" {
			return http.StatusInternalServerError, "No path to region"
		}
		return 0, ""
	})
	r.submit(gang("small", 1, ""))
	r.until("small runs in eu", func() bool { return runsIn("eu", 1)(r, "small") })
	r.submit(gang("other", 2, ""))
	r.stop("eu", "big")
	for range 5 {
		r.cycle()
	}
	if n := r.members("us", "big"); n != 2 {
		t.Errorf("%d members of big run in us, want 2: nobody could see them", n)
	}
	state := r.last.State("us")
	if state == nil || !strings.Contains(state.Held, "region us cannot be seen") {
		t.Errorf("us is %+v, want it held", state)
	}
	big := r.managed("big")
	if big.Region != "us" || big.Model.State != model.StateRunning || !strings.Contains(big.Model.Hold, "cannot be seen") {
		t.Errorf("big is %s in %s, hold %q; want it running and held in us", big.Model.State, big.Region, big.Model.Hold)
	}
	other := r.managed("other")
	if other.Region != "eu" || len(other.Model.Regions) != 1 || other.Model.Regions[0] != "eu" {
		t.Errorf("other may go to %v from %s, want eu alone", other.Model.Regions, other.Region)
	}
	// A planner that has never seen us knows that big may run there.
	r.start(-1, false)
	r.cycle()
	if m := r.managed("big"); !r.last.Partial || m.Region != "eu" || !strings.Contains(m.Model.Hold, "was sent to region us, and may run there") {
		t.Errorf("partial %v, big in %s, hold %q; want it held in eu", r.last.Partial, m.Region, m.Model.Hold)
	}
	r.regions["us"].Fail(nil)
	r.until("big has ended and other runs in us", func() bool { return nothing(r, "big") && runsIn("us", 2)(r, "other") })
}

func nothing(r *rig, id string) bool { return r.members("us", id)+r.members("eu", id) == 0 }

// What is decided depends on no name: of two jobs that are called the same each is
// one of its own region.
func TestTwins(t *testing.T) {
	r := newRig(t)
	r.submit(gang("twin", 1, ""))
	if _, _, err := r.regions["us"].Client().Jobs().Register(gang("twin", 1, ""), nil); err != nil {
		t.Fatal(err)
	}
	r.until("both run", func() bool { return runsIn("eu", 1)(r, "twin") && runsIn("us", 1)(r, "twin") })
	if m := r.managed(observe.InRegion("twin", "us")); m.Region != "us" || m.JobID() != "twin" {
		t.Errorf("the second twin is %s in %s, want twin in us", m.JobID(), m.Region)
	}
	if m := r.managed("twin"); m.Region != "eu" {
		t.Errorf("the first twin is in %s, want eu", m.Region)
	}
	if err := r.last.Snapshot.Validate(); err != nil {
		t.Errorf("the snapshot: %v", err)
	}
	r.stop("us", "twin")
	r.until("one is left", func() bool { return r.remembered() == 1 && r.members("eu", "twin") == 1 })
}

// Where a job may go: as its file says, else as its user left it open; one of which
// the members are not one gang stays.
func TestWhereJobsMayGo(t *testing.T) {
	r := newRig(t)
	r.submit(gang("full", 1, "")) // eu has no room for others
	r.until("full runs", func() bool { return runsIn("eu", 1)(r, "full") })
	only := gang("only-eu", 1, "").SetMeta("caravan_regions", "eu")
	r.submit(only)
	many := gang("many", 1, "").SetMeta("caravan_gang", "group")
	second := *many.TaskGroups[0]
	second.Name = new("h")
	many.TaskGroups = append(many.TaskGroups, &second)
	r.submit(many)
	service := gang("service", 1, "")
	service.TaskGroups[0].Services = []*api.Service{{Name: "found-by-others", Provider: "nomad"}}
	r.submit(service)
	nowhere := gang("nowhere", 1, "").SetMeta("caravan_regions", "mars")
	r.submit(nowhere)
	r.submit(gang("free", 1, ""))
	r.until("free runs in us", func() bool { return runsIn("us", 1)(r, "free") })
	for id, want := range map[string]string{"only-eu": "eu", "many": "eu", "service": "eu", "nowhere": "eu"} {
		m := r.managed(id)
		if m.Region != want || m.Record.Route != nil || m.Model.State != model.StateQueued || len(m.Model.Regions) != 1 {
			t.Errorf("%s: %s in %s, may go to %v, route %+v; want it to wait in %s", id, m.Model.State, m.Region, m.Model.Regions, m.Record.Route, want)
		}
	}
	if hold := r.managed("nowhere").Model.Hold; !strings.Contains(hold, "region mars is none that the planner plans for") {
		t.Errorf("nowhere is held: %q", hold)
	}
}

// A job that was released where it was sent is that region's own from then on.
func TestReleasedWhereItRuns(t *testing.T) {
	r := newRig(t)
	running("us", 2)(r, "big")
	store := record.NewStore(r.regions["us"].Client(), "")
	rec, err := store.Get(t.Context(), "default", "big")
	if err != nil {
		t.Fatal(err)
	}
	rec.Phase, rec.Members = record.PhaseReleased, nil
	if err := store.Put(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	r.until("it is us's own", func() bool {
		rec, err := store.Get(t.Context(), "default", "big")
		return err == nil && rec.Home == "" && r.remembered() == 1
	})
	job, _, err := r.regions["eu"].Client().Jobs().Info("big", nil)
	if err != nil || !*job.Stop || r.members("us", "big") != 2 {
		t.Errorf("in eu %+v, %v, and %d members in us; want it stopped there, and 2", job, err, r.members("us", "big"))
	}
}

// A home that has lost its record learns from the other region that the job runs
// there; another job of that name is placed when that one has ended.
func TestHomeForgets(t *testing.T) {
	r := newRig(t)
	running("us", 2)(r, "big")
	forget := func() {
		store := record.NewStore(r.regions["eu"].Client(), "")
		rec, err := store.Get(t.Context(), "default", "big")
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Delete(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	forget()
	r.until("eu knows again", func() bool {
		rec, err := record.NewStore(r.regions["eu"].Client(), "").Get(t.Context(), "default", "big")
		return err == nil && rec.Route != nil && rec.Route.Region == "us"
	})
	for range 3 {
		r.cycle()
	}
	if n := r.members("us", "big"); n != 2 {
		t.Errorf("%d members run in us, want 2", n)
	}
	forget()
	r.submit(gang("big", 1, "1h"))
	r.until("the new one runs in eu alone", func() bool { return runsIn("eu", 1)(r, "big") && r.members("us", "big") == 0 })
}

// A job goes to where its data is, also where its home has room, and says why.
func TestDataAndPrice(t *testing.T) {
	r := newRig(t)
	r.known = []model.Region{
		{Name: "eu", Price: map[string]float64{"Test GPU": 2}},
		{Name: "us", Price: map[string]float64{"Test GPU": 3}, Data: []string{"laion"}},
	}
	r.start(-1, false)
	r.submit(gang("reads", 1, "").SetMeta("caravan_data", "laion"))
	r.submit(gang("cheap", 1, ""))
	r.until("both run", func() bool { return runsIn("us", 1)(r, "reads") && runsIn("eu", 1)(r, "cheap") })
	for id, want := range map[string]string{"reads": "in region us", "cheap": "in region eu: a GPU costs 2 an hour there"} {
		if why := r.managed(id).Record.Reason; !strings.Contains(why, want) {
			t.Errorf("%s: the reason is %q, want %q in it", id, why, want)
		}
	}
}
