package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// AttrDivisions is the key of the device attribute of a node whose plugin divides
// GPUs as it is told: what it was told last of each, and what became of it.
const AttrDivisions = "unique.caravan_divisions"

// divisionsPrefix names the attribute's format and its version.
const divisionsPrefix = "cd1."

// ErrDivisions is wrapped by the errors of EncodeDivisions and DecodeDivisions.
var ErrDivisions = errors.New("unreadable attribute of divisions")

// Division is how a GPU was to be divided, and what became of it.
type Division struct {
	// GPU is the UUID of the whole GPU; Profiles are those of its instances, none
	// if it was to be whole.
	GPU      string   `json:"gpu"`
	Profiles []string `json:"profiles,omitempty"`
	// At is when that was.
	At time.Time `json:"at"`
	// Refused says why it was not done; "" if it was.
	Refused string `json:"refused,omitempty"`
	// Again is when it may be tried again, if what was in its way passes by itself.
	Again time.Time `json:"again,omitzero"`
}

// maxWhy bounds the text of a Division.
const maxWhy = 300

// EncodeDivisions packs divisions into a string for AttrDivisions, as
// EncodeInstances does with instances.
func EncodeDivisions(list []Division) (string, error) {
	if len(list) > MaxGPUs {
		return "", fmt.Errorf("%w: %d of them, at most %d are allowed", ErrDivisions, len(list), MaxGPUs)
	}
	short := make([]Division, len(list))
	for i, d := range list {
		if d.GPU == "" {
			return "", fmt.Errorf("%w: division %d lacks its GPU", ErrDivisions, i)
		}
		if len(d.Refused) > maxWhy {
			d.Refused = d.Refused[:maxWhy]
		}
		short[i] = d
	}
	payload, err := json.Marshal(short)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrDivisions, err)
	}
	return pack(divisionsPrefix, payload)
}

// DecodeDivisions unpacks a string that EncodeDivisions made. Anything else is an
// error that wraps ErrDivisions.
func DecodeDivisions(s string) ([]Division, error) {
	payload, err := unpack(divisionsPrefix, s)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDivisions, err)
	}
	var list []Division
	if err := json.Unmarshal(payload, &list); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDivisions, err)
	}
	for i, d := range list {
		if d.GPU == "" || i >= MaxGPUs {
			return nil, fmt.Errorf("%w: division %d has no GPU, or is one too many", ErrDivisions, i)
		}
	}
	return list, nil
}
