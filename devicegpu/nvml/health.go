package nvml

import "context"

// Health are the readings by which a GPU's health is judged. A nil pointer, an
// empty text and a count of no NVLinks at all mean that it is not reported.
type Health struct {
	// Lost says that the GPU is not there for the driver any more: it has fallen
	// off the bus, or needs a reset.
	Lost string `json:"lost,omitempty"`
	// Silent is the driver's error, where it is another one, instead of an
	// answer about the GPU.
	Silent string `json:"silent,omitempty"`
	// UncorrectedVolatile and UncorrectedAggregate count uncorrectable ECC
	// errors since the driver was loaded, and in the GPU's life.
	UncorrectedVolatile  *uint64 `json:"uncorrected_volatile,omitempty"`
	UncorrectedAggregate *uint64 `json:"uncorrected_aggregate,omitempty"`
	// SRAMThreshold is set when the on-chip memories had so many uncorrectable
	// errors that NVIDIA takes the GPU back.
	SRAMThreshold *bool `json:"sram_threshold,omitempty"`
	// RemapPending and RemapFailed are about rows of memory (from Ampere on),
	// RetiredPending about pages (before).
	RemapPending   *bool `json:"remap_pending,omitempty"`
	RemapFailed    *bool `json:"remap_failed,omitempty"`
	RetiredPending *bool `json:"retired_pending,omitempty"`
	// LinksActive and LinksInactive count NVLinks by their state;
	// LinksToSwitches are those of the active ones that lead to NVSwitches.
	LinksActive     int `json:"links_active,omitempty"`
	LinksInactive   int `json:"links_inactive,omitempty"`
	LinksToSwitches int `json:"links_to_switches,omitempty"`
	// Fabric is how far the GPU has come in joining the NVLink fabric, one of
	// the constants below; FabricError is why it could not.
	Fabric      string `json:"fabric,omitempty"`
	FabricError string `json:"fabric_error,omitempty"`
	// MIGPending is set when a change of the MIG mode waits for a reset.
	MIGPending *bool `json:"mig_pending,omitempty"`
}

// The states of Health.Fabric, in NVML's words.
const (
	FabricNotStarted = "not started"
	FabricInProgress = "in progress"
	FabricCompleted  = "completed"
)

// Event is a fault that the driver reports when it happens.
type Event struct {
	// UUID is the GPU's; "" if the driver cannot say which.
	UUID string
	// XID is the number of NVIDIA's error; 0 says only that there is something
	// new to read.
	XID uint64
	// GPUInstance and ComputeInstance are the MIG instance's, nil for the whole
	// GPU.
	GPUInstance, ComputeInstance *int
}

// eventless is for sources whose GPUs have no faults of their own.
type eventless struct{}

// Events waits until ctx ends.
func (eventless) Events(ctx context.Context, _ func(Event)) error {
	<-ctx.Done()
	return nil
}
