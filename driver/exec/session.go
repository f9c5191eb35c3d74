package exec

import "io"

// ExecSpec describes a command that is run inside a running workload: in its
// cgroups, namespaces and directory, as its user, with its environment and
// limits.
type ExecSpec struct {
	// Command is the command and its arguments, looked up as the workload's is.
	Command []string
	// Env is added to the workload's environment.
	Env []string

	// TTY gives the command a terminal; Stderr is then not used.
	TTY bool
	// Size is the terminal's first size; zero is 24 × 80.
	Size Size

	// Stdin is read until it ends; nil is empty. A reader that blocks after the
	// command ended holds nothing up. Stdout and Stderr may be nil.
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Size is a terminal's, in characters.
type Size struct {
	Rows, Columns uint16
}
