package terraform

import (
	"errors"
	"fmt"
	"strings"
)

// Reason is why nodes could not be had, in the words of the planner's API.
type Reason string

// The reasons.
const (
	// ReasonCapacity: the cloud has none left of the kind.
	ReasonCapacity Reason = "capacity"
	// ReasonQuota: the account may have no more of them.
	ReasonQuota Reason = "quota"
	// ReasonTimeout: it took too long.
	ReasonTimeout Reason = "timeout"
	// ReasonRefused: it must not or may not be done.
	ReasonRefused Reason = "refused"
	// ReasonError is any other.
	ReasonError Reason = "error"
)

// What an Error is about; see Error.Kind.
var (
	// ErrConfig: the configuration cannot be used.
	ErrConfig = errors.New("configuration cannot be used")
	// ErrBusy: another process applies the directory.
	ErrBusy = errors.New("directory is being applied by another")
	// ErrUninitialised: terraform init has not been run.
	ErrUninitialised = errors.New("directory is not initialised")
	// ErrVariable: a variable is missing or has a wrong type.
	ErrVariable = errors.New("variable is missing or wrong")
	// ErrLocked: somebody else holds the state's lock, or left it behind.
	ErrLocked = errors.New("state is locked")
	// ErrPlanRefused: the plan would touch more than the chosen nodes.
	ErrPlanRefused = errors.New("plan refused")
	// ErrHung: Terraform or a provider did not come to an end and was killed.
	ErrHung = errors.New("took too long")
	// ErrState: the state cannot be read.
	ErrState = errors.New("state cannot be read")
	// ErrApply: an apply failed, so that some of it may have been done.
	ErrApply = errors.New("apply failed")
	// ErrPlan: the plan could not be made; nothing was done.
	ErrPlan = errors.New("plan failed")
)

// Error is what went wrong, without secrets.
type Error struct {
	Reason Reason
	// Kind is one of the Err values above.
	Kind error
	// Message says what happened, and what a person is to do about it.
	Message string
	// Resources are the addresses that it is about, if they are known.
	Resources []string
	// Cause is the error below, of which only Is and As tell: its text may hold
	// secrets.
	Cause error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Kind == nil || strings.HasPrefix(e.Message, e.Kind.Error()) {
		return e.Message
	}
	return fmt.Sprintf("%v: %s", e.Kind, e.Message)
}

// Unwrap gives errors.Is and errors.As the kind and the cause.
func (e *Error) Unwrap() []error {
	var all []error
	for _, err := range []error{e.Kind, e.Cause} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// ReasonOf is the reason that an error carries; any other is ReasonError.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok && e.Reason != "" {
		return e.Reason
	}
	return ReasonError
}
