package budget

import (
	"fmt"
	"syscall"
	"time"
)

// cpuTime is what all threads of the process have used so far. Unlike the time on
// the wall it says nearly the same while other work runs.
func cpuTime() (time.Duration, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), nil
}
