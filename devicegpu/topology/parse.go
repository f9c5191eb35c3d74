package topology

import (
	"bytes"
	"errors"
	"fmt"
)

// maxFileBytes bounds the files that Parse takes in; real ones have some
// kilobytes.
const maxFileBytes = 4 << 20

// ErrFile is wrapped by every error of Parse.
var ErrFile = errors.New("unreadable topology file")

// File is what a topology file says.
type File struct {
	// Format is "nvidia-smi topo" or "NCCL XML".
	Format string
	Matrix Matrix
	// Details are per GPU, in the matrix's order.
	Details []Detail
	// Problems are sentences about what the file leaves open or contradicts.
	Problems []string
}

// Detail is what a file says of a GPU besides its links; zero is unknown.
type Detail struct {
	// Vendor is "nvidia" or "amd".
	Vendor string
	// ComputeCapability is CUDA's, "9.0"; "" for others.
	ComputeCapability string
	// Architecture is AMD's, "gfx942"; "" for others.
	Architecture string
	// PCIeGeneration and PCIeWidth are the slot's.
	PCIeGeneration, PCIeWidth int
}

// Parse reads an `nvidia-smi topo -m` text (with `nvidia-smi -L` before it, if
// the models are to be known) or an NCCL or RCCL XML file, and tells them
// apart itself.
func Parse(data []byte) (File, error) {
	f, err := parse(data)
	if err == nil {
		err = f.Matrix.Validate()
	}
	if err != nil {
		return File{}, fmt.Errorf("%w: %w", ErrFile, err)
	}
	return f, nil
}

func parse(data []byte) (File, error) {
	if len(data) > maxFileBytes {
		return File{}, fmt.Errorf("%d bytes long, at most %d are allowed", len(data), maxFileBytes)
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	trimmed := bytes.TrimSpace(data)
	switch {
	case len(trimmed) == 0:
		return File{}, errors.New("it is empty")
	case trimmed[0] == '<':
		return parseNCCL(trimmed)
	}
	return parseSMI(string(data))
}
