// Package reaper cleans up after a development cluster, also when the process
// that started it is killed or a test times out.
package reaper

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
)

//go:embed reaper.sh
var script string

// Variable is in the environment of every process of a cluster: those that we
// start get it, and what they start inherits it.
const Variable = "CARAVAN_DEV_CLUSTER"

// Reaper is a process that outlives ours.
type Reaper struct {
	mark   string
	cmd    *exec.Cmd
	lease  io.WriteCloser
	output bytes.Buffer
}

// Start starts a reaper that, when its time has come, undoes what is mounted
// below dir and removes what is temporary.
func Start(dir string, temporary ...string) (*Reaper, error) {
	return StartWithNetwork("", dir, temporary...)
}

// StartWithNetwork is Start for a cluster with network namespaces whose names
// begin with the text network, and a bridge of that name with a "b".
func StartWithNetwork(network, dir string, temporary ...string) (*Reaper, error) {
	r := &Reaper{mark: Variable + "=" + rand.Text()}
	r.cmd = exec.Command("/bin/sh", append([]string{"-c", script, "reaper", r.mark, dir, network}, temporary...)...)
	r.cmd.Stdout, r.cmd.Stderr = &r.output, &r.output
	// A session of its own, so that Ctrl-C does not reach it.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	lease, err := r.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start cleaner: %w", err)
	}
	r.lease = lease
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start cleaner: %w", err)
	}
	return r, nil
}

// Mark is what the environment of the cluster's processes must hold, as
// NAME=VALUE.
func (r *Reaper) Mark() string { return r.mark }

// Run ends the cluster's processes and says what could not be cleaned up.
func (r *Reaper) Run() error { return r.finish(r.lease.Close()) }

// Dismiss ends the reaper: everything was cleaned up.
func (r *Reaper) Dismiss() error {
	_, err := io.WriteString(r.lease, "done\n")
	return r.finish(errors.Join(err, r.lease.Close()))
}

func (r *Reaper) finish(err error) error {
	if err := errors.Join(err, r.cmd.Wait()); err != nil {
		return fmt.Errorf("clean up after cluster: %w: %s", err, strings.TrimSpace(r.output.String()))
	}
	if left := strings.TrimSpace(r.output.String()); left != "" {
		return fmt.Errorf("clean up after cluster: %s", left)
	}
	return nil
}
