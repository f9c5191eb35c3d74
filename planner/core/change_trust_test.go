package core

import (
	"testing"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// A change that is not valid is refused, but not from whom it is trusted.
func TestTrustedChangesAreNotChecked(t *testing.T) {
	s := draw(t, "b1 r1 n1 .")
	for _, trusted := range []bool{false, true} {
		p, err := Prepare(s, Policy{})
		if err != nil {
			t.Fatal(err)
		}
		if trusted {
			p.Trust()
		}
		if err := p.Apply(Change{PutJobs: []model.Job{{ID: "a", State: "odd"}}}); (err == nil) != trusted {
			t.Errorf("trusted %t: error %v", trusted, err)
		}
	}
}
