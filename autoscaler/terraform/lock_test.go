package terraform_test

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
)

func httpNodes(dir string, b *backend) string {
	return fmt.Sprintf("terraform {\n  backend \"http\" {\n    address = %q\n    lock_address = %q\n    unlock_address = %q\n  }\n}\n", b.URL, b.URL, b.URL) + steppingNodes(dir)
}

// The lock of the state outlives a process that was killed, where the state is kept
// elsewhere. This backend does not tell whose it is: a person has to decide.
func TestLockOfTheStateIsLeftBehind(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	dir := workDir(t, "")
	rewriteMain(t, dir, httpNodes(dir, b))
	plugin := startPlugin(t, dir, "a")
	await(t, "the node to be begun", begun(dir, "a"))
	if b.lockID() == "" {
		t.Fatal("nobody holds the state's lock during an apply")
	}
	pid := terraformIn(t, dir)
	if err := errors.Join(plugin.Process.Kill(), syscall.Kill(pid, syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	_ = plugin.Wait() // it was killed
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	d := open(t, terraform.Config{Dir: dir, LockWait: 1})
	id := b.lockID()
	_, err := apply(t, d, "b")
	if !errors.Is(err, terraform.ErrLocked) {
		t.Fatalf("error is %v, want that the state is locked", err)
	}
	for _, want := range []string{"does not name", "force-unlock " + id} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q in it", err, want)
		}
	}
	if b.lockID() != id {
		t.Error("a lock of which nobody tells whose it is was taken away")
	}
	b.unlock()
	mustApply(t, d, "b")
	wantNodes(t, d, "b")
}

// lockingTerraform is a program that stands before Terraform: while a file is there
// it says that the state is locked, as backends do that tell by whom.
func lockingTerraform(t *testing.T, dir, who string, created time.Time) string {
	t.Helper()
	detail := fmt.Sprintf(`Error message: locked\nLock Info:\n  ID:        lock-1\n  Operation: OperationTypeApply\n  Who:       %s\n  Created:   %s\n`, who, created.UTC().Format("2006-01-02 15:04:05.999999999 -0700 MST"))
	text := fmt.Sprintf(`#!/bin/sh
if [ "$1" = plan ] && [ -e %[1]s/locked ]; then
	printf '%%s\n' '{"@level":"error","@message":"Error","type":"diagnostic","diagnostic":{"severity":"error","summary":"Error acquiring the state lock","detail":"%[2]s"}}'
	exit 1
fi
if [ "$1" = force-unlock ]; then
	echo "$@" > %[1]s/unlocked
	rm %[1]s/locked
	exit 0
fi
exec %[3]s "$@"
`, dir, detail, realTerraform(t))
	if err := os.WriteFile(filepath.Join(dir, "locked"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return script(t, text)
}

// A lock that a killed run of ours has left is taken away; another's, or one from
// before that run, never.
func TestLocksThatNameTheirHolder(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	me, killed := u.Username+"@"+host, time.Now().Add(-time.Minute)
	tests := map[string]struct {
		who         string
		created     time.Time
		interrupted bool
		want        bool // it is taken away
	}{
		"ours":                      {me, killed.Add(time.Second), true, true},
		"another's":                 {"ann@workstation", killed.Add(time.Second), true, false},
		"older than the killed run": {me, killed.Add(-time.Hour), true, false},
		"newer than our try":        {me, time.Now().Add(time.Hour), true, false},
		"nothing was killed":        {me, killed.Add(time.Second), false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := workDir(t, plainNodes)
			d := open(t, terraform.Config{Dir: dir, Binary: lockingTerraform(t, dir, test.who, test.created), LockWait: 1})
			if test.interrupted {
				if err := os.MkdirAll(filepath.Join(dir, ".caravan", "default"), 0o700); err != nil {
					t.Fatal(err)
				}
				journal := fmt.Sprintf(`{"mark": "gone", "phase": "apply", "started": %q}`, killed.Format(time.RFC3339Nano))
				if err := os.WriteFile(filepath.Join(dir, ".caravan", "default", "nodes.journal.json"), []byte(journal), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := apply(t, d, "a")
			unlocked, _ := os.ReadFile(filepath.Join(dir, "unlocked"))
			if test.want {
				if err != nil || !strings.Contains(string(unlocked), "lock-1") {
					t.Errorf("error is %v, unlocked %q; want the lock taken away", err, unlocked)
				}
				wantNodes(t, d, "a")
				return
			}
			if !errors.Is(err, terraform.ErrLocked) || !strings.Contains(err.Error(), "held by "+test.who) || len(unlocked) > 0 {
				t.Errorf("error is %v, unlocked %q; want that %s holds it", err, unlocked, test.who)
			}
		})
	}
}
