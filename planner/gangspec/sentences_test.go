package gangspec_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

func TestSentences(t *testing.T) {
	faults := &gangspec.Error{Faults: []gangspec.Fault{{Where: "job", Key: "a", Allowed: "no"}, {Where: "job", Key: "b", Allowed: "no"}}}
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"nothing":         {nil, nil},
		"faults":          {faults, []string{"job: a: no", "job: b: no"}},
		"joined":          {errors.Join(errors.New("x"), faults), []string{"x", "job: a: no", "job: b: no"}},
		"something else":  {fmt.Errorf("read: %w", errors.New("x")), []string{"read: x"}},
		"lines are parts": {errors.New("x\ny"), []string{"x", "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, gangspec.Sentences(test.err)); diff != "" {
				t.Errorf("sentences (-want +got):\n%s", diff)
			}
		})
	}
}

// The levels of a configuration are often the standard ones.
func TestFaultNamesEachLevelOnce(t *testing.T) {
	job := gpuJob("batch", group("g", 2, gpuTask("exec", "gpu", 1)))
	job.Meta = map[string]string{"caravan_topology": "require:row"}
	_, err := gangspec.Parse(job, "region", "zone", "block", "hall", "rack", "hall")
	if err == nil {
		t.Fatal("the level row is accepted")
	}
	for _, level := range []string{"region", "zone", "block", "rack", "node", "hall"} {
		if n := strings.Count(err.Error(), level); n != 1 {
			t.Errorf("%s is named %d times: %v", level, n, err)
		}
	}
}
