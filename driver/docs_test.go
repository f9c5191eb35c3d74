package driver

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/driver/config"
	"github.com/caravan-sched/caravan/driver/rendezvous"
)

var update = flag.Bool("update", false, "write the tables of options into docs/driver.md")

const docFile = "../docs/driver.md"

// TestDocumentation: the tables of options in the documentation are the
// schemas', and every variable that a task gets is named.
func TestDocumentation(t *testing.T) {
	was, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	doc := was
	for name, options := range map[string][]config.Option{"plugin": config.PluginOptions, "task": config.TaskOptions} {
		begin := []byte("<!-- " + name + ": go test ./driver -run TestDocumentation -update -->\n")
		end := []byte("<!-- end of " + name + " -->\n")
		before, rest, opened := bytes.Cut(doc, begin)
		_, after, closed := bytes.Cut(rest, end)
		if !opened || !closed {
			t.Fatalf("%s lacks the marks of the table %q", docFile, name)
		}
		doc = bytes.Join([][]byte{before, begin, []byte(config.Table(options)), end, after}, nil)
	}
	if *update {
		if err := os.WriteFile(docFile, doc, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(doc), string(was)); diff != "" {
		t.Errorf("the tables are old; run the command that stands above them:\n%s", diff)
	}
	for name := range variables(t) {
		if !strings.Contains(string(was), "`"+name+"`") {
			t.Errorf("the variable %s is not documented", name)
		}
	}
}

// variables are all that a member of an elastic gang can get.
func variables(t *testing.T) map[string]string {
	t.Helper()
	m := rendezvous.Membership{
		Epoch: "e", Generation: 1, Namespace: "n", Job: "j", MasterAddr: "10.0.0.1", MasterPort: 29500, Min: 1, Max: 2,
		Members: []rendezvous.Member{{Group: "g", Alloc: "a", Node: "n1", NodeName: "node-1", Address: "10.0.0.1", Processes: 1}},
	}
	env, err := rendezvous.Env(m, "a", rendezvous.Local{
		Interface: "eth0", MembershipFile: "/m", HostFile: "/h", DeepSpeedHostFile: "/d", Socket: "/s", HTTP: "http://127.0.0.1:1",
	})
	if err != nil {
		t.Fatal(err)
	}
	return env
}
