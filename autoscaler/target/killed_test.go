package target_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad-autoscaler/sdk"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/burstapi"
)

// midway lets machines be made, and Terraform not learn of it, until the file go is
// there.
func (r *rig) midway() {
	r.t.Helper()
	path := filepath.Join(r.dir, "start.sh")
	raw, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(raw, "\nuntil [ -e \""+r.dir+"/go\" ]; do sleep 0.02; done\n"...), 0o644)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) letGo() {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "go"), nil, 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// killTerraform kills the apply that runs in the directory, and nothing else.
func (r *rig) killTerraform() {
	r.t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, f := range all {
		raw, err := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		if at, _ := os.Readlink(f); err != nil || at != r.dir || !bytes.Contains(raw, []byte("\x00apply\x00")) || bytes.HasPrefix(raw, []byte("/bin/sh")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			r.t.Fatal(err)
		}
		return
	}
	r.t.Fatal("no apply runs in the directory")
}

// await waits until something holds.
func (r *rig) await(what string, f func() bool) {
	r.t.Helper()
	for end := time.Now().Add(90 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// clients are the nodes' clients by name, each as its PID.
func (r *rig) clients() map[string][]int {
	out := map[string][]int{}
	for _, pid := range r.processes() {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || !bytes.Contains(raw, []byte("\x00dev-client\x00")) {
			continue
		}
		for _, arg := range strings.Split(string(raw), "\x00") {
			if name, is := strings.CutPrefix(arg, "-node="); is {
				out[name] = append(out[name], pid)
			}
		}
	}
	return out
}

// begin has two machines made, of which Terraform does not know.
func (r *rig) begin(l *launched) map[string][]int {
	r.t.Helper()
	r.midway()
	r.planner.want([]burstapi.Purchase{purchase("p1", "a", "b")})
	go func() { _ = l.Scale(scale(2, sdk.ScaleDirectionUp), r.policy) }() // Terraform or all of it is killed
	r.await("both machines", func() bool { return fmt.Sprint(r.nodes()) == "[a b]" })
	return r.clients()
}

// Terraform is killed while it makes machines: those that are there are found, and
// there is never a second one of a name.
func TestTerraformKilledWhileItMakes(t *testing.T) {
	const journal, doubts = ".caravan/default/nodes.journal.json", ".caravan/default/nodes.doubt.json"
	tests := map[string]struct {
		plugin bool // it is killed too
		wanted bool // the purchase still is, then
	}{
		"Terraform alone":                   {},
		"with the plugin, and still wanted": {plugin: true, wanted: true},
		"with the plugin, not wanted":       {plugin: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{})
			l := r.start()
			made := r.begin(l)
			if test.plugin {
				l.client.Kill()
			}
			r.killTerraform()
			r.letGo()
			if test.plugin {
				if !test.wanted {
					r.planner.want(nil)
				}
				l = r.start()
			}
			if test.wanted {
				r.loop(l, func(s *sdk.TargetStatus) bool { return count(2)(s) && slices.Contains(r.planner.told(), "present p1") })
				if got := r.clients(); fmt.Sprint(got) != fmt.Sprint(made) {
					t.Errorf("clients are %v, want those that were made: %v", got, made)
				}
				r.planner.want(nil)
			}
			r.loop(l, func(s *sdk.TargetStatus) bool {
				return count(0)(s) && len(r.state()) == 0 && len(r.processes()) == 0 && !r.exists(journal) && !r.exists(doubts) && len(r.nodes()) == 0
			})
			r.nothingLeft()
			told := r.planner.told()
			if !test.plugin && !slices.Contains(told, "failed p1 error") {
				t.Errorf("the planner was told %q, want that p1 failed", told)
			}
			if !test.wanted && !slices.Contains(told, "gone p1") {
				t.Errorf("the planner was told %q, want that nodes of p1 are gone: they were paid for", told)
			}
		})
	}
}

// A module that cannot look for nodes in doubt: they are drained and named, no other
// of their names is made, and nothing is done to them.
func TestStrangersOfOurs(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	for name, text := range map[string]string{"variables.tf": `variable "nodes_in_doubt" {`, "main.tf": "locals {"} {
		path := filepath.Join(r.dir, name)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// The block up to the brace that closes it.
		at := bytes.Index(raw, []byte(text))
		end := at + bytes.Index(raw[at:], []byte("\n}\n")) + 3
		raw = bytes.ReplaceAll(append(raw[:at:at], raw[end:]...), []byte("local.nodes"), []byte("var.nodes"))
		if err := os.WriteFile(path, raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l := r.start()
	made := r.begin(l)
	l.client.Kill()
	r.killTerraform()
	r.letGo()
	l = r.start()
	r.loop(l, func(s *sdk.TargetStatus) bool {
		return s.Ready && s.Meta["caravan.nodes_in_doubt"] == "a, b" && slices.Contains(r.planner.told(), "in_doubt p1") && r.drained("a") && r.drained("b")
	})
	err := l.Scale(scale(2, sdk.ScaleDirectionUp), r.policy)
	wantError(t, "making nodes that may be there", err, "Terraform's state does not know it")
	if got := r.clients(); fmt.Sprint(got) != fmt.Sprint(made) || len(r.state()) != 0 {
		t.Errorf("clients are %v and the state has %v, want what was made and nothing: %v", got, r.state(), made)
	}
	if !strings.Contains(l.log.String(), "cannot be looked for") {
		t.Error("the log does not say that nodes in doubt cannot be looked for")
	}
	r.killAll()
}

// drained says that the node with a key gets no work.
func (r *rig) drained(key string) bool {
	r.t.Helper()
	list, _, err := r.cluster.Client().Nodes().List(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, stub := range list {
		n, _, err := r.cluster.Client().Nodes().Info(stub.ID, nil)
		if err == nil && n.Meta[burstapi.MetaNode] == key && n.SchedulingEligibility == api.NodeSchedulingIneligible {
			return true
		}
	}
	return false
}
