package queue

import (
	"errors"
	"fmt"
	"time"
)

// Replace says how members whose nodes or GPUs fail are replaced.
type Replace struct {
	// KeepFor is for how long the places of a gang's other members are kept while
	// it has none for those that failed; 0 means DefaultKeepFor.
	KeepFor time.Duration `json:"keep_for_ns,omitempty"`
	// SparesPer is the level of whose domains each keeps Spares nodes idle, which
	// only replacements may use; "" is the whole cluster.
	SparesPer string `json:"spares_per,omitempty"`
	// Spares is how many nodes are kept, 0 for none.
	Spares int `json:"spares,omitempty"`
}

// DefaultKeepFor is Replace's.
const DefaultKeepFor = 10 * time.Minute

// Validate reports every fault.
func (r Replace) Validate() error {
	var faults []error
	if r.KeepFor < 0 {
		faults = append(faults, fmt.Errorf("%w: replace keep_for %s: want 0 or more", ErrPolicy, r.KeepFor))
	}
	if r.Spares < 0 {
		faults = append(faults, fmt.Errorf("%w: spares nodes %d: want 0 or more", ErrPolicy, r.Spares))
	}
	return errors.Join(faults...)
}

// WithDefaults is the policy with its zeros filled in.
func (r Replace) WithDefaults() Replace {
	if r.KeepFor == 0 {
		r.KeepFor = DefaultKeepFor
	}
	return r
}
