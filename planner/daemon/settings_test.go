package daemon

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/record"
)

// settingDaemon is a leader whose file says sjf and names one queue.
func settingDaemon(t *testing.T, store *fakeUsage) *Daemon {
	t.Helper()
	d, _ := testDaemon(t)
	d.leader.set(context.Background(), "", nil)
	d.settings.store = store
	cfg := config.Default()
	cfg.Policy.Order, cfg.Queues = "sjf", []model.Queue{{Path: "file"}}
	d.Reload(cfg)
	return d
}

// hcl is a text that is set.
func hcl(text string) *httpapi.SettingText { return &httpapi.SettingText{HCL: text, File: "p.hcl"} }

func inForce(d *Daemon) string {
	policy, _, queues := d.queues.settings()
	out := []string{policy.Order}
	for i := range queues {
		out = append(out, queues[i].Path)
	}
	return strings.Join(out, " ")
}

const fair, teams = "policy {\n  order = \"fairshare\"\n}\n", "queue \"a\" {}\nqueue \"b\" {}\n"

// What is set counts at once, in place of the file, whoever leads, until it is
// given back.
func TestSetInPlaceOfTheFile(t *testing.T) {
	store := &fakeUsage{}
	d := settingDaemon(t, store)
	steps := []struct {
		name string
		part httpapi.Setting
		text *httpapi.SettingText
		want string
	}{
		{"a policy", httpapi.SettingPolicy, hcl(fair), "fairshare file"},
		{"queues too", httpapi.SettingQueues, hcl(teams), "fairshare a b"},
		{"no queues at all", httpapi.SettingQueues, hcl(""), "fairshare"},
		{"queues again", httpapi.SettingQueues, hcl(teams), "fairshare a b"},
		{"the file's policy", httpapi.SettingPolicy, nil, "sjf a b"},
		{"a policy again", httpapi.SettingPolicy, hcl(fair), "fairshare a b"},
	}
	for _, step := range steps {
		if _, err := (backend{d}).Set(t.Context(), step.part, step.text); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := inForce(d); got != step.want {
			t.Errorf("%s: %q is in force, want %q", step.name, got, step.want)
		}
	}
	d.Reload(config.Default())
	if got := inForce(d); got != "fairshare a b" {
		t.Errorf("after the file has changed: %q is in force", got)
	}
	if got := (backend{d}).Settings(); got.Policy.Set == nil || got.Policy.Set.At.IsZero() || got.Queues.Set.HCL != teams {
		t.Errorf("settings = %+v", got)
	}
	next := settingDaemon(t, store)
	if err := next.loadSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := inForce(next); got != "fairshare a b" {
		t.Errorf("the next leader goes by %q", got)
	}
	if _, err := (backend{next}).Set(t.Context(), httpapi.SettingPolicy, nil); err != nil {
		t.Fatal(err)
	}
	// The first has it from the Variable once it leads again.
	d.settings.forget()
	if err := d.loadSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := inForce(d), config.DefaultOrder+" a b"; got != want {
		t.Errorf("back in the lead: %q is in force, want %q", got, want)
	}
}

func TestSetWithTrouble(t *testing.T) {
	tests := map[string]struct {
		change     func(*Daemon, *fakeUsage)
		text       string
		wantStatus int
		want       string
	}{
		"faults":              {text: "policy {\n  order = \"best\"\n  max_holds = -1\n}\n", wantStatus: http.StatusBadRequest, want: "p.hcl:2: policy.order is \"best\""},
		"a wrong type":        {text: "policy {\n  max_holds = \"x\"\n  half_life = true\n}\n", wantStatus: http.StatusBadRequest, want: "p.hcl:2: policy.max_holds is \"x\": want a whole number\np.hcl:3: policy.half_life is \"true\": want a duration"},
		"another part":        {text: teams, wantStatus: http.StatusBadRequest, want: "want policy blocks"},
		"Nomad is away":       {change: func(_ *Daemon, f *fakeUsage) { f.fail = errors.New("away") }, text: fair, wantStatus: http.StatusServiceUnavailable, want: "away"},
		"it observes only":    {change: func(d *Daemon, _ *fakeUsage) { d.cfg.ObserveOnly = true }, text: fair, wantStatus: http.StatusConflict, want: "observes only"},
		"it does not lead":    {change: func(d *Daemon, _ *fakeUsage) { d.leader.set(nil, "", nil) }, text: fair, wantStatus: http.StatusServiceUnavailable, want: "does not lead"},
		"another one has set": {change: func(d *Daemon, f *fakeUsage) { d.settings.loaded, f.index = true, 7 }, text: fair, wantStatus: http.StatusConflict, want: "nothing is changed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			store := &fakeUsage{}
			d := settingDaemon(t, store)
			if test.change != nil {
				test.change(d, store)
			}
			_, err := (backend{d}).Set(t.Context(), httpapi.SettingPolicy, hcl(test.text))
			var e *httpapi.Error
			if !errors.As(err, &e) || e.Status != test.wantStatus || !strings.Contains(e.Error(), test.want) {
				t.Errorf("error %v: want %d with %q", err, test.wantStatus, test.want)
			}
			if got := inForce(d); got != "sjf file" {
				t.Errorf("%q is in force: want the file", got)
			}
		})
	}
}

// What is stored and cannot be used is told, and the file counts; it can be set
// anew.
func TestSettingsThatAreDamaged(t *testing.T) {
	tests := map[string]struct {
		store     *fakeUsage
		wantFault string
	}{
		"damaged":            {store: &fakeUsage{index: 3, fail: record.ErrDamaged}},
		"no JSON":            {store: &fakeUsage{index: 3, doc: []byte("{")}},
		"of another Caravan": {store: &fakeUsage{index: 3, doc: []byte(`{"policy":{"hcl":"policy {\n  order = \"from the future\"\n}\n"}}`)}, wantFault: "from the future"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := settingDaemon(t, test.store)
			if err := d.loadSettings(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := (backend{d}).Settings()
			if inForce(d) != "sjf file" || (test.wantFault == "") != (got.Fault == "") || !strings.Contains(got.Fault, test.wantFault) {
				t.Errorf("%q is in force, fault %q", inForce(d), got.Fault)
			}
			test.store.fail = nil
			if _, err := (backend{d}).Set(t.Context(), httpapi.SettingPolicy, hcl(fair)); err != nil || inForce(d) != "fairshare file" {
				t.Errorf("set anew: %v, %q is in force", err, inForce(d))
			}
		})
	}
}

// Orders with parameters of their own are switched while the planner runs.
func TestSetOrderWithParameters(t *testing.T) {
	d := settingDaemon(t, &fakeUsage{})
	for _, step := range []struct {
		text string
		want func(*queue.Policy)
	}{
		{`order = "deadline"
			deadline { margin = "2m" }`, func(p *queue.Policy) { p.Order, p.Deadline.Margin = queue.OrderDeadline, 2*time.Minute }},
		{`order = "ftf"
			ftf { lease = "7m" }`, func(p *queue.Policy) { p.Order, p.FTF.Lease = queue.OrderFTF, 7*time.Minute }},
		{`order = "maxmin"
			maxmin { round = "8m" }`, func(p *queue.Policy) { p.Order, p.MaxMin.Round = queue.OrderMaxMin, 8*time.Minute }},
	} {
		text := "policy {\n" + step.text + "\n}\n"
		if _, err := (backend{d}).Set(t.Context(), httpapi.SettingPolicy, hcl(text)); err != nil {
			t.Fatal(err)
		}
		want := config.Default().Policy.Policy
		step.want(&want)
		if got := d.queues.order(); !reflect.DeepEqual(got, want) {
			t.Errorf("in force is %+v, want %+v", got, want)
		}
	}
}
