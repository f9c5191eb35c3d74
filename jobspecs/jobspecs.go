// Package jobspecs holds example job files. Each runs as it is on the
// development cluster, where a shell script stands in for the trainer, and is
// meant to be copied and given a real one.
package jobspecs

import "embed"

// Files are the example job files, by name.
//
//go:embed *.hcl
var Files embed.FS
