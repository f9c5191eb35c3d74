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

// What is not worth it is done before the caller goes on.
func TestDoIfDoesLittleAtOnce(t *testing.T) {
	for _, worth := range []bool{false, true} {
		sum := 0
		wait := beside.DoIf(worth, func() { sum = 7 })
		if !worth && sum != 7 {
			t.Errorf("sum is %d before wait, want 7", sum)
		}
		wait()
		if sum != 7 {
			t.Errorf("worth %v: sum is %d after wait, want 7", worth, sum)
		}
	}
}
