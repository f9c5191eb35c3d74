package devicegpu

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
)

// divisible is a plugin with simulated GPUs that it may divide, and a clock.
func divisible(t *testing.T, more ...string) (*Plugin, *time.Time) {
	t.Helper()
	p := New(hclog.NewNullLogger())
	if err := configure(t, p, `
		source = "mock:dgxh100"
		mock_seed = "n1"
		nccl_topology = false
		mig = "auto"
		`+strings.Join(more, "\n")); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2031, 5, 17, 12, 0, 0, 0, time.UTC)
	p.now = func() time.Time { return now }
	p.scan()
	return p, &now
}

// toldDivisions is what the plugin says of its divisions, and how many devices it lists by
// group.
func toldDivisions(t *testing.T, p *Plugin) ([]topology.Division, map[string]int) {
	t.Helper()
	groups, err := p.groups()
	if err != nil {
		t.Fatal(err)
	}
	if err := device.Validate(groups); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	var out []topology.Division
	for _, g := range groups {
		for _, d := range g.Devices {
			if d.Healthy {
				count[g.Name]++
			}
		}
		list, err := topology.DecodeDivisions(texts(g.Attributes)[topology.AttrDivisions])
		if err != nil {
			t.Fatal(err)
		}
		if out != nil && cmp.Diff(out, list) != "" {
			t.Errorf("group %s tells otherwise than the others", g.Name)
		}
		out = list
	}
	return out, count
}

func TestDivide(t *testing.T) {
	p, now := divisible(t)
	gpu := p.known()[2]
	const model = "NVIDIA H100 80GB HBM3"
	halves := wanted{gpu, []string{"3g.40gb", "3g.40gb"}}
	if list, count := toldDivisions(t, p); len(list) > 0 || count[model] != 8 {
		t.Fatalf("at first: %v, %v", list, count)
	}
	// A task was given it just now.
	if _, err := p.Reserve(t.Context(), []string{gpu}); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(59 * time.Second)
	p.divideAs(halves)
	list, count := toldDivisions(t, p)
	if len(list) != 1 || list[0].Refused != "a task was given it 59s ago" || !list[0].At.Equal(*now) || !list[0].Again.Equal(now.Add(time.Second)) || count[model] != 8 {
		t.Errorf("too soon: %+v, %v", list, count)
	}
	*now = now.Add(time.Second)
	if !p.divideAs(halves) {
		t.Error("nothing was done")
	}
	list, count = toldDivisions(t, p)
	want := []topology.Division{{GPU: gpu, Profiles: halves.Profiles, At: *now}}
	if d := cmp.Diff(want, list); d != "" || count[model] != 7 || count[model+" MIG 3g.40gb"] != 2 {
		t.Errorf("divided: %v, (-want +got):\n%s", count, d)
	}
	if p.divideAs(wanted{gpu, []string{"3g.40gb", "3g.40gb"}}) {
		t.Error("it is divided again as it is")
	}
	if p.divideAs(wanted{"GPU-unknown", nil}) {
		t.Error("an unknown GPU is divided")
	}
	*now = now.Add(time.Hour)
	p.divideAs(wanted{gpu, nil})
	if list, count = toldDivisions(t, p); count[model] != 8 || list[0].Profiles != nil || list[0].Refused != "" {
		t.Errorf("whole again: %+v, %v", list, count)
	}
	p.divideAs(wanted{gpu, []string{"4g.40gb", "4g.40gb"}})
	if list, count = toldDivisions(t, p); !strings.Contains(list[0].Refused, "cannot be divided into 2 × 4g.40gb") || !list[0].Again.IsZero() || count[model] != 8 {
		t.Errorf("refused: %+v, %v", list, count)
	}
}

// TestRefusedForNow: a GPU that a process uses is to be tried again after a minute,
// and each time later while it still does; one of which the driver refuses a step is
// not to be tried again for any time that the plugin knows.
func TestRefusedForNow(t *testing.T) {
	faults := filepath.Join(t.TempDir(), "faults")
	p, now := divisible(t, "mock_faults = "+strconv.Quote(faults))
	gpu := p.known()[2]
	for _, step := range []struct {
		fault string
		want  time.Duration
	}{
		{"2 busy", time.Minute}, {"2 busy", 4 * time.Minute}, {"2 busy", 16 * time.Minute}, {"2 busy", 30 * time.Minute}, {"2 busy", 30 * time.Minute},
		{"2 mig_refused", 0}, {"2 busy", time.Minute}, {"", 0}, {"2 busy", time.Minute},
	} {
		if err := os.WriteFile(faults, []byte(step.fault+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		*now = now.Add(time.Hour + 300*time.Millisecond)
		profiles := []string{"3g.40gb", "3g.40gb"}
		if len(p.inventory.GPUs[2].Instances) > 0 {
			profiles = nil
		}
		p.divideAs(wanted{gpu, profiles})
		list, _ := toldDivisions(t, p)
		want := time.Time{}
		if step.want > 0 {
			want = wholeSecond(now.Add(step.want))
		}
		if len(list) != 1 || (list[0].Refused == "") != (step.fault == "") || !list[0].Again.Equal(want) {
			t.Errorf("fault %q: %+v, want again %s", step.fault, list, want)
		}
	}
}

// slowDivider divides when it is let.
type slowDivider struct {
	*fake
	begun, let chan struct{}
	err        error
}

func (s *slowDivider) Divide(string, []string) error {
	close(s.begun)
	<-s.let
	return s.err
}

// TestNobodyGetsWhatIsBeingDivided, and after a refusal it is to be had again.
func TestNobodyGetsWhatIsBeingDivided(t *testing.T) {
	s := &slowDivider{fake: &fake{inventory: pairs()}, begun: make(chan struct{}), let: make(chan struct{}), err: errors.New("the driver will not")}
	p := New(hclog.NewNullLogger(), WithSource(func(nvml.Spec) (nvml.Source, error) { return s, nil }))
	if err := configure(t, p, "mig = \"auto\"\nnccl_topology = false"); err != nil {
		t.Fatal(err)
	}
	p.scan()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.divideAs(wanted{"GPU-1", []string{"3g.20gb"}})
	}()
	<-s.begun
	if _, err := p.Reserve(t.Context(), []string{"GPU-0", "GPU-1"}); err == nil || !strings.Contains(err.Error(), `GPU "GPU-1" is being divided`) {
		t.Errorf("error %v", err)
	}
	if _, err := p.Reserve(t.Context(), []string{"GPU-0"}); err != nil {
		t.Errorf("its sibling: %v", err)
	}
	close(s.let)
	<-done
	if _, err := p.Reserve(t.Context(), []string{"GPU-1"}); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
	if d := p.divisions["GPU-1"]; d.Refused != "the driver will not" {
		t.Errorf("noted %+v", d)
	}
}

func TestAskPlanner(t *testing.T) {
	var asked []string
	serve := func(status int, body string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.URL.Query()["gpu"]
			if r.URL.Path != "/caravan/v1/divisions" {
				status = http.StatusNotFound
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s
	}
	text, err := json.Marshal([]wanted{{"GPU-1", []string{"3g.20gb"}}})
	if err != nil {
		t.Fatal(err)
	}
	standby, leader, broken := serve(503, "{}"), serve(200, string(text)), serve(200, "no JSON")
	list, err := planners{addresses: []string{standby.URL, leader.URL}}.ask(t.Context(), []string{"GPU-0", "GPU-1"})
	if err != nil || len(list) != 1 || list[0].GPU != "GPU-1" || !slices.Equal(asked, []string{"GPU-0", "GPU-1"}) {
		t.Errorf("%+v, %v; asked for %v", list, err, asked)
	}
	for want, c := range map[string]planners{
		"503 Service Unavailable":   {addresses: []string{standby.URL}},
		"read the planner's answer": {addresses: []string{broken.URL}},
		"ask the planner":           {addresses: []string{"http://127.0.0.1:1"}},
		"read planner_ca_file":      {addresses: []string{leader.URL}, caFile: "/no/such"},
		"read planner_cert_file":    {addresses: []string{leader.URL}, certFile: "/no/such", keyFile: "/no/such"},
	} {
		if _, err := c.ask(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
