// Package feasible says which nodes and device groups a job may use, with the
// semantics of Nomad's own scheduler: a node that passes here passes there.
//
// Two rules differ between a node's and a device's constraints, as they do in
// Nomad: node values are plain strings, and "<" compares them as integers,
// then as floats, then as text; device values are typed, with units, and
// values of different kinds are never equal, unequal, or in any order.
package feasible
