package devicegpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNeighbours(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	write(Name, 0o755)
	write("nomad-driver-podman", 0o755)
	write("nvidia-gpu", 0o644) // not to be run
	if got := Neighbours(dir); len(got) > 0 {
		t.Errorf("neighbours %q", got)
	}
	write("nomad-device-nvidia", 0o755)
	got := Neighbours(dir)
	if len(got) != 1 || !strings.Contains(got[0], filepath.Join(dir, "nomad-device-nvidia")+" lists the same GPUs") {
		t.Errorf("neighbours %q", got)
	}
	if got := Neighbours(filepath.Join(dir, "none")); len(got) > 0 {
		t.Errorf("neighbours %q", got)
	}
	p := newPlugin(t, &fake{inventory: pairs()}, "")
	p.dir = dir
	p.scan()
	if !strings.Contains(strings.Join(p.complaints, "\n"), "counts each twice") {
		t.Errorf("complaints %q", p.complaints)
	}
}
