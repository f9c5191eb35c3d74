package queue

import (
	"errors"
	"fmt"
	"time"
)

// Elastic says when gangs get members beyond their counts. Its zero value lets
// those grow that ask for it by caravan_max.
type Elastic struct {
	// Disabled: no gang gets more members than its count.
	Disabled bool `json:"disabled,omitempty"`
	// MinInterval is how long a gang keeps a size before it grows; 0 means
	// DefaultMinInterval.
	MinInterval time.Duration `json:"min_interval_ns,omitempty"`
	// MaxPerHour is how many gangs may grow within an hour; 0 means
	// DefaultMaxGrowths.
	MaxPerHour int `json:"max_per_hour,omitempty"`
	// MinGain is by what part faster a gang must be expected to work for it to
	// grow; 0 means DefaultMinGain.
	MinGain float64 `json:"min_gain,omitempty"`
}

// The defaults of Elastic.
const (
	DefaultMinInterval = 10 * time.Minute
	DefaultMaxGrowths  = 120
	DefaultMinGain     = 0.05
)

// MaxMinGain is the largest MinGain: twice as fast. What is more lets hardly any gang
// grow.
const MaxMinGain = 1.0

// Validate reports every fault.
func (e Elastic) Validate() error {
	var faults []error
	if e.MinInterval < 0 {
		faults = append(faults, fmt.Errorf("%w: elastic min_interval %s: want 0 or more", ErrPolicy, e.MinInterval))
	}
	if e.MaxPerHour < 0 {
		faults = append(faults, fmt.Errorf("%w: elastic max_per_hour %d: want 0 or more", ErrPolicy, e.MaxPerHour))
	}
	if !(e.MinGain >= 0 && e.MinGain <= MaxMinGain) {
		faults = append(faults, fmt.Errorf("%w: elastic min_gain %v: want 0 to %g: %g is %g %% faster", ErrPolicy, e.MinGain, MaxMinGain, DefaultMinGain, 100*DefaultMinGain))
	}
	return errors.Join(faults...)
}

// WithDefaults is the policy with its zeros filled in.
func (e Elastic) WithDefaults() Elastic {
	if e.MinInterval == 0 {
		e.MinInterval = DefaultMinInterval
	}
	if e.MaxPerHour == 0 {
		e.MaxPerHour = DefaultMaxGrowths
	}
	if e.MinGain == 0 {
		e.MinGain = DefaultMinGain
	}
	return e
}
