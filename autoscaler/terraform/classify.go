package terraform

import (
	"regexp"
	"strings"
	"time"
)

// pattern is a kind of answer of a cloud.
type pattern struct {
	reason Reason
	what   *regexp.Regexp
	// advice is what a person may do.
	advice string
}

// patterns are looked through in order, as some answers match several: those of
// quotas come before those of capacity, since clouds call a quota a capacity too.
var patterns = []pattern{
	{ReasonRefused, regexp.MustCompile(`(?i)UnauthorizedOperation|AuthFailure|InvalidClientTokenId|ExpiredToken|SignatureDoesNotMatch|AccessDenied|AuthorizationFailed|AuthenticationFailed|InvalidAuthenticationToken|NotAuthenticated|NotAuthorizedOrNotFound|No valid credential sources|could not find default credentials|oauth2: |invalid_grant|insufficient authentication scopes|PERMISSION_DENIED|Required '[^']+' permission`),
		"Check the credentials in the plugin's environment, and what they may do"},
	// AWS, EC2 API error codes.
	{ReasonQuota, regexp.MustCompile(`VcpuLimitExceeded|InstanceLimitExceeded|MaxSpotInstanceCountExceeded|MaxSpotFleetRequestCountExceeded|VolumeLimitExceeded|AddressLimitExceeded|PlacementGroupLimitExceeded|NetworkInterfaceLimitExceeded|PrivateIpAddressLimitExceeded`),
		"Ask for a higher service quota, or lower the pool's quota"},
	{ReasonCapacity, regexp.MustCompile(`InsufficientInstanceCapacity|InsufficientHostCapacity|InsufficientReservedInstanceCapacity|InsufficientCapacity\b|UnfulfillableCapacity|ReservationCapacityExceeded|SpotMaxPriceTooLow|capacity-not-available|capacity-oversubscribed|InsufficientFreeAddressesInSubnet`),
		"Another zone, region or instance type may have some"},
	// Google Compute Engine.
	{ReasonQuota, regexp.MustCompile(`QUOTA_EXCEEDED|quotaExceeded|Quota '[^']+' exceeded|Quota exceeded for`),
		"Ask for a higher quota, or lower the pool's quota"},
	{ReasonCapacity, regexp.MustCompile(`ZONE_RESOURCE_POOL_EXHAUSTED|RESOURCE_POOL_EXHAUSTED|does not have enough resources available to fulfill|STOCKOUT|resource_availability`),
		"Another zone or machine type may have some"},
	// Azure.
	{ReasonQuota, regexp.MustCompile(`QuotaExceeded|exceeding (?:approved|quota) [^.]*(?:quota|limit|cores)|exceeds? the (?:maximum|approved) [^.]*quota|OperationNotAllowed[^.]*quota|LowPriorityQuota`),
		"Ask for a higher quota, or lower the pool's quota"},
	{ReasonCapacity, regexp.MustCompile(`SkuNotAvailable|AllocationFailed|ZonalAllocationFailed|OverconstrainedAllocationRequest|OverconstrainedZonalAllocationRequest|NotAvailableForSubscription|CapacityReservation[A-Za-z]*Exceeded|do not have sufficient capacity`),
		"Another zone, region or size may have some"},
	// Oracle Cloud.
	{ReasonQuota, regexp.MustCompile(`LimitExceeded|limits? (?:were|was|have been) exceeded|service limit`),
		"Ask for a higher service limit, or lower the pool's quota"},
	{ReasonCapacity, regexp.MustCompile(`(?i)out of host capacity|OutOfHostCapacity|OutOfCapacity|insufficient[ -]capacity|no capacity available`),
		"Another availability or fault domain may have some"},
	{ReasonTimeout, regexp.MustCompile(`(?i)timeout while waiting for|context deadline exceeded|i/o timeout|Client\.Timeout exceeded|timed out waiting`),
		"Look whether the cloud, or the way to it, is slow"},
}

// classify recognises what a cloud or Terraform said.
func classify(text string) (Reason, string) {
	for _, p := range patterns {
		if p.what.MatchString(text) {
			return p.reason, p.advice
		}
	}
	return ReasonError, ""
}

// isVariable says whether a diagnostic is about a variable's value.
func isVariable(summary string) bool {
	return strings.Contains(summary, "No value for required variable") || strings.Contains(summary, "Invalid value for") && strings.Contains(summary, "variable") ||
		strings.Contains(summary, "Failed to read variables file")
}

// isUninitialised says whether a text asks for terraform init.
func isUninitialised(text string) bool {
	for _, part := range []string{"terraform init", "tofu init", "Backend initialization required", "Module not installed", "Inconsistent dependency lock file", "Required plugins are not installed"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// isNoState says whether a text is about a state that is there and cannot be read.
func isNoState(text string) bool {
	return strings.Contains(text, "Unsupported state file format") || strings.Contains(text, "state file could not be")
}

// StateLock is the lock of a state, as Terraform tells of it. Who is "" where it does
// not tell: the http backend names the ID of the lock that is there, and beside it
// everything of the one that could not be had.
type StateLock struct {
	ID, Who, Operation string
	Created            time.Time
}

// otherLock is the ID of a lock beside the fields of another.
var otherLock = regexp.MustCompile(`already locked: ID=([^\s]*)`)

var lockField = regexp.MustCompile(`(?m)^\s*(ID|Who|Operation|Created):\s*(.*?)\s*$`)

// parseLock reads who holds a state's lock out of what Terraform says.
func parseLock(text string) (StateLock, bool) {
	var l StateLock
	if !strings.Contains(text, "acquiring the state lock") {
		return l, false
	}
	for _, m := range lockField.FindAllStringSubmatch(text, -1) {
		switch m[1] {
		case "ID":
			l.ID = m[2]
		case "Who":
			l.Who = m[2]
		case "Operation":
			l.Operation = m[2]
		case "Created":
			// "2026-11-29 23:00:00.123456789 +0000 UTC"
			if t, err := time.Parse("2006-01-02 15:04:05.999999999 -0700 MST", m[2]); err == nil {
				l.Created = t
			}
		}
	}
	if m := otherLock.FindStringSubmatch(text); m != nil && m[1] != l.ID {
		l = StateLock{ID: m[1]}
	}
	return l, true
}
