package wholefile

import (
	"os"
	"path/filepath"
	"testing"
)

// A name stands for what was there before until all of the new file is there, and a file
// that is given up leaves nothing.
func TestNamesStandForWholeFiles(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a")
	has := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%q, %v: want %q", got, err, want)
		}
	}
	if err := Write(name, []byte("old")); err != nil {
		t.Fatal(err)
	}
	has("old")
	for _, end := range []struct {
		of   func(*File) error
		want string
	}{{(*File).Drop, "old"}, {(*File).Done, "new"}} {
		f, err := Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("new"); err != nil {
			t.Fatal(err)
		}
		has("old")
		if err := end.of(f); err != nil {
			t.Error(err)
		}
		has(end.want)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v: want one file", left, err)
	}
}

// What is no file on a disk is written to as it is, and a full one is an error.
func TestWhatIsNoFile(t *testing.T) {
	if err := Write(os.DevNull, []byte("x")); err != nil {
		t.Error(err)
	}
	if err := Write("/dev/full", []byte("x")); err == nil {
		t.Error("a full disk took it")
	}
	if err := Write(t.TempDir(), []byte("x")); err == nil {
		t.Error("a directory took it")
	}
}
