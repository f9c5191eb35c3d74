package core

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// own is the module path under which the core may import itself.
const own = "github.com/caravan-sched/caravan/planner/core/"

// allowed are the packages that the core may use beside its own: nothing that
// knows the time of day, does I/O, writes logs, or is random. io is for its
// interfaces; of time only the types are used, which TestCoreHasNoClock checks.
var allowed = []string{
	"bytes", "cmp", "container/heap", "encoding/binary", "encoding/json", "errors", "fmt", "hash/fnv", "io", "maps", "math", "math/big", "math/bits",
	"reflect", "regexp", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8",
}

func eachFile(t *testing.T, f func(path string, text string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f(path, string(text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestImports(t *testing.T) {
	files := 0
	eachFile(t, func(path, text string) {
		files++
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(name+"/", own) && !slices.Contains(allowed, name) {
				t.Errorf("%s imports %q: the core may import its own packages and %v", path, name, allowed)
			}
		}
	})
	if files < 20 {
		t.Errorf("only %d files were looked at", files)
	}
}

// The core gets the time from the snapshot.
func TestCoreHasNoClock(t *testing.T) {
	eachFile(t, func(path, text string) {
		for _, word := range []string{"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After(", "time.NewTimer", "time.NewTicker", "time.Tick", "fmt.Print", "time.Local"} {
			if strings.Contains(text, word) {
				t.Errorf("%s uses %s", path, word)
			}
		}
	})
}
