package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGeneratedCodeIsUpToDate fails when a .proto file was changed without
// `make generate`, or the other way round.
func TestGeneratedCodeIsUpToDate(t *testing.T) {
	root := filepath.Join("..", "..", "..", "..")
	want, err := generate(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]byte{}
	committed, err := filepath.Glob(filepath.Join(root, wireDir, "*", "*.pb.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range committed {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			t.Fatal(err)
		}
		got[filepath.ToSlash(rel)] = content
	}
	for name := range want {
		if diff := cmp.Diff(string(want[name]), string(got[name])); diff != "" {
			t.Errorf("%s differs from its .proto file; run `make generate` (-want +got):\n%s", name, diff)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("%s has no .proto file", name)
	}
}
