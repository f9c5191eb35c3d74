package reaper_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/internal/devcluster/reaper"
)

// asCluster tells the test's binary to be a process with a cluster: it starts
// one of its processes, prints its PID, and is to be killed.
const asCluster = "CARAVAN_TEST_AS_CLUSTER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asCluster); dir != "" {
		r, err := reaper.Start(dir, dir)
		if err != nil {
			panic(err)
		}
		cmd := sleeper(r)
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		os.Stdout.WriteString(strconv.Itoa(cmd.Process.Pid) + "\n")
		select {}
	}
	os.Exit(m.Run())
}

func sleeper(r *reaper.Reaper) *exec.Cmd {
	cmd := exec.Command("sleep", "300")
	cmd.Env = append(os.Environ(), r.Mark())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

func filled(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func there(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestRun(t *testing.T) {
	kept, temporary := filled(t), filled(t)
	r, err := reaper.Start(kept, temporary)
	if err != nil {
		t.Fatal(err)
	}
	cmd := sleeper(r)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := r.Run(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process came to its end by itself")
	}
	if !there(t, kept) || there(t, temporary) {
		t.Errorf("kept is there: %v, temporary: %v", there(t, kept), there(t, temporary))
	}
}

func TestDismiss(t *testing.T) {
	dir := filled(t)
	r, err := reaper.Start(dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	cmd := sleeper(r)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := r.Dismiss(); err != nil {
		t.Error(err)
	}
	if !there(t, dir) || cmd.Process.Signal(syscall.Signal(0)) != nil {
		t.Error("a dismissed cleaner cleaned up")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
}

// When the cluster's process is killed, what it has started and its folder go.
func TestKilledProcess(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGQUIT} {
		dir := filled(t)
		cluster := exec.Command(os.Args[0])
		cluster.Env = append(os.Environ(), asCluster+"="+dir)
		out, err := cluster.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 32)
		n, err := out.Read(line)
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		_ = cluster.Wait() // it was killed
		pid := strings.TrimSpace(string(line[:n]))
		for end := time.Now().Add(90 * time.Second); there(t, dir) || lives(pid); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("after %v: folder there: %v, process %s lives: %v", signal, there(t, dir), pid, lives(pid))
			}
		}
	}
}

// lives says whether a process is more than a corpse.
func lives(pid string) bool {
	raw, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !bytes.Contains(raw, []byte(") Z "))
}
