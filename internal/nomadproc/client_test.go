package nomadproc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A client's sockets are below its own directory, as often as it is started, or where
// their paths are short.
func TestSocketDir(t *testing.T) {
	short, err := os.MkdirTemp("", "n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	for range 2 {
		if got, err := socketDir(short); err != nil || got != filepath.Join(short, "t") {
			t.Errorf("got %q, %v", got, err)
		}
	}
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	got, err := socketDir(filepath.Join(short, strings.Repeat("d", longestSocketDir)))
	if err != nil || filepath.Dir(got) != temporary {
		t.Errorf("of a long path: %q, %v", got, err)
	}
	if info, err := os.Stat(got); err != nil || !info.IsDir() {
		t.Errorf("of a long path: %v", err)
	}
}
