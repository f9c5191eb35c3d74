// Command program is what runs in the containers of tests: an image of one
// static binary needs nothing from anywhere.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// atMost ends whatever a test has left running.
const atMost = time.Minute

func main() {
	time.AfterFunc(atMost, func() { os.Exit(99) })
	if len(os.Args) < 2 {
		os.Exit(98)
	}
	args := os.Args[2:]
	switch os.Args[1] {
	case "env": // tell the environment, and end with 7
		fmt.Println(strings.Join(os.Environ(), "\n"))
		os.Exit(7)
	case "wait": // end with 3 at SIGUSR1
		c := notify(syscall.SIGUSR1)
		fmt.Println("ready")
		<-c
		fmt.Println("told")
		os.Exit(3)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		select {}
	case "say":
		fmt.Println(strings.Join(args, " "))
	case "show": // files
		for _, path := range args {
			data, err := os.ReadFile(os.ExpandEnv(path))
			fmt.Printf("%s%v\n", data, err)
		}
	case "train": // checkpoints into a file at SIGUSR1, ends with 5 at SIGTERM
		train(args[0])
	case "step": // tell progress
		must(tell(args))
	case "hog": // use more and more memory
		hog()
	case "spin":
		fmt.Println("ready")
		for {
		}
	case "count": // write numbered lines
		for i := range number(args[0]) {
			fmt.Println(i+1, filler)
		}
	case "terminal": // tell of the terminal, and say again what is typed
		terminal()
	}
}

// filler makes lines of a usual length.
var filler = strings.Repeat("-", 80)

func number(text string) int {
	n, err := strconv.Atoi(text)
	must(err)
	return n
}

func notify(signals ...os.Signal) <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, signals...)
	return c
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func train(marker string) {
	checkpoint, end := notify(syscall.SIGUSR1), notify(syscall.SIGTERM)
	must(tell([]string{"step 41"}))
	fmt.Println("ready")
	for {
		select {
		case <-checkpoint:
			must(os.WriteFile(marker+".new", []byte(`{"step":42}`), 0o600))
			must(os.Rename(marker+".new", marker))
			fmt.Println("checkpoint")
		case <-end:
			fmt.Println("bye")
			os.Exit(5)
		case <-time.After(20 * time.Millisecond):
			fmt.Println("tick")
		}
	}
}

func tell(lines []string) error {
	conn, err := net.Dial("unix", os.Getenv("CARAVAN_SOCKET"))
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(conn, strings.Join(lines, "\n")); err != nil {
		return err
	}
	return conn.Close()
}

func hog() {
	var kept [][]byte
	for range 4096 {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
	}
	fmt.Println("has", len(kept), "MiB")
}

func terminal() {
	size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
	if err != nil {
		fmt.Println("no terminal")
		os.Exit(1)
	}
	fmt.Printf("terminal of %dx%d\n", size.Col, size.Row)
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	fmt.Printf("typed %s\n", in.Text())
	os.Exit(6)
}
