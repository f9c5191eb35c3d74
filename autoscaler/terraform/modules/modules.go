// Package modules holds the Terraform modules.
package modules

import "embed"

// Local is the module whose nodes are processes on this machine, in local/.
//
//go:embed local/*.tf local/*.sh
var Local embed.FS
