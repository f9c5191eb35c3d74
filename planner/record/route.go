package record

import "time"

// AnyRegion in a record's Regions stands for all of a federation's.
const AnyRegion = "*"

// Route says that a job which was submitted in one region of a federation runs,
// or is to run, in another. It is in the record of the region where it was
// submitted, and it alone says who may run the job: the other region has a record
// with Home of its own, and nothing of the job is placed here while there is a
// Route. It is written before anything is done there, and taken out when nothing
// of the job is left there.
type Route struct {
	// Region is where the job was sent.
	Region string `json:"region"`
	// SpecHash and Submitted name the submission that was sent.
	SpecHash  string    `json:"spec_hash"`
	Submitted time.Time `json:"submitted"`
	// Since is when it was sent, and Reason why.
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`
	// Recall says why the job is to be taken back; "" if it is not.
	Recall string `json:"recall,omitempty"`
}

// Stale says whether the record is about another submission than the one that
// was sent.
func (r *Record) Stale() bool {
	return r.Route != nil && (r.Route.SpecHash != r.SpecHash || !r.Route.Submitted.Equal(r.Submitted))
}

// Ran says whether members of the submission have been placed.
func (r *Record) Ran() bool { return len(r.Members) > 0 || r.Service.Ran > 0 }

// Sent is the record for the region to which the job is sent. prior is the index
// that the job which was there before has in Nomad, 0 without one.
func (r *Record) Sent(home string, prior uint64) *Record {
	return &Record{
		Namespace: r.Namespace, JobID: r.JobID, Original: r.Original, Source: r.Source, SpecHash: r.SpecHash,
		Submitter: r.Submitter, Submitted: r.Submitted, Phase: PhaseQueued, Reason: r.Reason,
		Attempts: r.Attempts, RetryAfter: r.RetryAfter, Failures: r.Failures, Preempted: r.Preempted,
		Service: r.Service, History: r.History, Avoided: r.Avoided, Regions: r.Regions,
		PriorIndex: prior, Home: home,
	}
}

// Returned is the record of the region where the job was submitted once nothing of
// it is left in the other; there is the record from there, nil if there is none
// any more. What the submission has been through comes along.
func (r *Record) Returned(there *Record) *Record {
	out := *r
	out.Route, out.Promised = nil, nil // what was promised was of other GPUs
	if there == nil || there.SpecHash != r.SpecHash || !there.Submitted.Equal(r.Submitted) {
		return &out
	}
	out.Reason, out.Attempts, out.RetryAfter, out.Failures = there.Reason, there.Attempts, there.RetryAfter, there.Failures
	out.Preempted, out.Service, out.History, out.Avoided = there.Preempted, there.Service, there.History, there.Avoided
	return &out
}
