package driver

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk is a directory that holds 64 KiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := mountSmall(dir, "64k"); err != nil {
		t.Skipf("a small disk takes the right to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func mountSmall(dir, size string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0777,size="+size)
}
