package exec

import (
	"encoding/json"
	"fmt"
	"os"
	osexec "os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// enter gets the calling thread into the namespaces and mounts of a workload.
func (c *childConfig) enter() error {
	for i, kind := range c.Join {
		if err := joinNamespace(firstNamespaceFD+i, kind); err != nil {
			return err
		}
	}
	if c.NetworkNamespace != "" {
		fd, err := unix.Open(c.NetworkNamespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
		}
		if err := step("network_namespace", "join network namespace "+c.NetworkNamespace, err); err != nil {
			return err
		}
	}
	if !c.OwnMounts {
		return nil
	}
	// Mounts of the host still arrive, those made here stay here.
	if err := step("", "keep mounts from the host", unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, "")); err != nil {
		return err
	}
	for _, m := range c.Mounts {
		if err := m.bind(); err != nil {
			return err
		}
	}
	if c.MountProc {
		return step("", "mount /proc", unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	}
	return nil
}

func joinNamespace(fd, kind int) error {
	defer func() { _ = unix.Close(fd) }()
	if kind == unix.CLONE_NEWNS {
		// Threads share root and working directory, which a mount namespace
		// cannot be changed under.
		if err := step("", "unshare directories", unix.Unshare(unix.CLONE_FS)); err != nil {
			return err
		}
	}
	return step("", "join namespace of the workload", unix.Setns(fd, kind))
}

func (m Mount) bind() error {
	name := fmt.Sprintf("mount %s on %s", m.HostPath, m.TaskPath)
	if err := step("mounts", name, unix.Mount(m.HostPath, m.TaskPath, "", unix.MS_BIND|unix.MS_REC, "")); err != nil {
		return err
	}
	if m.Propagation != "host-to-task" {
		if err := step("mounts", name, unix.Mount("", m.TaskPath, "", unix.MS_PRIVATE|unix.MS_REC, "")); err != nil {
			return err
		}
	}
	if !m.ReadOnly {
		return nil
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	return step("mounts", name+" read-only", unix.MountSetattr(unix.AT_FDCWD, m.TaskPath, unix.AT_RECURSIVE, &attr))
}

// report is what an intermediate process tells about the command.
type report struct {
	// PID is the command's in its namespace, told before it runs.
	PID int `json:"pid,omitempty"`
	// Ended is told when it has ended, with Status as of wait(2).
	Ended  bool   `json:"ended,omitempty"`
	Status uint32 `json:"status,omitempty"`
}

// between starts the command as a child, reaps everything that ends up here, and
// tells how the command ended. As an init it then ends, and with it the PID
// namespace.
func (c *childConfig) between(config *json.Decoder, faults *os.File) (code int, err error) {
	reports := json.NewEncoder(os.NewFile(reportFD, "reports"))
	unix.CloseOnExec(reportFD)
	inner := *c
	inner.Between, inner.Join, inner.NetworkNamespace = false, nil, ""
	if c.OwnMounts {
		inner.OwnMounts, inner.MountProc, inner.Mounts = false, false, nil
	}
	// As an init it must not be ended by the workload.
	catchSignals()
	if err := c.enter(); err != nil {
		return 0, err
	}
	pid, feed, err := c.startInner(faults)
	if err != nil {
		return 0, step("", "start inside namespaces", err)
	}
	if err := reports.Encode(report{PID: pid}); err != nil {
		return 0, step("", "report", err)
	}
	// The other side looks for the command's PID on the host now; it says when
	// it has found it.
	var found bool
	if err := config.Decode(&found); err != nil || !found {
		return 0, step("", "wait for the go-ahead", err)
	}
	if err := json.NewEncoder(feed).Encode(inner); err != nil {
		return 0, step("", "hand on", err)
	}
	_ = feed.Close()
	_ = faults.Close()
	status := reapUntil(pid)
	_ = reports.Encode(report{Ended: true, Status: uint32(status)})
	return status.ExitStatus() & 0xff, nil
}

// startInner runs the binary once more, below this process.
func (c *childConfig) startInner(faults *os.File) (pid int, feed *os.File, err error) {
	config, feed, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = config.Close() }()
	// A fork by the locked thread: it is in the namespaces.
	pid, err = syscall.ForkExec("/proc/self/exe", []string{childName}, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2, config.Fd(), faults.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: c.TTY},
	})
	if err != nil {
		_ = feed.Close()
	}
	return pid, feed, err
}

// reapUntil reaps children until the given one has ended.
func reapUntil(pid int) syscall.WaitStatus {
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return syscall.WaitStatus(125 << 8)
		case ended == pid && (status.Exited() || status.Signaled()):
			return status
		}
	}
}

// namespaceKinds are what a command run inside a workload may have to join, in
// that order: with the mounts changes what paths mean.
var namespaceKinds = []struct {
	name string
	kind int
}{{"ipc", unix.CLONE_NEWIPC}, {"net", unix.CLONE_NEWNET}, {"pid", unix.CLONE_NEWPID}, {"mnt", unix.CLONE_NEWNS}}

// cloneFlags are the namespaces that a workload is started in.
func (s Spec) cloneFlags() uintptr {
	var flags uintptr
	if s.PIDNamespace {
		flags |= unix.CLONE_NEWPID
	}
	if s.ownMounts() {
		flags |= unix.CLONE_NEWNS
	}
	if s.IPCNamespace {
		flags |= unix.CLONE_NEWIPC
	}
	return flags
}

func (s Spec) ownMounts() bool { return s.PIDNamespace || s.MountNamespace || len(s.Mounts) > 0 }

// childCommand is the binary run once more.
func childCommand() *osexec.Cmd {
	return &osexec.Cmd{Path: "/proc/self/exe", Args: []string{childName}}
}
