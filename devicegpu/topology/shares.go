package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// AttrShares is the key of the device attribute that tells which GPUs a group's
// time slices are parts of.
const AttrShares = "unique.caravan_shares"

// sharesPrefix names the attribute's format and its version.
const sharesPrefix = "cs1."

// MaxSlices is how many tasks one GPU may be shared by. A node may offer no more
// than MaxNodeDevices devices, slices and instances counted one by one: planners
// keep them as bits of one word.
const (
	MinSlices      = 2
	MaxSlices      = 32
	MaxNodeDevices = 64
)

// ErrShares is wrapped by the errors of EncodeShares and DecodeShares.
var ErrShares = errors.New("unreadable attribute of shared GPUs")

// Share is a GPU that several tasks use in turn.
type Share struct {
	// GPU is its UUID; Index is its index in the node's Matrix.
	GPU   string `json:"gpu"`
	Index int    `json:"index"`
	// Slices is how many tasks may be given it at once.
	Slices int `json:"slices"`
	// MemoryMiB is all of the GPU's memory, 0 if it is not known.
	MemoryMiB uint64 `json:"memory_mib,omitempty"`
}

// sliceMark is what stands between a GPU's UUID and a slice's number.
const sliceMark = "::"

// SliceID is the device ID of a GPU's nth time slice, counted from 0.
func SliceID(gpu string, n int) string { return gpu + sliceMark + strconv.Itoa(n) }

// ParseSliceID takes a SliceID apart; ok is false for any other ID.
func ParseSliceID(id string) (gpu string, n int, ok bool) {
	end := len(id)
	if end < 4 || id[end-2] != ':' && id[end-3] != ':' {
		return "", 0, false // as most are, and there are many
	}
	at := strings.LastIndex(id, sliceMark)
	if at <= 0 {
		return "", 0, false
	}
	n, err := strconv.Atoi(id[at+len(sliceMark):])
	if err != nil || n < 0 || n >= MaxSlices || SliceID(id[:at], n) != id {
		return "", 0, false
	}
	return id[:at], n, true
}

// EncodeShares packs shares into a string for AttrShares, as EncodeInstances does
// with instances.
func EncodeShares(list []Share) (string, error) {
	if err := validateShares(list); err != nil {
		return "", err
	}
	payload, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrShares, err)
	}
	return pack(sharesPrefix, payload)
}

// DecodeShares unpacks a string that EncodeShares made. Anything else is an error
// that wraps ErrShares.
func DecodeShares(s string) ([]Share, error) {
	payload, err := unpack(sharesPrefix, s)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrShares, err)
	}
	var list []Share
	if err := json.Unmarshal(payload, &list); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrShares, err)
	}
	if err := validateShares(list); err != nil {
		return nil, err
	}
	return list, nil
}

// maxShareMiB is more memory than any GPU has: 16 TiB.
const maxShareMiB = 1 << 24

func validateShares(list []Share) error {
	var faults []string
	if len(list) > MaxGPUs {
		faults = append(faults, fmt.Sprintf("%d GPUs, at most %d are allowed", len(list), MaxGPUs))
	}
	seen := map[string]bool{}
	for i, s := range list[:min(len(list), MaxGPUs)] {
		switch {
		case s.GPU == "":
			faults = append(faults, fmt.Sprintf("share %d lacks its GPU", i))
		case seen[s.GPU]:
			faults = append(faults, fmt.Sprintf("share %d has the GPU %q of another one", i, s.GPU))
		}
		seen[s.GPU] = true
		if s.Index < 0 || s.Index >= MaxGPUs || s.Slices < MinSlices || s.Slices > MaxSlices || s.MemoryMiB > maxShareMiB {
			faults = append(faults, fmt.Sprintf("share %d is of GPU %d, %d slices, %d MiB", i, s.Index, s.Slices, s.MemoryMiB))
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %s", ErrShares, strings.Join(faults, "; "))
	}
	return nil
}
