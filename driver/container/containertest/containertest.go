// Package containertest is for tests with real container runtimes.
package containertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Image has one program, /program, which does what tests want; see the command
// below this package.
const Image = "localhost/caravan-container-test:2"

// Ulimits are low enough for whoever may not raise his own: some hosts give
// less than podman asks for by itself.
func Ulimits() map[string]string { return map[string]string{"nofile": "256:256", "nproc": "256:256"} }

// Podman returns the path of a podman that can run Image here, and the arguments
// that `podman run` needs for it on this host. Without one, the test is skipped.
func Podman(t testing.TB) (path string, args []string) {
	t.Helper()
	path, err := exec.LookPath("podman")
	if err != nil {
		t.Skip("needs podman")
	}
	importImage(t, path)
	// Where cgroups are not podman's to make, it still runs containers.
	var last string
	for _, args := range [][]string{nil, {"--cgroups=disabled"}} {
		call := []string{"run", "--rm", "--network", "host", "--ulimit", "nofile=256:256", "--ulimit", "nproc=256:256"}
		out, err := exec.Command(path, append(append(call, args...), Image, "/program", "say", "works")...).CombinedOutput()
		if err == nil && strings.Contains(string(out), "works") {
			return path, args
		}
		last = strings.TrimSpace(string(out))
	}
	t.Skipf("podman runs no containers here: %s", last)
	return "", nil
}

func importImage(t testing.TB, podman string) {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	for _, d := range []string{"proc", "sys", "dev", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", filepath.Join(root, "program"), "github.com/caravan-sched/caravan/driver/container/containertest/program")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the image's program: %v\n%s", err, out)
	}
	tarball := filepath.Join(dir, "image.tar")
	if out, err := exec.Command("tar", "-C", root, "-cf", tarball, ".").CombinedOutput(); err != nil {
		t.Fatalf("pack the image: %v\n%s", err, out)
	}
	if out, err := exec.Command(podman, "import", "--quiet", tarball, Image).CombinedOutput(); err != nil {
		t.Skipf("podman imports no image here: %v\n%s", err, out)
	}
}
