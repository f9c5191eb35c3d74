package gangapi

import (
	"errors"
	"fmt"
	"slices"

	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// What an answer may say at most: a start is near, and reasons are sentences.
const (
	maxStartInMS = 600_000
	maxReason    = 16 << 10
)

var joinStates = []JoinState{JoinWaiting, JoinStart, JoinAlone, JoinRefused}

func (a JoinAnswer) validate() error {
	var faults []error
	if !slices.Contains(joinStates, a.State) {
		faults = append(faults, fmt.Errorf("state = %.40q: one of %q", a.State, joinStates))
	}
	if a.State == JoinStart && a.Membership == nil {
		faults = append(faults, errors.New("membership: must be there with a start"))
	}
	if a.StartInMS < 0 || a.StartInMS > maxStartInMS {
		faults = append(faults, fmt.Errorf("start_in_ms = %d: from 0 to %d", a.StartInMS, maxStartInMS))
	}
	if a.Joined < 0 || a.Size < 0 || a.Joined > a.Size {
		faults = append(faults, fmt.Errorf("joined = %d, size = %d: not so many", a.Joined, a.Size))
	}
	return errors.Join(append(faults, reason(a.Reason), membership(a.Membership))...)
}

var orderKinds = []OrderKind{OrderRestart, OrderFail, OrderSuspend, OrderResume, OrderCheckpoint}

func (a ReportAnswer) validate() error {
	faults := []error{reason(a.Reason), membership(a.Membership)}
	if o := a.Order; o != nil {
		if !slices.Contains(orderKinds, o.Kind) {
			faults = append(faults, fmt.Errorf("order: kind = %.40q: one of %q", o.Kind, orderKinds))
		}
		if o.Sequence < 1 {
			faults = append(faults, fmt.Errorf("order: sequence = %d: at least 1", o.Sequence))
		}
		faults = append(faults, reason(o.Reason))
	}
	return errors.Join(faults...)
}

func reason(text string) error {
	if len(text) > maxReason {
		return fmt.Errorf("reason: %d bytes: at most %d", len(text), maxReason)
	}
	return nil
}

func membership(m *rendezvous.Membership) error {
	if m == nil {
		return nil
	}
	return rendezvous.Validate(*m)
}
