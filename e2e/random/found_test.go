package random

import (
	"strings"
	"testing"
)

// found are the shortest sequences that were found to end badly.
var found = map[string]struct {
	seed   uint64
	script []step
}{
	"a member of a gang is told to stop while its siblings take their time": {seed: 247, script: []step{
		{kind: "submit", job: "default/a", looks: 2, spec: shape{typ: "service", gang: "job", counts: []int{4}, gpus: 4}},
		{kind: "stop member", job: "default/a", node: 2, n: 3, flag: true, looks: 2},
	}},
	"the same file again while somebody registers another version past the gateway": {seed: 4, script: []step{
		{kind: "direct", job: "default/a", node: 1, n: 1, spec: shape{typ: "service", gang: "job", level: "require:rack", counts: []int{4, 2}, gpus: 4}},
		{kind: "purge", job: "default/a", node: 2, n: 4, flag: true, looks: 2},
		{kind: "direct", job: "default/d", node: 3, flag: true, spec: shape{typ: "batch", gang: "group", level: "prefer:node", counts: []int{1, 3}, gpus: 1, update: true}},
		{kind: "submit", job: "default/a", node: 1, n: 6, flag: true, spec: shape{typ: "service", gang: "job", counts: []int{2}, gpus: 1}},
		{kind: "interleave", job: "default/a", node: 2, n: 4, looks: 1, spec: shape{typ: "service", gang: "job", level: "prefer:node", counts: []int{2}, gpus: 2}},
		{kind: "resubmit", job: "default/a", node: 3, n: 6, flag: true, looks: 1},
	}},
	"a part that Nomad placed by itself, and room for the rest": {seed: 254, script: []step{
		{kind: "direct", job: "default/b", node: 2, n: 3, spec: shape{typ: "service", gang: "none", level: "prefer:node", counts: []int{2}, gpus: 2, update: true}},
		{kind: "interleave", job: "default/d", node: 1, looks: 2, spec: shape{typ: "batch", gang: "none", level: "prefer:node", counts: []int{4}, gpus: 4}},
		{kind: "submit", job: "default/b", node: 1, n: 1, looks: 1, spec: shape{typ: "service", gang: "none", level: "require:rack", counts: []int{2}, gpus: 2, update: true}},
	}},
	"a service that has come to nothing, and a garbage collection": {seed: 3, script: []step{
		{kind: "submit", job: "default/a", n: 5, flag: true, looks: 2, spec: shape{typ: "service", gang: "job", counts: []int{4}, gpus: 1}},
		{kind: "submit", job: "default/c", node: 1, looks: 2, spec: shape{typ: "batch", gang: "none", level: "prefer:node", counts: []int{3}, gpus: 4, update: true}},
		{kind: "unmanaged", job: "default/a", node: 1, n: 3, spec: shape{typ: "service", gang: "job", counts: []int{4, 4}, gpus: 2, update: true}},
		{kind: "rest", job: "default/d", n: 1, looks: 1},
		{kind: "rest", job: "default/b", node: 3, n: 2, flag: true},
		{kind: "collect", job: "default/d", node: 1, n: 1, flag: true, looks: 1},
	}},
	"Nomad answers a new version with garbage": {seed: 2, script: []step{
		{kind: "submit", job: "default/b", node: 3, n: 3, flag: true, looks: 2, spec: shape{typ: "service", gang: "none", counts: []int{3, 4}, gpus: 4}},
		{kind: "submit", job: "default/c", flag: true, looks: 2, spec: shape{typ: "batch", gang: "none", counts: []int{4, 4}, gpus: 1}},
		{kind: "fault", job: "default/c", node: 3, n: 2, looks: 1},
		{kind: "submit", job: "default/b", node: 3, looks: 1, spec: shape{typ: "service", gang: "job", level: "require:rack", counts: []int{3}, gpus: 2}},
	}},
	"a new version does not come through, nor is its record put back": {seed: 1, script: []step{
		{kind: "submit", job: "default/a", looks: 2, spec: shape{typ: "service", gang: "job", counts: []int{1, 1}, gpus: 2, update: true}},
		{kind: "pass", job: "default/a", looks: 2},
		{kind: "fault", job: "default/a", node: 1, n: 2, flag: true},
		{kind: "submit", job: "default/a", spec: shape{typ: "service", gang: "job", counts: []int{1}, gpus: 1}},
	}},
	"a client is back under a new ID, and tasks of the old one live on": {seed: 1, script: []step{
		{kind: "submit", job: "default/a", looks: 2, spec: shape{typ: "service", gang: "job", counts: []int{4}, gpus: 4}},
		{kind: "stop node", job: "default/a", node: 1, looks: 1},
		{kind: "pass long", job: "default/a", n: 1, looks: 1},
		{kind: "new ID", job: "default/a", node: 1, looks: 2},
		{kind: "pass long", job: "default/a", n: 3, looks: 2},
		{kind: "purge old ID", job: "default/a", node: 1, looks: 2},
	}},
	"a client is back under a new ID at once, and the old one is purged first": {seed: 2, script: []step{
		{kind: "submit", job: "default/a", looks: 2, spec: shape{typ: "service", gang: "job", counts: []int{2}, gpus: 2}},
		{kind: "submit", job: "default/c", looks: 2, spec: shape{typ: "batch", gang: "none", counts: []int{4}, gpus: 1}},
		{kind: "stop node", job: "default/a", node: 0},
		{kind: "new ID", job: "default/a", node: 0, looks: 2},
		{kind: "submit", job: "default/b", looks: 2, spec: shape{typ: "service", gang: "job", counts: []int{4}, gpus: 4}},
		{kind: "purge old ID", job: "default/a", node: 0, looks: 2},
	}},
	"the planner is away for an hour while a node is lost, another drained, and a member fails": {seed: 3, script: []step{
		{kind: "submit", job: "default/a", looks: 2, spec: shape{typ: "service", gang: "job", counts: []int{2}, gpus: 4, update: true}},
		{kind: "submit", job: "default/b", looks: 2, spec: shape{typ: "service", gang: "group", counts: []int{1, 1}, gpus: 2}},
		{kind: "submit", job: "default/c", looks: 2, spec: shape{typ: "batch", gang: "none", counts: []int{4}, gpus: 1}},
		{kind: "stop node", job: "default/a", node: 0},
		{kind: "drain", job: "default/a", node: 1},
		{kind: "fail member", job: "default/b"},
		{kind: "finish", job: "default/c"},
		{kind: "direct", job: "default/d", spec: shape{typ: "batch", gang: "job", counts: []int{2}, gpus: 4}},
		{kind: "away", job: "default/a", looks: 2},
		{kind: "start node", job: "default/a", node: 0, looks: 2},
	}},
	"the planner is away for an hour in the middle of an admission": {seed: 4, script: []step{
		{kind: "submit", job: "default/a", looks: 1, spec: shape{typ: "service", gang: "job", counts: []int{3}, gpus: 4}},
		{kind: "stop member", job: "default/a"},
		{kind: "away", job: "default/a", looks: 1},
		{kind: "change", job: "default/a", n: 1},
		{kind: "away", job: "default/a", looks: 2},
	}},
	"a stop in the middle of an admission": {seed: 63, script: []step{
		{kind: "submit", job: "default/c", flag: true, looks: 2, spec: shape{typ: "batch", gang: "group", level: "prefer:node", counts: []int{3}, gpus: 2}},
		{kind: "submit", job: "default/c", node: 1, n: 1, looks: 1, spec: shape{typ: "batch", gang: "none", level: "prefer:node", counts: []int{2}, gpus: 1, update: true}},
		{kind: "interleave", job: "default/c", node: 2, n: 5, flag: true, spec: shape{typ: "batch", gang: "job", level: "require:rack", counts: []int{3, 2}, gpus: 4, update: true}},
		{kind: "pass", job: "default/b", node: 1, n: 5, flag: true, looks: 1},
	}},
}

func TestFound(t *testing.T) {
	for name, f := range found {
		t.Run(name, func(t *testing.T) {
			w, err := play(f.seed, f.script)
			if err != nil {
				t.Fatalf("%v\n%s", err, strings.Join(w.trace, "\n"))
			}
		})
	}
}
