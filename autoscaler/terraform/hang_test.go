package terraform_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
)

// hanging nodes: a command that ignores that it is to stop, with a child.
const hangingNodes = nodesVariable + `
resource "terraform_data" "node" {
  for_each = var.nodes
  provisioner "local-exec" {
    command = each.key == "slow" ? "trap '' INT TERM; sleep 300 & echo $! > $PWD/child; wait; sleep 300" : "true"
  }
}`

func TestAProviderThatHangsIsKilled(t *testing.T) {
	t.Parallel()
	dir := workDir(t, hangingNodes)
	// Long enough for a busy machine to get as far as to the nodes.
	d := open(t, terraform.Config{Dir: dir, ApplyLimit: 15 * time.Second, Grace: 200 * time.Millisecond})
	_, err := apply(t, d, "a", "slow")
	if !errors.Is(err, terraform.ErrHung) || terraform.ReasonOf(err) != terraform.ReasonTimeout {
		t.Fatalf("error is %v, want one that took too long", err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the child's end", func() bool {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(raw)) + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
	d = open(t, terraform.Config{Dir: dir})
	mustApply(t, d, "a")
	wantNodes(t, d, "a")
}

// hangingProgram is a wrapper around Terraform that heeds no interrupt, and whose
// child holds its output open.
const hangingProgram = `#!/bin/sh
case "$1" in
version|show) echo '{"terraform_version": "1.11.4", "format_version": "1.0"}' ;;
*) sleep 300 & echo $! >"$PWD/child"; trap "" INT TERM; while :; do sleep 1; done ;;
esac
`

func TestAWrapperThatHangsIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "terraform")
	if err := os.WriteFile(program, []byte(hangingProgram), 0o755); err != nil {
		t.Fatal(err)
	}
	rewriteMain(t, dir, plainNodes)
	cfg := terraform.Config{Dir: dir, Binary: program, PlanLimit: 2 * time.Second, Grace: 200 * time.Millisecond}
	ended := make(chan terraform.Probe, 1)
	go func() { ended <- terraform.Examine(t.Context(), cfg, "spot", logger(t)) }()
	select {
	case p := <-ended:
		if len(p.Faults) != 1 || !errors.Is(p.Faults[0], terraform.ErrHung) {
			t.Errorf("faults are %v, want that it took too long", p.Faults)
		}
	case <-time.After(time.Minute):
		t.Fatal("the check does not end")
	}
	raw, err := os.ReadFile(filepath.Join(dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the child's end", func() bool {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(raw)) + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}
