package daemon

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// Without a decision of its own a planner shows what is remembered, and the
// order in which it will decide.
func TestQueueBeforeTheFirstDecision(t *testing.T) {
	at := time.Unix(1000, 0)
	first, second, third := job("late"), job("early"), job("urgent")
	first.Model.Submitted, second.Model.Submitted, third.Model.Submitted = at.Add(time.Hour), at, at.Add(2*time.Hour)
	third.Model.Priority = 80
	second.Record.Reason = "its last placement did not hold"
	d, _ := testDaemon(t, first, second, third)
	d.leader.set(nil, "", nil)
	d.leader.follow(t.Context(), d.Address(), d.Address(), nil)
	if _, err := d.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, j := range (backend{d}).Queue() {
		if j.Position != i+1 {
			t.Errorf("%s has position %d, want %d", j.ID, j.Position, i+1)
		}
		got = append(got, j.ID+": "+j.Reason)
	}
	if len(got) != 3 || got[1] != "early: its last placement did not hold" ||
		!strings.HasPrefix(got[0], "urgent: not decided on yet; the planner waits for the lock") || !strings.HasPrefix(got[2], "late: ") {
		t.Errorf("queue = %q", got)
	}
	if st := (backend{d}).Status(); st.LeaderAddress != "" || !strings.HasPrefix(st.Waiting, "for the lock that the planner before it") {
		t.Errorf("leader %q, waits %q; want no leader and what it waits for", st.LeaderAddress, st.Waiting)
	}
}

// The canaries of an update wait beside a job that runs; it says for what.
func TestExplainOfWaitingCanaries(t *testing.T) {
	serve := job("serve")
	serve.Model.State, serve.Record.Reason = model.StateRunning, "an update begins"
	serve.Record.Rollout = &record.Rollout{}
	serve.Record.Rollout.Begin(map[string]int{"w": 1})
	d, _ := testDaemon(t, serve)
	d.decide = func(*model.Snapshot) (*model.Plan, error) {
		return &model.Plan{Decisions: []model.Decision{{Namespace: "default", Job: observe.CanaryID("serve"), Action: model.ActionWait, Reason: "needs 1 member with 8 GPUs"}}}, nil
	}
	if _, err := d.cycle(t.Context()); err != nil {
		t.Fatal(err)
	}
	e, ok := backend{d}.Explain("default", "serve")
	if want := "an update begins; the canaries wait: needs 1 member with 8 GPUs"; !ok || e.Reason != want {
		t.Errorf("reason %q, want %q", e.Reason, want)
	}
	if q := (backend{d}).Queue(); len(q) != 0 {
		t.Errorf("queue %+v", q)
	}
}

// A job of which a part waits is in the queue with its position and reason.
func TestQueueOfPartlyPlaced(t *testing.T) {
	running, whole, admitted := job("part"), job("whole"), job("just admitted")
	placed := observe.MemberState{State: observe.AllocPlaced}
	running.Model.State, running.Members = model.StateRunning, []observe.MemberState{placed}
	whole.Model.State, whole.Members = model.StateRunning, []observe.MemberState{placed, placed}
	d, _ := testDaemon(t, running, whole, admitted)
	d.decide = func(*model.Snapshot) (*model.Plan, error) {
		return &model.Plan{Decisions: []model.Decision{
			{Namespace: "default", Job: "just admitted", Action: model.ActionAdmit, Reason: "placed 1 of 2"},
			{Namespace: "default", Job: "part", Action: model.ActionWait, Reason: "no room for one more"},
		}}, nil
	}
	if _, err := d.cycle(t.Context()); err != nil {
		t.Fatal(err)
	}
	type row struct {
		ID, Reason       string
		Position, Placed int
	}
	var got []row
	for _, j := range (backend{d}).Queue() {
		got = append(got, row{j.ID, j.Reason, j.Position, j.Placed})
	}
	want := []row{{"part", "no room for one more", 1, 1}, {"just admitted", "placed 1 of 2", 0, 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("queue (-want +got):\n%s", diff)
	}
}

// The index shown is the one that the member's task sees.
func TestExplainShowsNomadsIndex(t *testing.T) {
	m := job("a")
	m.Members = []observe.MemberState{
		{Member: model.Member{Group: "g", Index: 0}, State: observe.AllocPlaced, Alloc: &api.AllocationListStub{Name: "a.g[1]", TaskGroup: "g"}},
		{Member: model.Member{Group: "g", Index: 1}, State: observe.AllocNone},
		{Member: model.Member{Group: "h", Index: 5}, State: observe.AllocPlaced, Alloc: &api.AllocationListStub{Name: "a.h-5[0]", TaskGroup: "h-5"}},
	}
	d, _ := testDaemon(t, m)
	if _, err := d.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	e, _ := backend{d}.Explain("default", "a")
	var got []int
	for _, p := range e.Placement {
		got = append(got, p.Index)
	}
	if diff := cmp.Diff([]int{1, 1, 5}, got); diff != "" {
		t.Errorf("indexes (-want +got):\n%s", diff)
	}
}

// While Nomad is away, what everybody could see before may still be seen; what
// took a token may not.
func TestAuthorizeWhileNomadIsAway(t *testing.T) {
	for name, test := range map[string]struct {
		aclsOff, seen bool
		nomadOK       bool
		wantStatus    int
	}{
		"ACLs are off":                          {aclsOff: true, seen: true},
		"ACLs are off, and it is not known yet": {aclsOff: true, seen: true, nomadOK: true},
		"ACLs are on":                           {seen: true, wantStatus: http.StatusServiceUnavailable},
		"never seen":                            {wantStatus: http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			away := httptest.NewServer(http.NotFoundHandler())
			away.Close()
			_, nobody, err := clients(config.Nomad{Address: away.URL}, new(nomadClock))
			if err != nil {
				t.Fatal(err)
			}
			d, f := testDaemon(t, job("a"))
			d.auth = authorizer{nobody}
			v := viewOf(job("a"))
			v.ACLsOff = test.aclsOff
			f.observer.set(v, nil)
			if test.seen {
				if _, err := d.refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if !test.nomadOK {
				d.nomad.set(errors.New("connection refused"), time.Unix(5, 0), time.Time{})
			} else {
				d.nomad.set(nil, time.Unix(5, 0), time.Time{})
			}
			s := httptest.NewServer(d.Handler())
			defer s.Close()
			c, err := httpapi.NewClient(s.URL, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Queue(t.Context())
			var e *httpapi.Error
			if status := 0; errors.As(err, &e) {
				status = e.Status
				if status != test.wantStatus {
					t.Errorf("queue: %v, want status %d", err, test.wantStatus)
				}
			} else if err != nil || test.wantStatus != 0 {
				t.Errorf("queue: %v, want status %d", err, test.wantStatus)
			}
			st, err := c.Status(t.Context())
			if err != nil || st.Nomad.OK != test.nomadOK || !st.Nomad.Since.Equal(time.Unix(5, 0)) || (st.Waiting == "") != test.seen {
				t.Errorf("status = %+v, %v; want Nomad's trouble, and what is waited for until the cluster is seen", st, err)
			}
		})
	}
}

// A gang that waited and is let go may start in part, and what runs of it is
// counted.
func TestReleasedJobsCountWhatRuns(t *testing.T) {
	m := job("a")
	m.Record.Phase, m.Model.State = record.PhaseReleased, model.StateRunning
	m.Members = []observe.MemberState{{State: observe.AllocPlaced}, {State: observe.AllocDead}}
	d, _ := testDaemon(t, m)
	if _, err := d.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait := model.Decision{Namespace: "default", Job: "a", Action: model.ActionWait, Reason: "needs 2 nodes"}
	d.decisions.record(d.view.Load(), &model.Plan{Decisions: []model.Decision{wait}}, nil)
	if e, _ := (backend{d}).Explain("default", "a"); !e.Released || e.Placed != 1 || e.Members != 2 || e.Action != "" || e.Position != 0 {
		t.Errorf("explain = %+v, action %q; want 1 of 2 placed and no decision", e.Job, e.Action)
	}
}

// What is being stopped still runs: Nomad would place others beside it.
func TestReleaseWaitsForWhatIsBeingStopped(t *testing.T) {
	for name, test := range map[string]struct {
		phase  record.Phase
		client string
		want   bool
	}{
		"still running":      {record.PhaseRollback, api.AllocClientStatusRunning, true},
		"of an old version":  {record.PhaseQueued, api.AllocClientStatusRunning, true},
		"has ended":          {record.PhaseRollback, api.AllocClientStatusComplete, false},
		"on a node cut off":  {record.PhaseRollback, api.AllocClientStatusUnknown, false},
		"a member that runs": {record.PhaseRunning, api.AllocClientStatusRunning, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := job("a")
			m.Record.Phase = test.phase
			m.Allocs = []*api.AllocationListStub{{DesiredStatus: api.AllocDesiredStatusStop, ClientStatus: test.client}}
			if got := stillStops(&m); got != test.want {
				t.Errorf("still stops: %v, want %v", got, test.want)
			}
			if !test.want {
				return
			}
			if _, err := (nomadCarrier{records: noRecords{}}).Release(t.Context(), "", &m); err == nil || !strings.Contains(err.Error(), "still being stopped") {
				t.Errorf("error %v", err)
			}
		})
	}
}

type noRecords struct{}

func (noRecords) Put(context.Context, *record.Record) error    { return nil }
func (noRecords) Delete(context.Context, *record.Record) error { return nil }

func TestReleaseSaysWhatItMeans(t *testing.T) {
	nomad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer nomad.Close()
	_, client, err := clients(config.Nomad{Address: nomad.URL}, new(nomadClock))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*model.Job)
		want   string
	}{
		"a gang that waits":  {func(*model.Job) {}, noteParts},
		"a gang that runs":   {func(j *model.Job) { j.State = model.StateRunning }, ""},
		"one member":         {func(j *model.Job) { j.Groups[0].Count = 1 }, ""},
		"no gang that waits": {func(j *model.Job) { j.Gang = model.GangNone }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := job("a")
			test.change(&m.Model)
			m.Current = api.NewBatchJob("a", "a", "global", 50).AddTaskGroup(api.NewTaskGroup("g", 2))
			m.Current.JobModifyIndex = new(uint64)
			m.Record.Original = m.Current
			note, err := nomadCarrier{records: noRecords{}, client: client}.Release(t.Context(), "", &m)
			if err != nil || note != test.want {
				t.Errorf("note = %q, %v; want %q", note, err, test.want)
			}
		})
	}
}

// Who only observes says what would become of jobs that run.
func TestExplainWhatWouldBe(t *testing.T) {
	d, _ := testDaemon(t, job("a"), job("b"))
	d.cfg.ObserveOnly = true
	if _, err := d.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	plan := &model.Plan{
		Preemptions: []model.Preemption{{Namespace: "default", Job: "a", Action: model.ActionPreempt, Members: make([]model.Member, 2), Reason: "gives way to x"}},
		Resizes:     []model.Resize{{Namespace: "default", Job: "b", Action: model.ActionGrow, From: 2, To: 4, Reason: "n1 is idle"}},
	}
	d.decisions.record(d.view.Load(), plan, nil)
	for id, want := range map[string]string{
		"a": "would give up 2 of its members if the planner did not only observe: gives way to x",
		"b": "would grow from 2 to 4 members if the planner did not only observe: n1 is idle",
	} {
		if e, _ := (backend{d}).Explain("default", id); !strings.HasSuffix(e.Reason, want) {
			t.Errorf("%s: %q, want %q", id, e.Reason, want)
		}
	}
	d.cfg.ObserveOnly = false
	if e, _ := (backend{d}).Explain("default", "b"); strings.Contains(e.Reason, "would") {
		t.Errorf("a planner that acts says %q", e.Reason)
	}
	d.cfg.ObserveOnly = true
	d.decisions.record(d.view.Load(), new(model.Plan), nil)
	if e, _ := (backend{d}).Explain("default", "b"); strings.Contains(e.Reason, "would") {
		t.Errorf("of the plan before it says %q", e.Reason)
	}
}

// What a job holds is counted by its members, whatever it asks for.
func TestExplainCountsWhatIsHeld(t *testing.T) {
	m := job("grown")
	m.Model.Groups[0].Count = 1
	for i := range 3 {
		state := observe.AllocPlaced
		if i == 2 {
			state = observe.AllocNone // on its way
		}
		m.Members = append(m.Members, observe.MemberState{Member: model.Member{Group: "g", Index: i, GPUs: []string{"a", "b", "c", "d"}}, State: state})
	}
	e := explainJob(&m, viewOf(m))
	if e.Members != 1 || e.Placed != 2 || e.GPUs != 4 || e.HeldGPUs != 8 {
		t.Errorf("%d of %d members, %d of %d GPUs; want 2 of 1, 8 of 4", e.Placed, e.Members, e.HeldGPUs, e.GPUs)
	}
}
