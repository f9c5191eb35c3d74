package jobhcl

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/nomadproc"
)

var update = flag.Bool("update", false, "record the answers of the Nomad at NOMAD_BIN")

// nomadServer is a Nomad server without clients; the test is skipped where
// there is no Nomad.
func nomadServer(t *testing.T) *api.Client {
	t.Helper()
	bin, ok := nomadproc.Find()
	if !ok {
		t.Skip("needs Nomad: set NOMAD_BIN or put nomad on the PATH")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cluster, err := nomadproc.Start(ctx, bin, devcluster.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster.Client()
}

func TestParseLikeNomad(t *testing.T) {
	client := nomadServer(t)
	for file, recorded := range jobFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := client.Jobs().ParseHCL(string(src), false)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				b, err := json.MarshalIndent(theirs, "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(recorded, append(b, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			ours, err := Parse(src, file, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(asJSON(t, theirs), asJSON(t, ours)); diff != "" {
				t.Errorf("job differs from Nomad's (-nomad +ours):\n%s", diff)
			}
		})
	}
}

// What Nomad refuses is refused here too.
func TestRefuseLikeNomad(t *testing.T) {
	client := nomadServer(t)
	for _, src := range []string{
		"", "job {}", "job \"a\" \"b\" {}", "job \"a\" {\n tpye = \"x\"\n}", "job \"a\" {\n priority = \"high\"\n}",
		"job \"a\" {\n group {\n}\n}", "job \"a\" {\n update {}\n update {}\n}", "job \"a\" {\n meta = {}\n meta {}\n}",
		"job \"a\" {\n type {}\n}", "job \"a\" {\n name = file(\"x\")\n}", "job \"a\" {\n name = nobody(\"x\")\n}",
		"job \"a\" {\n name = var.x\n}", "variable \"x\" {}\njob \"a\" {}", "locals {\n a = local.b\n b = local.a\n}\njob \"a\" {}",
		"job \"a\" {\n meta {\n x = [1]\n}\n}", "job \"a\" {\n group \"g\" {\n scaling {}\n}\n}",
		"job \"a\" {\n constraint {\n x = 1\n}\n}", "job \"a\" {\n group \"g\" {\n task \"t\" {\n kill_timeout = \"1 s\"\n}\n}\n}",
		"job \"a\" {\n group \"g\" {\n task \"t\" {\n lifecycle {}\n}\n}\n}", "job \"a\" {}\njob \"b\" {}",
	} {
		_, theirs := client.Jobs().ParseHCL(src, false)
		_, ours := Parse([]byte(src), "input.hcl", nil)
		if theirs == nil || ours == nil {
			t.Errorf("%q: Nomad says %v, we say %v", src, theirs, ours)
		}
	}
}
