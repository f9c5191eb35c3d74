package devicegpu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Neighbours tells of other plugins for NVIDIA GPUs in the folder of the
// plugin's own binary, Nomad's plugin_dir: Nomad starts every binary in it, and
// counts a GPU once for each plugin that lists it. The sentences are for an
// operator.
func Neighbours(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // a folder that cannot be listed has no plugins for Nomad
	}
	var out []string
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".exe")
		if !slices.Contains(rivals, name) {
			continue
		}
		if info, err := os.Stat(filepath.Join(dir, e.Name())); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			continue // Nomad passes over what it cannot run
		}
		out = append(out, filepath.Join(dir, e.Name())+" lists the same GPUs, so that Nomad counts each twice: move it out of plugin_dir and restart the agent")
	}
	return out
}

// rivals are the names of HashiCorp's plugin: its releases have the first, and
// the second is what Nomad calls it.
var rivals = []string{"nomad-device-nvidia", "nvidia-gpu"}

// ownDir is the folder of this binary; "" if it is not known.
func ownDir() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Dir(path)
}
