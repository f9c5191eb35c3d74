package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/recording"
	"github.com/caravan-sched/caravan/planner/observe"
)

// fakeBackend answers from what the test puts there. The token "none" has no
// rights, "team" those of namespace team alone, and "" every right.
type fakeBackend struct {
	view      *observe.View
	explain   map[string]Explain
	released  []ReleaseRequest
	failPlan  error
	set       map[Setting]*SettingText
	recording *recording.Recording
	speed     *Speed
	reports   []burstapi.Report
	// tail is the membership that is sent to those who start, failMember what
	// members are told in its place.
	tail       *barrier.Encoded
	failMember error
}

func (b *fakeBackend) Status() Status      { return Status{Version: "v", Nomad: Nomad{Error: "500"}} }
func (b *fakeBackend) View() *observe.View { return b.view }
func (b *fakeBackend) Reservations() []model.ReservationUse {
	return []model.ReservationUse{{Name: "m", Kind: model.ReserveMaintenance, State: "planned"}}
}
func (b *fakeBackend) Queues() []model.QueueUse { return []model.QueueUse{{Path: "org", Share: 0.5}} }

func (b *fakeBackend) Recording() *recording.Recording { return b.recording }

func (b *fakeBackend) Settings() Settings {
	return Settings{Policy: PolicySetting{Set: b.set[SettingPolicy]}, Queues: QueuesSetting{Set: b.set[SettingQueues]}}
}

func (b *fakeBackend) Set(_ context.Context, name Setting, text *SettingText) (Settings, error) {
	if b.set == nil {
		b.set = map[Setting]*SettingText{}
	}
	b.set[name] = nil
	if text != nil {
		b.set[name] = text
	}
	return b.Settings(), nil
}

func (b *fakeBackend) Burst() burstapi.Answer {
	return burstapi.Answer{Leader: true, Index: 7, Pools: []burstapi.Pool{{Name: "eu"}}}
}

func (b *fakeBackend) BurstReport(_ context.Context, r burstapi.Report) error {
	if r.Purchase == "none" {
		return &Error{Status: http.StatusNotFound, Message: "there is no purchase"}
	}
	b.reports = append(b.reports, r)
	return nil
}

func (b *fakeBackend) BurstForget(_ context.Context, f burstapi.Forget) (burstapi.Forgotten, error) {
	if f.Purchase == "none" {
		return burstapi.Forgotten{}, &Error{Status: http.StatusNotFound, Message: "there is no purchase"}
	}
	return burstapi.Forgotten{Purchase: f.Purchase, Pool: "eu"}, nil
}

func (b *fakeBackend) Divisions(gpus []string) ([]Division, error) {
	if len(gpus) == 0 {
		return nil, &Error{Status: http.StatusServiceUnavailable, Message: "another planner leads"}
	}
	return []Division{{GPU: gpus[0], Profiles: []string{"3g.40gb"}}}, nil
}
func (b *fakeBackend) Queue() []Job {
	return []Job{{Namespace: "team", ID: "a", Position: 1}, {Namespace: "other", ID: "b", Position: 2}}
}

func (b *fakeBackend) Explain(namespace, job string) (Explain, bool) {
	e, ok := b.explain[namespace+"/"+job]
	return e, ok
}

func (b *fakeBackend) Unblock(string, string) (*model.Unblock, error) {
	return &model.Unblock{Reason: "stopping x would make room"}, nil
}
func (b *fakeBackend) Speed(string, string) *Speed { return b.speed }

func (b *fakeBackend) WaitDecision(ctx context.Context, namespace, job, hash string) (Explain, error) {
	if hash == "decided" {
		return Explain{SpecHash: hash}, nil
	}
	<-ctx.Done()
	return Explain{}, ctx.Err()
}

func (b *fakeBackend) Doctor(context.Context) Doctor {
	return NewDoctor(time.Unix(1, 0), "v", []Check{{Name: "nomad", Status: CheckFail}})
}

func (b *fakeBackend) Plan(_ context.Context, job *api.Job) (PlanResult, error) {
	return PlanResult{Managed: true, Decision: model.Decision{Job: *job.ID}}, b.failPlan
}

func (b *fakeBackend) Release(_ context.Context, _ string, req ReleaseRequest) (ReleaseResult, error) {
	b.released = append(b.released, req)
	return ReleaseResult{Jobs: []Released{{Namespace: req.Namespace, Job: req.Job, Done: true}}}, nil
}

func (b *fakeBackend) Authorize(_ context.Context, token string, right Right, namespace string) error {
	if token == "" || token == "team" && right == RightReadJob && (namespace == "team" || namespace == "*") {
		return nil
	}
	return &Error{Status: http.StatusForbidden, Message: "no " + string(right)}
}

func testView() *observe.View {
	gpu := func(id string, island int) model.GPU {
		return model.GPU{UUID: id, Vendor: "nvidia", Type: "gpu", Model: "H100", Island: island}
	}
	fpga := model.GPU{UUID: "f", Vendor: "intel", Type: "fpga", Island: 9}
	return &observe.View{
		Devices: []string{"nvidia/gpu"},
		Managed: []observe.Managed{{Namespace: "team", ID: "a/b"}},
		Snapshot: &model.Snapshot{
			Levels: []string{"block", "rack"},
			Nodes: []model.Node{
				{ID: "aaaa-1", Name: "n10", Levels: map[string]string{"block": "b1", "rack": "r10"}, GPUs: []model.GPU{gpu("g0", 3), gpu("g1", 3), fpga}},
				{ID: "aaaa-2", Name: "n2", Levels: map[string]string{"block": "b1", "rack": "r2"}, GPUs: []model.GPU{gpu("g2", 0), {UUID: "g3", Vendor: "nvidia", Type: "gpu", Model: "H100", Island: 1, Unhealthy: "XID 79"}}},
				{ID: "bbbb-3", Name: "n3", GPUs: []model.GPU{gpu("g4", 0)}, Unschedulable: "draining"},
			},
			Allocs: []model.Alloc{{ID: "x", Namespace: "team", Job: "a", Node: "aaaa-1", GPUs: []string{"g1"}, Stopping: true}},
			Jobs:   []model.Job{{ID: "a", State: model.StateQueued}, {ID: "b", State: model.StateRunning}},
		},
	}
}

func serve(t *testing.T, b *fakeBackend, token string) *Client {
	t.Helper()
	s := httptest.NewServer(Handler(b))
	t.Cleanup(s.Close)
	c, err := NewClient(s.URL, token, s.Client())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTopologyTree(t *testing.T) {
	got, err := serve(t, &fakeBackend{view: testView()}, "").Topology(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n10 := Domain{Level: "node", Name: "n10", ID: "aaaa-1", Nodes: 1, GPUs: 2, FreeGPUs: 1, UsedGPUs: 1, Model: "H100"}
	n2 := Domain{Level: "node", Name: "n2", ID: "aaaa-2", Nodes: 1, GPUs: 2, FreeGPUs: 1, UnhealthyGPUs: 1, Model: "H100"}
	n3 := Domain{Level: "node", Name: "n3", ID: "bbbb-3", Nodes: 1, GPUs: 1, Unschedulable: "draining", Model: "H100"}
	want := Topology{Levels: []string{"block", "rack", "node"}, Root: Domain{
		Level: "cluster", Name: "cluster", Nodes: 3, GPUs: 5, FreeGPUs: 2, UsedGPUs: 1, UnhealthyGPUs: 1,
		Children: []Domain{
			{Level: "block", Name: "b1", Nodes: 2, GPUs: 4, FreeGPUs: 2, UsedGPUs: 1, UnhealthyGPUs: 1, Children: []Domain{
				{Level: "rack", Name: "r2", Nodes: 1, GPUs: 2, FreeGPUs: 1, UnhealthyGPUs: 1, Children: []Domain{n2}},
				{Level: "rack", Name: "r10", Nodes: 1, GPUs: 2, FreeGPUs: 1, UsedGPUs: 1, Children: []Domain{n10}},
			}},
			n3,
		}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("topology (-want +got):\n%s", diff)
	}
	wantCounts := Counts{Nodes: 3, GPUs: 5, FreeGPUs: 2, UsedGPUs: 1, UnhealthyGPUs: 1, Queued: 1, Running: 1}
	if diff := cmp.Diff(wantCounts, CountCluster(testView())); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestNodeTopology(t *testing.T) {
	c := serve(t, &fakeBackend{view: testView()}, "")
	for name, wantErr := range map[string]string{
		"n10": "", "aaaa-1": "", "bbbb": "", "aaaa": "names 2 nodes", "n": "there is no node", "zz": "there is no node",
	} {
		if _, err := c.NodeTopology(t.Context(), name); (err != nil) != (wantErr != "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("node %s: error = %v, want %q in it", name, err, wantErr)
		}
	}
	got, err := c.NodeTopology(t.Context(), "n10")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]int{{0, 1}, {2}}, got.Islands); diff != "" {
		t.Errorf("islands (-want +got):\n%s", diff)
	}
	if g := got.GPUs[1]; g.Job != "a" || g.Alloc != "x" || !g.Stopping {
		t.Errorf("GPU 1 = %+v, want it held by a and stopping", g)
	}
}

func TestTokens(t *testing.T) {
	b := &fakeBackend{view: testView(), explain: map[string]Explain{"team/a/b": {Job: Job{Namespace: "team", ID: "a/b"}}}}
	ask := map[string]func(*Client) error{
		"status":       func(c *Client) error { _, err := c.Status(t.Context()); return err },
		"queue":        func(c *Client) error { _, err := c.Queue(t.Context()); return err },
		"reservations": func(c *Client) error { _, err := c.Reservations(t.Context()); return err },
		"queues":       func(c *Client) error { _, err := c.Queues(t.Context()); return err },
		"jobs":         func(c *Client) error { _, err := c.Jobs(t.Context()); return err },
		"explain":      func(c *Client) error { _, err := c.Explain(t.Context(), "team", "a/b"); return err },
		"topology":     func(c *Client) error { _, err := c.Topology(t.Context()); return err },
		"doctor":       func(c *Client) error { _, err := c.Doctor(t.Context()); return err },
		"recording":    func(c *Client) error { _, err := c.Recording(t.Context()); return err },
		"snapshot":     func(c *Client) error { _, err := c.Snapshot(t.Context()); return err },
		"settings":     func(c *Client) error { _, err := c.Settings(t.Context()); return err },
		"set": func(c *Client) error {
			_, err := c.Set(t.Context(), SettingPolicy, []byte("policy {}"), "p.hcl")
			return err
		},
		"unset": func(c *Client) error { _, err := c.Unset(t.Context(), SettingQueues); return err },
		"plan": func(c *Client) error {
			_, err := c.Plan(t.Context(), map[string]string{"ID": "x", "Namespace": "team"})
			return err
		},
		"release one": func(c *Client) error {
			_, err := c.Release(t.Context(), ReleaseRequest{Namespace: "team", Job: "a"})
			return err
		},
		"release all": func(c *Client) error { _, err := c.Release(t.Context(), ReleaseRequest{All: true}); return err },
	}
	allowed := map[string]map[string]bool{
		"none": {"status": true},
		"team": {"status": true, "queue": true, "queues": true, "jobs": true, "explain": true, "plan": true, "release one": true},
	}
	for token, may := range allowed {
		c := serve(t, b, token)
		for name, do := range ask {
			var e *Error
			err := do(c)
			if may[name] && err != nil || !may[name] && (!errors.As(err, &e) || e.Status != http.StatusForbidden) {
				t.Errorf("token %s, %s: %v; allowed: %v", token, name, err, may[name])
			}
		}
	}
	if len(b.released) != 1 || b.released[0].Job != "a" {
		t.Errorf("released = %+v, want a alone", b.released)
	}
	queue, err := serve(t, b, "team").Queue(t.Context())
	if err != nil || len(queue) != 1 || queue[0].Namespace != "team" {
		t.Errorf("queue = %+v, %v; want what namespace team has", queue, err)
	}
}

func TestBadRequests(t *testing.T) {
	s := httptest.NewServer(Handler(&fakeBackend{view: testView()}))
	defer s.Close()
	empty := httptest.NewServer(Handler(&fakeBackend{}))
	defer empty.Close()
	tests := map[string]struct {
		url, method, path, body string
		want                    int
	}{
		"unknown path":         {s.URL, "GET", "/nothing", "", 404},
		"unknown job":          {s.URL, "GET", "/explain/default/x", "", 404},
		"unreadable wait":      {s.URL, "GET", "/explain/default/x?wait=long", "", 400},
		"plan of nothing":      {s.URL, "POST", "/plan", "{}", 400},
		"plan of garbage":      {s.URL, "POST", "/plan", "<", 400},
		"release of nothing":   {s.URL, "POST", "/release", "{}", 400},
		"release one and all":  {s.URL, "POST", "/release", `{"job":"a","all":true}`, 400},
		"no view yet":          {empty.URL, "GET", "/topology", "", 503},
		"method of a mutation": {s.URL, "GET", "/release", "", 404},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), test.method, test.url+Prefix+test.path, strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != test.want || !strings.HasPrefix(string(body), `{"error":"`) {
				t.Errorf("%d %s, want %d and an error", resp.StatusCode, body, test.want)
			}
		})
	}
}

func TestExplainWaits(t *testing.T) {
	b := &fakeBackend{view: testView(), explain: map[string]Explain{"default/j": {SpecHash: "now"}}, speed: &Speed{Text: "2 steps/s"}}
	c := serve(t, b, "")
	if e, err := c.Explain(t.Context(), "default", "j"); err != nil || e.Speed == nil || e.Speed.Text != "2 steps/s" {
		t.Errorf("explained: %+v, %v; want its speed", e, err)
	}
	for hash, want := range map[string]string{"decided": "decided", "never": "now"} {
		e, err := c.WaitDecision(t.Context(), "default", "j", hash, 10*time.Millisecond)
		if err != nil || e.SpecHash != want {
			t.Errorf("waiting for %s: %+v, %v; want %s", hash, e, err, want)
		}
	}
}

func TestClientSaysWhatIsWrong(t *testing.T) {
	for _, address := range []string{"127.0.0.1:1", "ftp://x", "http://"} {
		if _, err := NewClient(address, "", nil); err == nil {
			t.Errorf("address %q is accepted", address)
		}
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	c, err := NewClient(other.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Status(t.Context())
	if !errors.Is(err, ErrNotPlanner) || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "Caravan planner") {
		t.Errorf("error = %v, want that the address may be wrong", err)
	}
}

func TestSettings(t *testing.T) {
	b := &fakeBackend{}
	c := serve(t, b, "")
	if got, err := c.Set(t.Context(), SettingQueues, []byte("queue \"a\" {}\n"), "q.hcl"); err != nil || got.Queues.Set.HCL != "queue \"a\" {}\n" || got.Queues.Set.File != "q.hcl" || got.Policy.Set != nil {
		t.Errorf("set = %+v, %v", got, err)
	}
	if _, err := c.Set(t.Context(), SettingQueues, nil, "a\nb"); err == nil || !strings.Contains(err.Error(), "want the name of a file") {
		t.Errorf("a name in two lines: %v", err)
	}
	if got, err := c.Settings(t.Context()); err != nil || got.Queues.Set == nil {
		t.Errorf("settings = %+v, %v", got, err)
	}
	if got, err := c.Unset(t.Context(), SettingQueues); err != nil || got.Queues.Set != nil {
		t.Errorf("unset = %+v, %v", got, err)
	}
	var e *Error
	if _, err := c.Set(t.Context(), SettingPolicy, make([]byte, maxSetting+1), ""); !errors.As(err, &e) || e.Status != http.StatusRequestEntityTooLarge || b.set[SettingPolicy] != nil {
		t.Errorf("a text that is too large: %v", err)
	}
}
