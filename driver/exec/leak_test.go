package exec

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	osexec "os/exec"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"
)

// descriptors are the open ones of this process, by what they are.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestNothingLeaks(t *testing.T) {
	round := func(i int) {
		spec := shell(t, "(setsid sleep 1000 &); exit 5")
		spec.ID += "-" + strconv.Itoa(i)
		spec.Stdout = fifo(t)
		spec.PIDNamespace = i%3 == 2 && os.Geteuid() == 0
		spec.NoCgroups = i%4 == 3
		if i%5 == 4 {
			spec.NetworkNamespace = "/etc/passwd" // fails late
			if os.Geteuid() != 0 {
				return
			}
		}
		w, err := Start(soon(t), spec)
		if (err != nil) != (i%5 == 4) {
			t.Fatalf("round %d: start: %v", i, err)
		}
		if err != nil {
			return
		}
		if s, err := w.Exec(soon(t), ExecSpec{Command: []string{"true"}, TTY: i%2 == 0}); err == nil {
			if i%7 != 0 { // Close ends those that nobody waits for
				_, _ = s.Wait(soon(t))
			}
		} else if !errors.Is(err, ErrNotRunning) {
			t.Fatalf("round %d: exec: %v", i, err)
		}
		if exit := wait(t, w); exit != (Exit{Code: 5}) {
			t.Fatalf("round %d: exit = %+v", i, exit)
		}
		for range 2 {
			if err := w.Close(soon(t)); err != nil {
				t.Fatalf("round %d: close: %v", i, err)
			}
		}
		for _, dir := range w.groups.owned {
			if exists(dir) {
				t.Fatalf("round %d: cgroup %s is left", i, dir)
			}
		}
	}
	round(0) // what is made once
	round(2)
	before, goroutines := descriptors(t), runtime.NumGoroutine()
	for i := range 30 {
		round(i)
	}
	eventually(t, "goroutines are back", func() bool { return runtime.NumGoroutine() <= goroutines })
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, before %d", after, before)
	}
}

// A supervisor that is killed leaves its workload behind; Reap gets all of it.
func TestReapAfterTheSupervisor(t *testing.T) {
	for way, change := range ways() {
		t.Run(way, func(t *testing.T) {
			seconds := strconv.Itoa(200000 + os.Getpid()%100000*3 + len(way))
			spec := shell(t, "setsid /bin/sleep "+seconds+" & (setsid /bin/sleep "+seconds+" &) ; /bin/sleep "+seconds)
			change(t, &spec)
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(spec)
			if err != nil {
				t.Fatal(err)
			}
			supervisor := osexec.Command(self, "play", "supervise", string(text))
			supervisor.Stderr = os.Stderr
			out, err := supervisor.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := supervisor.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "started\n" {
				t.Fatalf("supervisor says %q, %v", line, err)
			}
			eventually(t, "it runs", func() bool { return len(sleepers(t, seconds)) == 3 })
			if err := supervisor.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = supervisor.Wait()
			if left := sleepers(t, seconds); len(left) != 3 && way != "pid namespace" {
				t.Fatalf("left by the supervisor: %v", left)
			}
			if err := Reap(soon(t), spec); err != nil {
				t.Fatal(err)
			}
			if left := sleepers(t, seconds); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			h, err := here()
			if err != nil {
				t.Fatal(err)
			}
			for _, dir := range h.place(spec).owned {
				if exists(dir) {
					t.Errorf("cgroup %s is left", dir)
				}
			}
		})
	}
}

func TestConcurrentUse(t *testing.T) {
	w := start(t, shell(t, "while :; do (setsid sleep 0.01 &); sleep 0.001; done"))
	stop := make(chan struct{})
	work := []func(){
		func() { _, _ = w.Usage() },
		func() { _ = w.Freeze(soon(t)); _ = w.Thaw(soon(t)) },
		func() { _ = w.Signal(0); _ = w.SignalAll(0) },
		func() {
			if s, err := w.Exec(soon(t), ExecSpec{Command: []string{"true"}}); err == nil {
				_, _ = s.Wait(soon(t))
			}
		},
	}
	done := make(chan struct{}, len(work))
	for _, f := range work {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		}()
	}
	for range 20 {
		if _, err := w.Usage(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Millisecond)
	}
	if err := w.Kill(soon(t)); err != nil {
		t.Error(err)
	}
	close(stop)
	for range work {
		<-done
	}
	if procs, err := w.processes(true); err != nil || len(procs) > 0 {
		t.Errorf("left: %v, %v", slices.Collect(func(yield func(int) bool) {
			for pid := range procs {
				if !yield(pid) {
					return
				}
			}
		}), err)
	}
}
