package supervisor

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/driver/container"
)

// TestReachable: a container sees the progress socket wherever it is.
func TestReachable(t *testing.T) {
	same := func(path string) container.Mount { return container.Mount{HostPath: path, TaskPath: path} }
	task := []container.Mount{same("/alloc/main/local"), {HostPath: "/tmp", TaskPath: "/data"}}
	tests := map[string]struct {
		socket string
		want   []container.Mount
	}{
		"none":                {"", task},
		"in the task's files": {"/alloc/main/local/caravan/progress.sock", task},
		"elsewhere":           {"/run/caravan-1/progress.sock", append(task[:2:2], same("/run/caravan-1"))},
		"mounted elsewhere":   {"/tmp/caravan-1/progress.sock", append(task[:2:2], same("/tmp/caravan-1"))},
		"beside":              {"/alloc/main/local2/progress.sock", append(task[:2:2], same("/alloc/main/local2"))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, reachable(task, test.socket)); diff != "" {
				t.Errorf("mounts (-want +got):\n%s", diff)
			}
		})
	}
}
