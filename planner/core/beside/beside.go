// Package beside lets two pieces of work be done at the same time whose results
// do not depend on which of them comes first.
package beside

// Do does something beside what its caller does next, who is to call wait before
// he uses what has come of it. The two must not write what the other one reads or
// writes, so that the result is the same as if one came after the other.
func Do(work func()) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	return func() { <-done }
}

// DoIf is Do where it is worth it, and does the work at once otherwise.
func DoIf(worth bool, work func()) (wait func()) {
	if worth {
		return Do(work)
	}
	work()
	return func() {}
}
