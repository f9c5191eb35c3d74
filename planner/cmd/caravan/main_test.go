package main

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"caravan": main})
}

// The scripts run the real program, offline.
func TestScripts(t *testing.T) {
	jobspecs, err := filepath.Abs("../../../jobspecs")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("JOBSPECS", jobspecs)
			return nil
		},
	})
}
