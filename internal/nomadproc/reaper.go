package nomadproc

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
)

//go:embed reaper.sh
var reaperScript string

// markVariable is in the environment of every process of a cluster: agents get
// it, and their plugins, executors and tasks inherit it.
const markVariable = "CARAVAN_DEV_CLUSTER"

// reaper is a process that outlives ours and cleans up, also when ours is
// killed or a test times out.
type reaper struct {
	cmd    *exec.Cmd
	lease  io.Closer
	output bytes.Buffer
}

func startReaper(mark, dir string, removeDir bool) (*reaper, error) {
	remove := "no"
	if removeDir {
		remove = "yes"
	}
	r := &reaper{cmd: exec.Command("/bin/sh", "-c", reaperScript, "reaper", markVariable+"="+mark, dir, remove)}
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

// run ends the cluster's processes and says what could not be cleaned up.
func (r *reaper) run() error {
	closeErr := r.lease.Close()
	if err := errors.Join(closeErr, r.cmd.Wait()); err != nil {
		return fmt.Errorf("clean up after cluster: %w: %s", err, strings.TrimSpace(r.output.String()))
	}
	if left := strings.TrimSpace(r.output.String()); left != "" {
		return fmt.Errorf("clean up after cluster: %s", left)
	}
	return nil
}
