package gangspec

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
)

// IdentityName names the workload identity that a task joins its gang with, and
// is its audience, too.
const IdentityName = "caravan"

// identityTTL is how long a member's token is valid. Nomad writes a new one
// when half of it is over, and warns users of tokens that never expire.
const identityTTL = time.Hour

// MemberIdentity is the workload identity that Caravan gives the tasks of its
// driver. The token lies in the task's secrets directory.
func MemberIdentity() *api.WorkloadIdentity {
	return &api.WorkloadIdentity{Name: IdentityName, Audience: []string{IdentityName}, File: true, TTL: identityTTL}
}

// IsMemberIdentity says whether a task's identity says what Caravan's says, or
// said when its tokens did not expire: members of that time run on with it.
func IsMemberIdentity(t *api.Task, id *api.WorkloadIdentity) bool {
	return t.Driver == DriverName && id != nil && id.Name == IdentityName && slices.Equal(id.Audience, []string{IdentityName}) &&
		id.File && !id.Env && id.Filepath == "" && (id.TTL == identityTTL || id.TTL == 0) && id.ServiceName == "" &&
		(id.ChangeMode == "" || id.ChangeMode == "noop") && id.ChangeSignal == ""
}
