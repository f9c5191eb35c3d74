// Package nomadproc runs a small real Nomad cluster on the loopback interface:
// one server and some clients, each a process of its own, for development and
// for tests that must see what Nomad itself does.
package nomadproc

import (
	"os"
	"os/exec"
)

// EnvBinary names the environment variable with the path of the nomad binary.
const EnvBinary = "NOMAD_BIN"

// Find returns the nomad binary: that of NOMAD_BIN, else "nomad" on the PATH.
// A NOMAD_BIN that is set and no executable file is returned all the same, so
// that starting it says what is wrong instead of quietly using something else.
func Find() (path string, ok bool) {
	if path := os.Getenv(EnvBinary); path != "" {
		return path, true
	}
	path, err := exec.LookPath("nomad")
	return path, err == nil
}
