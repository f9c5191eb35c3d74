package gangspec

import (
	"slices"

	"github.com/hashicorp/nomad/api"
)

// IdentityName names the workload identity that a task joins its gang with, and
// is its audience, too.
const IdentityName = "caravan"

// MemberIdentity is the workload identity that Caravan gives the tasks of its
// driver. The token lies in the task's secrets directory, and is valid for as
// long as the allocation lives.
func MemberIdentity() *api.WorkloadIdentity {
	return &api.WorkloadIdentity{Name: IdentityName, Audience: []string{IdentityName}, File: true}
}

// IsMemberIdentity says whether a task's identity says what Caravan's says.
func IsMemberIdentity(t *api.Task, id *api.WorkloadIdentity) bool {
	return t.Driver == DriverName && id != nil && id.Name == IdentityName && slices.Equal(id.Audience, []string{IdentityName}) &&
		id.File && !id.Env && id.Filepath == "" && id.TTL == 0 && id.ServiceName == "" &&
		(id.ChangeMode == "" || id.ChangeMode == "noop") && id.ChangeSignal == ""
}
