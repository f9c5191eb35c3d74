// Package container runs a task's image through a container runtime that the
// node has: podman, docker or apptainer, by its command line. The runtime's
// client is a workload like any other (driver/exec); what happens inside the
// container is asked of the runtime.
package container

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Name is a runtime's.
type Name string

// The runtimes.
const (
	Podman    Name = "podman"
	Docker    Name = "docker"
	Apptainer Name = "apptainer"
)

// Runtime is an installed container runtime.
type Runtime struct {
	Name Name `json:"name"`
	// Path is its command line client.
	Path string `json:"path"`
	// Version is as it tells.
	Version string `json:"version"`
	// NVIDIA says how it gives GPUs to containers: "cdi", "runtime" (the NVIDIA
	// container runtime), "nv" (apptainer's own), or "" for not at all.
	NVIDIA string `json:"nvidia,omitempty"`
}

// How a runtime gives GPUs to containers; see Runtime.NVIDIA.
const (
	NVIDIACDI     = "cdi"
	NVIDIARuntime = "runtime"
	NVIDIANative  = "nv"
)

// ErrNoRuntime says that the node has no runtime that may be used.
var ErrNoRuntime = errors.New("no container runtime")

// Host is what the package asks of the machine it is on.
type Host interface {
	// LookPath finds a command.
	LookPath(name string) (string, error)
	// Output runs a command and returns what it printed to its standard
	// output; the error has what it printed to the other.
	Output(ctx context.Context, command string, args ...string) (string, error)
	// CDI lists the kinds of devices that CDI specifications on the host
	// define, as "nvidia.com/gpu".
	CDI() []string
}

// Find lists the runtimes of those allowed that are installed and answer, in
// that order, and says of the others why they cannot be used.
func Find(ctx context.Context, host Host, allowed []string) ([]Runtime, error) {
	var found []Runtime
	var faults []error
	for _, name := range allowed {
		r, err := find(ctx, host, Name(name))
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
			continue
		}
		found = append(found, r)
	}
	return found, errors.Join(faults...)
}

func find(ctx context.Context, host Host, name Name) (Runtime, error) {
	path, err := host.LookPath(string(name))
	if err != nil {
		return Runtime{}, errors.New("is not installed")
	}
	r := Runtime{Name: name, Path: path}
	// For docker the server is asked: a client alone runs nothing.
	ask := map[Name][]string{
		Podman:    {"version", "--format", "{{.Client.Version}}"},
		Docker:    {"version", "--format", "{{.Server.Version}}"},
		Apptainer: {"--version"},
	}[name]
	out, err := host.Output(ctx, path, ask...)
	if err != nil {
		return Runtime{}, fmt.Errorf("does not answer: %w", err)
	}
	if r.Version = version.FindString(out); r.Version == "" {
		return Runtime{}, fmt.Errorf("says %.80q where its version was asked for", strings.TrimSpace(out))
	}
	r.NVIDIA = nvidia(ctx, host, r)
	return r, nil
}

var version = regexp.MustCompile(`\d+\.\d+(\.\d+)?[0-9A-Za-z.+~-]*`)

// cdiKind is the kind of NVIDIA's devices in CDI.
const cdiKind = "nvidia.com/gpu"

func nvidia(ctx context.Context, host Host, r Runtime) string {
	if r.Name == Apptainer {
		return NVIDIANative
	}
	for _, kind := range host.CDI() {
		if kind == cdiKind {
			return NVIDIACDI
		}
	}
	if r.Name != Docker {
		return ""
	}
	out, err := host.Output(ctx, r.Path, "info", "--format", "{{range $name, $r := .Runtimes}}{{$name}} {{end}}")
	if err == nil {
		for _, name := range strings.Fields(out) {
			if name == "nvidia" {
				return NVIDIARuntime
			}
		}
	}
	return ""
}

// Choose takes the runtime that was asked for, or the first one for "".
func Choose(found []Runtime, faults error, want string) (Runtime, error) {
	for _, r := range found {
		if want == "" || string(r.Name) == want {
			return r, nil
		}
	}
	if want == "" {
		want = "any runtime"
	}
	if faults == nil {
		return Runtime{}, fmt.Errorf("run an image with %s: %w: none is allowed here", want, ErrNoRuntime)
	}
	return Runtime{}, fmt.Errorf("run an image with %s: %w: %w; install one on this node, or constrain the group to nodes that have it: ${attr.driver.caravan.runtime.podman}", want, ErrNoRuntime, faults)
}
