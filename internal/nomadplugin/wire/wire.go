// Package wire is the root of the generated code for Nomad's plugin protocol.
// The packages below it hold one .proto file each, with the names and field
// numbers that Nomad uses on the wire, and the Go code generated from it.
package wire

//go:generate go run ./wiregen ../../..
