package nvml

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// maxFileBytes bounds the files that are read.
const maxFileBytes = 4 << 20

// openFile reads a topology file or a recorded inventory. Its GPUs are
// simulated: their UUIDs come from the seed, not from the file, so that one
// file can serve for many nodes.
func openFile(name, seed string) (Source, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read GPU source: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read GPU source %s: %w", name, err)
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("read GPU source %s: longer than %d bytes", name, maxFileBytes)
	}
	inv, err := parseFile(data)
	if err != nil {
		return nil, fmt.Errorf("read GPU source %s: %w", name, err)
	}
	for i := range inv.Matrix.GPUs {
		inv.Matrix.GPUs[i].UUID = stableUUID(seed, filepath.Base(name), i)
		for k := range inv.GPUs[i].Instances {
			inst := &inv.GPUs[i].Instances[k]
			inst.UUID = strings.Replace(stableUUID(seed, filepath.Base(name)+" MIG", i*topology.MaxGPUs+k), "GPU-", "MIG-", 1)
		}
	}
	return &fixed{inventory: inv}, nil
}

func parseFile(data []byte) (Inventory, error) {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '{' {
		return parseRecorded(trimmed)
	}
	f, err := topology.Parse(data)
	if err != nil {
		return Inventory{}, err
	}
	inv := Inventory{Matrix: f.Matrix, Problems: f.Problems, GPUs: make([]GPU, len(f.Matrix.GPUs))}
	for i, d := range f.Details {
		g := GPU{Vendor: d.Vendor, ComputeCapability: d.ComputeCapability, Minor: ptr(i)}
		if d.PCIeGeneration > 0 && d.PCIeWidth > 0 {
			g.PCIeGeneration, g.PCIeWidth = ptr(uint64(d.PCIeGeneration)), ptr(uint64(d.PCIeWidth))
		}
		inv.GPUs[i] = g
	}
	return inv, nil
}

// parseRecorded reads an Inventory in JSON, as `nomad-device-caravan record`
// writes it.
func parseRecorded(data []byte) (Inventory, error) {
	var inv Inventory
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&inv); err != nil {
		return Inventory{}, fmt.Errorf("read recorded inventory: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return Inventory{}, fmt.Errorf("read recorded inventory: there is more behind it")
	}
	if len(inv.GPUs) != len(inv.Matrix.GPUs) {
		return Inventory{}, fmt.Errorf("read recorded inventory: %d GPUs, but %d in its matrix", len(inv.GPUs), len(inv.Matrix.GPUs))
	}
	for i, g := range inv.GPUs {
		if len(g.Instances) >= topology.MaxGPUs {
			return Inventory{}, fmt.Errorf("read recorded inventory: GPU %d has %d instances", i, len(g.Instances))
		}
	}
	if err := inv.Matrix.Validate(); err != nil {
		return Inventory{}, fmt.Errorf("read recorded inventory: %w", err)
	}
	return inv, nil
}
