package complaints

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// docPath is the table for people, written from the tests with -update.
const docPath = "../../docs/complaints.md"

var update = flag.Bool("update", false, "write "+docPath+" anew")

// repositories are where the complaints are.
var repositories = map[string]string{
	"nomad":               "https://github.com/hashicorp/nomad",
	"nomad-device-nvidia": "https://github.com/hashicorp/nomad-device-nvidia",
	"k8s-device-plugin":   "https://github.com/NVIDIA/k8s-device-plugin",
}

func document(t *testing.T) string {
	var b strings.Builder
	b.WriteString("# Public complaints, and what happens on Caravan\n\n" +
		"Each row is a test of `e2e/complaints`, on the stand-in for Nomad with the real device\n" +
		"plugin and planner. Complaints about Kubernetes are shown as their kind is on Nomad.\n" +
		"`go test ./e2e/complaints -run TestDocument -update` writes this page.\n\n" +
		"| complaint | what it says | on Caravan | test |\n|---|---|---|---|\n")
	for _, c := range complaints {
		repo, number, _ := strings.Cut(c.name, "#")
		base, ok := repositories[repo]
		if !ok {
			t.Errorf("%s: no repository %q", c.name, repo)
		}
		fmt.Fprintf(&b, "| [%s](%s/issues/%s) | %s | %s | `TestComplaints/%s` |\n", c.name, base, number, c.fact, c.caravan, c.name)
	}
	return b.String()
}

func TestDocument(t *testing.T) {
	want := document(t)
	if *update {
		if err := os.WriteFile(docPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docPath)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not what the tests say; write it with -update (-want +got):\n%s", docPath, diff)
	}
}
