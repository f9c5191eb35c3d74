//go:build !cgo

package nvml

// openMock gives the simulated machine without go-nvml, which needs cgo. The
// inventory is the same.
func openMock(name string, m machine, seed string) (Source, error) {
	return &fixed{inventory: m.inventory(name, seed)}, nil
}

// openNVML stands in for NVML, which needs cgo.
func openNVML() Source { return absent{} }

// absent is the source "nvml" of a binary that was built without cgo.
type absent struct{ eventless }

func (absent) Inventory() (Inventory, error) {
	return Inventory{Problems: []string{"no GPUs: this binary was built without cgo and cannot load NVML: build it with CGO_ENABLED=1, or choose another source"}}, nil
}

func (absent) Samples() ([]Sample, error) { return nil, nil }

func (absent) Simulated() bool { return false }

func (absent) Close() error { return nil }
