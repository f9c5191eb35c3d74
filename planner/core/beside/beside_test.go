package beside_test

import (
	"testing"

	"github.com/caravan-sched/caravan/planner/core/beside"
)

// Neither waits for the other to begin, and wait waits for what was begun.
func TestDoIsBesideItsCaller(t *testing.T) {
	begun, on := make(chan struct{}), make(chan struct{})
	sum := 0
	wait := beside.Do(func() {
		close(begun)
		<-on
		sum = 7
	})
	<-begun
	close(on)
	wait()
	if sum != 7 {
		t.Errorf("sum is %d after wait, want 7", sum)
	}
	wait() // again does no harm
}
