package nvml

import (
	"crypto/sha256"
	"fmt"
)

// fixed is a simulated source whose inventory never changes. Its GPUs are
// idle: no figures are made up for them.
type fixed struct {
	eventless
	inventory Inventory
}

func (f *fixed) Inventory() (Inventory, error) { return f.inventory, nil }

func (f *fixed) Samples() ([]Sample, error) {
	samples := make([]Sample, len(f.inventory.GPUs))
	for i, g := range f.inventory.Matrix.GPUs {
		samples[i].UUID = g.UUID
	}
	return samples, nil
}

func (f *fixed) Simulated() bool { return true }

func (f *fixed) Close() error { return nil }

// stableUUID makes the UUID of a simulated GPU: a hash of the seed, the source
// and the GPU's index, in the form of a version 8 (custom) UUID.
func stableUUID(seed, source string, index int) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", seed, source, index))
	h[6] = h[6]&0x0f | 0x80
	h[8] = h[8]&0x3f | 0x80
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
