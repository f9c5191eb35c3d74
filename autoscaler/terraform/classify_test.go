package terraform

import (
	"testing"
	"time"
)

// The texts are those of the clouds' providers.
func TestClassify(t *testing.T) {
	tests := map[string]struct {
		text string
		want Reason
	}{
		"AWS capacity": {`creating EC2 Instance: operation error EC2: RunInstances, https response error StatusCode: 500, RequestID: x, api error InsufficientInstanceCapacity: We currently do not have sufficient p5.48xlarge capacity in the Availability Zone you requested (us-east-1a).`, ReasonCapacity},
		"AWS spot":     {`api error MaxSpotInstanceCountExceeded: Max spot instance count exceeded`, ReasonQuota},
		"AWS quota":    {`api error VcpuLimitExceeded: You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket that the specified instance type belongs to.`, ReasonQuota},
		"AWS who":      {`api error UnauthorizedOperation: You are not authorized to perform this operation.`, ReasonRefused},
		"GCP capacity": {`Error waiting for instance to create: The zone 'projects/p/zones/us-central1-a' does not have enough resources available to fulfill the request. Try a different zone, or try again later.`, ReasonCapacity},
		"GCP code":     {`Error: ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS`, ReasonCapacity},
		"GCP quota":    {`Error waiting for instance to create: Quota 'NVIDIA_H100_GPUS' exceeded.  Limit: 8.0 in region us-central1.`, ReasonQuota},
		"Azure sku":    {`unexpected status 409 (409 Conflict) with error: SkuNotAvailable: The requested VM size for resource 'Following SKUs have failed for Capacity Restrictions: Standard_ND96isr_H100_v5' is currently not available in location 'eastus'.`, ReasonCapacity},
		"Azure zone":   {`ZonalAllocationFailed: Allocation failed. We do not have sufficient capacity for the requested VM size in this zone.`, ReasonCapacity},
		"Azure quota":  {`OperationNotAllowed: Operation could not be completed as it results in exceeding approved standardNDv2 Family Cores quota.`, ReasonQuota},
		"OCI capacity": {`500-InternalError, Out of host capacity. Suggestion: The service for this resource encountered an error.`, ReasonCapacity},
		"OCI quota":    {`400-LimitExceeded, The following service limits were exceeded: gpu-h100-count.`, ReasonQuota},
		"slow":         {`timeout while waiting for state to become 'running' (last state: 'pending', timeout: 10m0s)`, ReasonTimeout},
		"another":      {`local-exec provisioner error: exit status 1`, ReasonError},
	}
	for name, test := range tests {
		if got, _ := classify(test.text); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestParseLock(t *testing.T) {
	const text = "Error acquiring the state lock: HTTP remote state already locked: ID=7a3f\n\nLock Info:\n  ID:        7a3f\n  Path:      \n  Operation: OperationTypeApply\n  Who:       root@host\n  Version:   1.11.4\n  Created:   2026-11-29 23:00:01.5 +0000 UTC\n  Info:      \n"
	got, ok := parseLock(text)
	want := StateLock{ID: "7a3f", Who: "root@host", Operation: "OperationTypeApply", Created: time.Date(2026, 11, 29, 23, 0, 1, 500_000_000, time.UTC)}
	if !ok || !got.Created.Equal(want.Created) || got.ID != want.ID || got.Who != want.Who || got.Operation != want.Operation {
		t.Errorf("lock = %+v (%v), want %+v", got, ok, want)
	}
	// The http backend tells of the lock that could not be had.
	if got, ok := parseLock("Error acquiring the state lock: HTTP remote state already locked: ID=one\n\nLock Info:\n  ID: two\n  Who: me@here\n"); !ok || got != (StateLock{ID: "one"}) {
		t.Errorf("lock = %+v, want one of which only the ID is known", got)
	}
	if _, ok := parseLock("Error: something else"); ok {
		t.Error("a lock was read where there is none")
	}
	if !isNoState("Error acquiring the state lock: Unsupported state file format: The state file could not be parsed as JSON") || isNoState(text) {
		t.Error("a state that cannot be read is not told from one that is locked")
	}
}

func FuzzParseLock(f *testing.F) {
	f.Add("Error acquiring the state lock\n ID: x\n Created: y")
	f.Fuzz(func(_ *testing.T, s string) { parseLock(s); classify(s) })
}
