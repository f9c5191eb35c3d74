package exec

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNotRunning is returned for a workload or command that has ended.
	ErrNotRunning = errors.New("not running")
	// ErrUnsupported is returned where the host lacks what was asked for.
	ErrUnsupported = errors.New("not supported on this host")
	// ErrInUse is returned when the cgroup of a workload to be started is not
	// empty: what is in it has to be reaped first.
	ErrInUse = errors.New("in use")
	// ErrSurvivors is returned when processes could not be killed in time.
	ErrSurvivors = errors.New("processes are left")
)

// Fault is one thing that is wrong with a Spec.
type Fault struct {
	// Field is the Spec's field in its JSON form.
	Field string
	// Value is what it was.
	Value string
	// Why says what is wrong and what is allowed.
	Why string
}

func (f Fault) String() string {
	if f.Value == "" {
		return f.Field + ": " + f.Why
	}
	return fmt.Sprintf("%s: %q %s", f.Field, f.Value, f.Why)
}

// SpecError says everything that is wrong with a Spec.
type SpecError struct {
	Faults []Fault
}

func (e *SpecError) Error() string {
	texts := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		texts[i] = f.String()
	}
	return "cannot start workload: " + strings.Join(texts, "; ")
}
