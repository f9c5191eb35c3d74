// Package autoscaler holds what people start from who let the Nomad Autoscaler buy
// nodes: its configuration, policies, and the pools that these are about.
package autoscaler

import "embed"

// Files are agent.hcl, pools.hcl, and the policies in policies/.
//
//go:embed agent.hcl pools.hcl policies/*.hcl
var Files embed.FS
