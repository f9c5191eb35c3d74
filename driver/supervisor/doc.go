// Package supervisor runs one task: a small process of its own that holds the
// user's code at its gang's barrier, runs it, reports for it, carries out the
// planner's orders and stops it. It survives the plugin and the Nomad client
// that launched it; both find it again by its state directory.
//
// The plugin side is [Launch], [Attach] and [Client]; the process side is [Run].
// What is to be done when is decided in package machine.
package supervisor
