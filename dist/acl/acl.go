// Package acl holds the ACL policies that Caravan ships, so that tests and
// `caravan dev` use the very files that operators apply.
package acl

import _ "embed"

// The policies, in HCL: the planner's own, that of people and CI who run jobs
// through the gateway, and that of Caravan's operators.
var (
	//go:embed caravan-planner.policy.hcl
	Planner string
	//go:embed caravan-user.policy.hcl
	User string
	//go:embed caravan-operator.policy.hcl
	Operator string
)
