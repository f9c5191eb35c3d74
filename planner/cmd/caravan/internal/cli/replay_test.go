package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/recording"
)

const replaySnapshot = `{
  "now": "2031-05-17T12:00:00Z",
  "nodes": [{"id": "secret-id", "name": "secret-host", "gpus": [{"uuid": "GPU-secret-0", "type": "gpu"}, {"uuid": "GPU-secret-1", "type": "gpu"}]}],
  "jobs": [
    {"id": "secret-long", "type": "batch", "state": "queued", "submitted": "2031-05-17T11:00:00Z", "duration_ns": 7200000000000,
     "groups": [{"name": "g", "count": 1, "devices": [{"name": "gpu", "count": 2}]}]},
    {"id": "secret-short", "type": "batch", "state": "queued", "submitted": "2031-05-17T11:30:00Z", "duration_ns": 60000000000,
     "groups": [{"name": "g", "count": 1, "devices": [{"name": "gpu", "count": 2}]}]}
  ]
}`

// recorded is what a planner with first come, first served made of it.
func recorded(t *testing.T) *recording.Recording {
	t.Helper()
	r, bare, err := recording.Decode([]byte(replaySnapshot))
	if err != nil || !bare {
		t.Fatalf("decode: bare %v, %v", bare, err)
	}
	r.Policy, r.Planner = core.Policy{Order: "fifo"}, "1"
	if r.Plan, err = core.Decide(r.Snapshot, r.Policy); err != nil {
		t.Fatalf("decide: %v", err)
	}
	return r
}

func TestReplay(t *testing.T) {
	encode := func(r *recording.Recording) string {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	other := recorded(t)
	other.Plan.Decisions[0].Action = model.ActionWait
	tests := map[string]struct {
		stdin    string
		args     []string
		wantCode int
		wantOut  []string
		wantErr  []string
	}{
		"the same":          {stdin: encode(recorded(t)), args: []string{"replay", "-"}, wantOut: []string{"secret-long", "admit", "The plan is the one that was recorded."}},
		"another result":    {stdin: encode(other), args: []string{"replay", "-"}, wantCode: 1, wantOut: []string{"1 difference from the plan recorded", "secret-long  action      wait      admit"}},
		"another order":     {stdin: encode(recorded(t)), args: []string{"replay", "--policy", "sjf", "-"}, wantOut: []string{"difference", "action", "wait"}},
		"a bare snapshot":   {stdin: replaySnapshot, args: []string{"replay", "-"}, wantOut: []string{"No plan is recorded"}},
		"JSON":              {stdin: encode(recorded(t)), args: []string{"replay", "--json", "-"}, wantOut: []string{`"compared": true`, `"differences": []`, `"order": "fifo"`}},
		"an unknown order":  {stdin: replaySnapshot, args: []string{"replay", "--policy", "best", "-"}, wantCode: 2, wantErr: []string{`order "best": want one of`}},
		"no recording":      {stdin: `{"recording":2}`, args: []string{"replay", "-"}, wantCode: 1, wantErr: []string{"recording 2: want 1"}},
		"a broken snapshot": {stdin: `{"nodes":[]}`, args: []string{"replay", "-"}, wantCode: 1, wantErr: []string{"now"}},
		"decisions only":    {stdin: replaySnapshot, args: []string{"decide", "--json", "-"}, wantOut: []string{"[\n  {\n    \"job\": "}},
		"the whole plan":    {stdin: replaySnapshot, args: []string{"decide", "--plan", "-"}, wantOut: []string{"{\n", "\"decisions\": [\n"}},
		"decide on it":      {stdin: encode(recorded(t)), args: []string{"decide", "-"}, wantCode: 1, wantErr: []string{"it is what caravan snapshot saved, with a policy and a plan; decide on it again with: caravan replay -"}},
		"no such file":      {args: []string{"replay", "/no/such"}, wantCode: 1, wantErr: []string{"/no/such"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := newFakePlanner(t).call(nil, test.stdin, test.args...)
			code, out, errOut := got.code, got.out, got.errOut
			if code != test.wantCode {
				t.Errorf("exit code %d: want %d; %s%s", code, test.wantCode, out, errOut)
			}
			for _, want := range test.wantOut {
				if !strings.Contains(out, want) {
					t.Errorf("output lacks %q:\n%s", want, out)
				}
			}
			for _, want := range test.wantErr {
				if !strings.Contains(errOut, want) {
					t.Errorf("error lacks %q:\n%s", want, errOut)
				}
			}
		})
	}
}

// What is saved without names can be replayed, and is for its owner's eyes.
func TestSaveScrubbed(t *testing.T) {
	f := newFakePlanner(t)
	f.answers["GET /caravan/v1/recording"] = recorded(t)
	path := filepath.Join(t.TempDir(), "report.json")
	if got := f.call(nil, "", "snapshot", "--scrub", "-o", path); got.code != CodeOK || !strings.Contains(got.errOut, "1 nodes, 2 jobs") {
		t.Fatalf("exit code %d: %s%s", got.code, got.out, got.errOut)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "secret") {
		t.Errorf("a name is left: %s", b)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: want 0600", info.Mode(), err)
	}
	got := f.call(nil, "", "replay", "--json", path)
	if got.code != CodeOK || !strings.Contains(got.out, `"reproduced": true`) || !strings.Contains(got.out, "job-1") {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.errOut)
	}
	if got := f.call(nil, "", "replay", path); !strings.HasSuffix(got.out, "\nThe plan recorded went with the names; before that, it was reproduced.\n") {
		t.Errorf("without --json: %s", got.out)
	}
	again := filepath.Join(t.TempDir(), "again.json")
	if got := f.call(nil, "", "replay", "-o", again, path); got.code != CodeOK {
		t.Errorf("write it again: exit code %d: %s%s", got.code, got.out, got.errOut)
	}
	if c, err := os.ReadFile(again); err != nil || string(c) != string(b) {
		t.Errorf("what was written again differs: %v", err)
	}
}
