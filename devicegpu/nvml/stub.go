//go:build !cgo

package nvml

import "github.com/hashicorp/go-hclog"

// openMock gives the simulated machine without go-nvml, which needs cgo. The
// inventory is the same.
func openMock(name string, m machine, seed string) (Source, error) {
	return &fixed{inventory: m.inventory(name, seed)}, nil
}

// openNVML stands in for NVML, which needs cgo.
func openNVML(log hclog.Logger) Source { return &absent{log: log} }

// absent is the source "nvml" of a binary that was built without cgo.
type absent struct{ log hclog.Logger }

func (a *absent) Inventory() (Inventory, error) {
	return Inventory{Problems: []string{"this binary was built without cgo and cannot load NVML: build it with CGO_ENABLED=1, or choose another source"}}, nil
}

func (a *absent) Samples() ([]Sample, error) { return nil, nil }

func (a *absent) Simulated() bool { return false }

func (a *absent) Close() error { return nil }
