// Package orphan ends a plugin whose autoscaler is gone. The autoscaler ends its
// plugins itself, but not when it is killed: each would stay, and the next
// autoscaler start others beside it.
package orphan

import (
	"os"
	"time"
)

// Watch looks at the parent every so often, and calls gone once when it is another
// than at the start. The death signal of Linux is not used: it follows the thread
// that started the process, which may end before its process does.
func Watch(every time.Duration, gone func()) {
	parent := os.Getppid()
	go func() {
		for os.Getppid() == parent {
			time.Sleep(every)
		}
		gone()
	}()
}

// End is what a plugin does then: it ends at once, as if it had been killed. An apply
// that is under way comes to its end without it.
func End() { os.Exit(0) }
