package freeport

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv("FREEPORT_TAKE") == "" {
		os.Exit(m.Run())
	}
	// A process of its own that takes ports and holds them until it is told.
	for range 100 {
		port, err := Take("127.0.0.1")
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(port)
	}
	fmt.Println("all")
	_, _ = os.Stdin.Read(make([]byte, 1)) // it is closed
	os.Exit(0)
}

// No port is given out twice, to no process, though nobody listens on any.
func TestNoneTwice(t *testing.T) {
	seen := map[string]bool{}
	note := func(port string) {
		if seen[port] {
			t.Errorf("port %s is given out twice", port)
		}
		seen[port] = true
	}
	for range 2 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "FREEPORT_TAKE=1")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
		for line := ""; ; note(line) {
			if _, err := fmt.Fscanln(out, &line); err != nil {
				t.Fatal(err)
			}
			if line == "all" {
				break
			}
			if strings.Trim(line, "0123456789") != "" {
				t.Fatal(line)
			}
		}
	}
	for range 100 {
		port, err := Take("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		note(fmt.Sprint(port))
	}
}

func TestTakeCanBeUsed(t *testing.T) {
	port, err := Take("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		t.Fatalf("the port cannot be used: %v", err)
	}
	defer l.Close()
	if _, err := Take("127.0.0.256"); err == nil {
		t.Error("an address that is none is taken")
	}
}
