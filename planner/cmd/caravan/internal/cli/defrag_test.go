package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/recording"
)

// scattered is a cluster in which "big" waits for a node, and "a" could be moved
// beside "b".
const scattered = `{
  "now": "2031-05-17T12:00:00Z",
  "nodes": [
    {"id": "1", "name": "gpu-1", "gpus": [{"uuid": "A0", "type": "gpu"}, {"uuid": "A1", "type": "gpu"}]},
    {"id": "2", "name": "gpu-2", "gpus": [{"uuid": "B0", "type": "gpu"}, {"uuid": "B1", "type": "gpu"}]}
  ],
  "jobs": [
    {"id": "a", "type": "batch", "state": "running", "gang": "job", "submitted": "2031-05-17T11:00:00Z", "started": "2031-05-17T11:40:00Z",
     "groups": [{"name": "g", "count": 1, "devices": [{"name": "gpu", "count": 1}]}], "members": [{"group": "g", "index": 0, "rank": 0, "node": "1", "gpus": ["A0"]}]},
    {"id": "b", "type": "batch", "state": "running", "gang": "job", "move": "never", "submitted": "2031-05-17T11:00:00Z", "started": "2031-05-17T11:00:00Z",
     "groups": [{"name": "g", "count": 1, "devices": [{"name": "gpu", "count": 1}]}], "members": [{"group": "g", "index": 0, "rank": 0, "node": "2", "gpus": ["B0"]}]},
    {"id": "big", "type": "batch", "state": "queued", "gang": "job", "submitted": "2031-05-17T10:00:00Z",
     "groups": [{"name": "g", "count": 1, "devices": [{"name": "gpu", "count": 2}]}]}
  ]
}`

func TestDefrag(t *testing.T) {
	enabled, _, err := recording.Decode([]byte(scattered))
	if err != nil {
		t.Fatal(err)
	}
	enabled.Policy = core.Policy{Defrag: preempt.Defrag{Enabled: true}}
	tests := map[string]struct {
		args    []string
		change  func(*fakePlanner)
		stdin   string
		want    []string
		wantNot string
		// wantCode and wantErr are of a call that fails.
		wantCode int
		wantErr  string
	}{
		"what would be moved": {
			args: []string{"defrag", "--plan", "-"}, stdin: scattered,
			want: []string{"JOB  GPUS  WAIT    SAVES        LOSES           MOVES", "big  2     2h0m0s  4 GPU-hours  21 GPU-minutes  a to node gpu-2",
				"big: starts in island gpu-1/0 after 1 move: it would wait 2h0m0s longer", "Moving is not enabled", "defrag { enabled = true }"},
		},
		"of the planner": {
			args:   []string{"defrag", "--plan"},
			change: func(f *fakePlanner) { f.answers["GET /caravan/v1/recording"] = enabled },
			want:   []string{"a to node gpu-2", "the planner does this by itself"}, wantNot: "not enabled",
		},
		"without the flag": {
			args: []string{"defrag", "-"}, stdin: scattered, want: []string{"a to node gpu-2", "defrag { enabled = true }"},
		},
		"not worth it": {
			args: []string{"defrag", "--plan", "-"}, stdin: strings.Replace(scattered, `"submitted": "2031-05-17T10:00:00Z"`, `"submitted": "2031-05-17T11:55:00Z"`, 1),
			want: []string{"not worth it: a to node gpu-2", "big: is not worth it: it would wait 5m0s longer"}, wantNot: "enabled",
		},
		"nobody waits": {
			args: []string{"defrag", "--plan", "-"}, stdin: `{"now":"2031-05-17T12:00:00Z","nodes":[],"jobs":[]}`, want: []string{"No gang waits for room"}, wantNot: "enabled",
		},
		"as JSON": {
			args: []string{"defrag", "--plan", "--json", "-"}, stdin: scattered,
			want: []string{`"enabled": false`, `"min_benefit_ratio": 2`, `"benefit": 14400`, `"action": "move"`, `"done": true`, `"node": "2"`},
		},
		"no recording": {args: []string{"defrag", "-"}, stdin: `{}`, wantCode: 1, wantErr: "now"},
		"no right": {
			args: []string{"defrag"}, change: func(f *fakePlanner) { f.fail["GET /caravan/v1/recording"] = 403 },
			wantCode: 1, wantErr: "read what was decided on: it was made to fail",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFakePlanner(t)
			if test.change != nil {
				test.change(f)
			}
			got := f.call(nil, test.stdin, test.args...)
			if got.code != test.wantCode || !strings.Contains(got.errOut, test.wantErr) {
				t.Errorf("exit code %d, want %d; %s, want %q in it", got.code, test.wantCode, got.errOut, test.wantErr)
			}
			for _, want := range test.want {
				if !strings.Contains(got.out, want) {
					t.Errorf("output lacks %q:\n%s", want, got.out)
				}
			}
			if test.wantNot != "" && strings.Contains(got.out, test.wantNot) {
				t.Errorf("output has %q:\n%s", test.wantNot, got.out)
			}
			if strings.Contains(strings.Join(test.args, " "), "--json") && !json.Valid([]byte(got.out)) {
				t.Errorf("no JSON: %s", got.out)
			}
		})
	}
}
