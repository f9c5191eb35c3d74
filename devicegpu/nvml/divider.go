package nvml

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/mig"
)

// Divider is a Source that can divide GPUs.
type Divider interface {
	// Divide divides a GPU that nobody uses into MIG instances of these profiles,
	// made in this order, or makes it whole if there are none. If that fails the
	// GPU is as it was before, or the error says that it could not be made so.
	Divide(uuid string, profiles []string) error
}

// The errors of Divide.
var (
	// ErrInUse: a process uses the GPU.
	ErrInUse = errors.New("the GPU is in use")
	// ErrNoDivider: the source cannot divide GPUs.
	ErrNoDivider = errors.New("this GPU source cannot divide GPUs")
)

// Divide divides a GPU of a source.
func Divide(source Source, uuid string, profiles []string) error {
	d, ok := source.(Divider)
	if !ok {
		return ErrNoDivider
	}
	return d.Divide(uuid, profiles)
}

// Divide implements Divider.
func (g *guard) Divide(uuid string, profiles []string) error {
	_, err := within(&g.dividing, g.limit, func() (struct{}, error) { return struct{}{}, Divide(g.source, uuid, profiles) })
	return err
}

// Divide implements Divider, as a driver would: GPUs in use (a fault of the kind
// "busy") and divisions that the model does not know are refused, and so is
// everything with a fault of the kind "mig_refused".
func (s *simulation) Divide(uuid string, profiles []string) error {
	inv, err := s.Source.Inventory()
	if err != nil {
		return err
	}
	at, ok := inv.Matrix.Index(uuid)
	if !ok {
		return fmt.Errorf("divide GPU %s: there is no such GPU", uuid)
	}
	text, err := os.ReadFile(s.faults)
	if err != nil && s.faults != "" && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read simulated faults: %w", err)
	}
	faults, _ := parseFaults(string(text)) // Inventory tells of what cannot be read
	for _, f := range faults {
		switch {
		case f.gpu != at:
		case f.kind == "busy":
			return fmt.Errorf("divide GPU %s: %w: process 1 and 0 more (simulated)", uuid, ErrInUse)
		case f.kind == "mig_refused":
			return fmt.Errorf("divide GPU %s: create an instance: NVML error 999 (simulated)", uuid)
		}
	}
	geometry, known := mig.Of(inv.Matrix.GPUs[at].Model)
	if !known || !geometry.Fits(profiles) {
		return fmt.Errorf("divide GPU %s: a %s cannot be divided into %s", uuid, inv.Matrix.GPUs[at].Model, mig.Tell(profiles))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mig[at] = slices.Clone(profiles)
	return nil
}
