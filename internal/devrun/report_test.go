package devrun

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFinish(t *testing.T) {
	held, broken := Check{Name: "a", OK: true}, Check{Name: "b"}
	tests := map[string]struct {
		checks []Check
		err    error
		want   bool
	}{
		"all held":          {[]Check{held, held}, nil, true},
		"one did not":       {[]Check{held, broken, held}, nil, false},
		"it did not finish": {[]Check{held}, errors.New("boom"), false},
		"nothing checked":   {nil, nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := Report{Checks: tt.checks}
			r.finish(tt.err)
			if r.OK != tt.want {
				t.Errorf("OK = %v, want %v", r.OK, tt.want)
			}
		})
	}
}

func TestReportJSON(t *testing.T) {
	r := Report{Backend: "nomad", NomadVersion: "2.0.6", Scenario: "gang", Addresses: Addresses{Caravan: "http://c", Nomad: "http://n"}}
	r.finish(errors.New("no nodes"))
	var empty bytes.Buffer
	if err := r.writeJSON(&empty); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"ok": false`, `"gangs": []`, `"checks": []`, `"error": "no nodes"`} {
		if !strings.Contains(empty.String(), want) {
			t.Errorf("report %s\nlacks %s", &empty, want)
		}
	}
	r.Error = ""
	r.Gangs = []Gang{{Job: "j", QueuedMS: 7, Reason: "fits", Members: []Member{{Rank: 1, Node: "n", GPUs: []string{"g"}, Islands: [][]string{{"g"}}}}}}
	r.Checks = []Check{{Name: "c", OK: true, Detail: "d"}}
	r.finish(nil)
	var full bytes.Buffer
	if err := r.writeJSON(&full); err != nil {
		t.Fatal(err)
	}
	want := `{"ok":true,"backend":"nomad","nomad_version":"2.0.6","scenario":"gang",` +
		`"addresses":{"caravan":"http://c","nomad":"http://n"},` +
		`"gangs":[{"job":"j","members":[{"rank":1,"node":"n","gpus":["g"],"islands":[["g"]]}],"queued_ms":7,"reason":"fits"}],` +
		`"checks":[{"name":"c","ok":true,"detail":"d"}]}`
	if diff := cmp.Diff(want, compact(full.String())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// compact takes the blanks out of indented JSON whose texts have none.
func compact(s string) string { return strings.Join(strings.Fields(s), "") }

func TestShow(t *testing.T) {
	var out bytes.Buffer
	s := &shower{out: &out}
	nodes := map[string]string{"n0": "gpu-1"}
	at := func(seconds float64, x sighting) sighting {
		x.at = time.Duration(seconds * float64(time.Second))
		return x
	}
	a := alloc("0", "run/pending", "n0", "n0a0", "n0b0")
	running, stopping, done := a, a, a
	running.client, stopping.client, stopping.desired, done.client, done.desired = "running", "running", "stop", "complete", "stop"
	s.step(1500*time.Millisecond, "cluster", "ready")
	for _, x := range []sighting{
		at(2, sighting{job: &jobState{id: "j", modify: 1, gated: true}}),
		at(2.1, sighting{job: &jobState{id: "j", modify: 1, gated: true}}),
		at(2.5, sighting{job: &jobState{id: "j", version: 1, modify: 2, pinned: true}}),
		at(3, sighting{alloc: &a}), at(3.1, sighting{alloc: &a}), at(3.2, sighting{alloc: &running}),
		at(4, sighting{job: &jobState{id: "j", version: 1, modify: 2, pinned: true, stop: true}}),
		at(4, sighting{alloc: &stopping}), at(5, sighting{alloc: &done}),
	} {
		s.sighting(x, nodes, pairs())
	}
	s.report(&Report{
		Gangs:  []Gang{{Job: "j", Reason: "fits in rack r1", Members: []Member{{Node: "n0", GPUs: []string{"GPU-0123456789", "x"}, Islands: [][]string{{"GPU-0123456789"}, {"x"}}}}}},
		Checks: []Check{{Name: "whole", OK: true, Detail: "2 members"}, {Name: "as-planned", Detail: "no"}},
		Error:  "it took too long",
	}, nodes)
	want := `   1.50s  cluster      ready
   2.00s  j            gated    version 0
   2.50s  j            pinned   version 1
   3.00s  j            pending  g[0] on gpu-1, 2 GPUs of 2 islands
   3.20s  j            running  g[0] on gpu-1, 2 GPUs of 2 islands
   4.00s  j            stopped  version 1
   4.00s  j            stopping g[0] on gpu-1, 2 GPUs of 2 islands
   5.00s  j            complete g[0] on gpu-1, 2 GPUs of 2 islands

j: fits in rack r1
  rank 0  gpu-1    2 GPUs, by island 1+1: GPU-01234567 x

ok    whole       2 members
FAIL  as-planned  no
FAIL  it took too long
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
