package orphan

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

const role = "CARAVAN_ORPHAN_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "autoscaler":
		plugin := exec.Command(os.Args[0])
		plugin.Env = append(os.Environ(), role+"=plugin")
		plugin.Stdout = os.Stdout
		if err := plugin.Run(); err != nil {
			os.Exit(1)
		}
	case "plugin":
		Watch(10*time.Millisecond, End)
		fmt.Println("runs")
		time.Sleep(time.Hour)
	default:
		os.Exit(m.Run())
	}
}

// A plugin ends when its parent is killed, and not before.
func TestPluginEndsWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), role+"=autoscaler")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	parent.Stdout = write
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	out := bufio.NewReader(read)
	if line, err := out.ReadString('\n'); line != "runs\n" {
		t.Fatalf("the plugin says %q (%v)", line, err)
	}
	if err := read.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := out.ReadByte(); !os.IsTimeout(err) {
		t.Fatalf("the plugin ended while its parent lives (%v)", err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	if err := read.SetReadDeadline(time.Now().Add(90 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := out.ReadByte(); err != io.EOF {
		t.Errorf("the plugin lives on: %v", err)
	}
}
