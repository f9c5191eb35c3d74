package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// AttrInstances is the key of the device attribute that tells of a group's MIG
// instances which GPU each is a part of.
const AttrInstances = "unique.caravan_mig"

// instancesPrefix names the attribute's format and its version.
const instancesPrefix = "cm1."

// MaxInstances bounds a node's MIG instances; seven to a GPU are the most that
// NVIDIA's GPUs can be divided into.
const MaxInstances = 8 * MaxGPUs

// ErrInstances is wrapped by the errors of EncodeInstances and DecodeInstances.
var ErrInstances = errors.New("unreadable MIG attribute")

// Instance is one MIG instance and where it is.
type Instance struct {
	// UUID is the device's ID in Nomad.
	UUID string `json:"uuid"`
	// Parent is the UUID of the GPU; Index is the GPU's index in the node's
	// Matrix.
	Parent string `json:"parent"`
	Index  int    `json:"index"`
	// Profile is NVIDIA's, "3g.20gb".
	Profile string `json:"profile"`
	// GPUInstance and ComputeInstance are NVIDIA's numbers within the GPU.
	GPUInstance     int `json:"gi"`
	ComputeInstance int `json:"ci"`
}

// EncodeInstances packs instances into a string for AttrInstances:
//
//	"cm1." base64url( crc32(json), 4 bytes little-endian · deflate(json) )
//
// where json is the list of the instances.
func EncodeInstances(list []Instance) (string, error) {
	if err := validateInstances(list); err != nil {
		return "", err
	}
	payload, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInstances, err)
	}
	return pack(instancesPrefix, payload)
}

// DecodeInstances unpacks a string that EncodeInstances made. Anything else is
// an error that wraps ErrInstances.
func DecodeInstances(s string) ([]Instance, error) {
	payload, err := unpack(instancesPrefix, s)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInstances, err)
	}
	var list []Instance
	if err := json.Unmarshal(payload, &list); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInstances, err)
	}
	if err := validateInstances(list); err != nil {
		return nil, err
	}
	return list, nil
}

func validateInstances(list []Instance) error {
	var faults []string
	if len(list) > MaxInstances {
		faults = append(faults, fmt.Sprintf("%d instances, at most %d are allowed", len(list), MaxInstances))
	}
	seen := map[string]bool{}
	for i, inst := range list[:min(len(list), MaxInstances)] {
		switch {
		case inst.UUID == "" || inst.Parent == "" || inst.Profile == "":
			faults = append(faults, fmt.Sprintf("instance %d lacks its UUID, its parent or its profile", i))
		case seen[inst.UUID]:
			faults = append(faults, fmt.Sprintf("instance %d has the UUID %q of another one", i, inst.UUID))
		}
		seen[inst.UUID] = true
		if inst.Index < 0 || inst.Index >= MaxGPUs || inst.GPUInstance < 0 || inst.ComputeInstance < 0 {
			faults = append(faults, fmt.Sprintf("instance %d is %d/%d of GPU %d", i, inst.GPUInstance, inst.ComputeInstance, inst.Index))
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %s", ErrInstances, strings.Join(faults, "; "))
	}
	return nil
}
