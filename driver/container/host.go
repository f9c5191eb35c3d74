package container

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Machine is the Host that the process runs on.
type Machine struct{}

// LookPath implements Host.
func (Machine) LookPath(name string) (string, error) { return osexec.LookPath(name) }

// mostOutput bounds what is shown of a command's errors, in bytes.
const mostOutput = 600

// Output implements Host.
func (Machine) Output(ctx context.Context, command string, args ...string) (string, error) {
	cmd := osexec.CommandContext(ctx, command, args...)
	cmd.Env = clientEnv
	// What the command left behind must not keep us waiting for its output.
	cmd.WaitDelay = time.Second
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(errOut.String())
		if len(text) > mostOutput {
			text = "…" + text[len(text)-mostOutput:]
		}
		if text == "" {
			return out.String(), err
		}
		return out.String(), fmt.Errorf("%w: %s", err, text)
	}
	return out.String(), nil
}

// cdiDirs are where CDI specifications lie (Container Device Interface
// specification, "CDI JSON Specification").
var cdiDirs = []string{"/etc/cdi", "/var/run/cdi"}

// CDI implements Host.
func (Machine) CDI() []string { return cdiKinds(cdiDirs) }

// cdiKinds reads the kinds from the specifications in the directories. What
// cannot be read defines nothing.
func cdiKinds(dirs []string) []string {
	var kinds []string
	for _, dir := range dirs {
		files, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, f := range files {
			data, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				continue
			}
			if kind := cdiKindOf(f.Name(), data); kind != "" && !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	slices.Sort(kinds)
	return kinds
}

// cdiKindOf is the kind that a specification defines, "" for other files. In
// YAML it is a key of the top level.
func cdiKindOf(name string, data []byte) string {
	switch filepath.Ext(name) {
	case ".json":
		var spec struct {
			Kind string `json:"kind"`
		}
		if json.Unmarshal(data, &spec) != nil {
			return ""
		}
		return spec.Kind
	case ".yaml", ".yml":
		for line := range strings.Lines(string(data)) {
			if value, ok := strings.CutPrefix(line, "kind:"); ok {
				return strings.Trim(strings.TrimSpace(value), `"'`)
			}
		}
	}
	return ""
}
