package progress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/driver/gangapi"
)

// faultList collects what is told.
type faultList struct {
	mu   sync.Mutex
	told []string
}

func (f *faultList) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, err.Error())
}

func (f *faultList) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.told...)
}

func open(t *testing.T, config Config) (*Source, *faultList) {
	t.Helper()
	f := &faultList{}
	config.Fault = f.add
	s, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, f
}

// until waits for something to become true.
func until(t *testing.T, s *Source, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(90 * time.Second)
	for {
		changed := s.Changed()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond): // faults do not change the state
		case <-deadline:
			t.Fatalf("%s: it does not come; progress %+v", what, s.Progress())
		}
	}
}

func dial(t *testing.T, s *Source) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", s.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

func stepIs(s *Source, want int64) func() bool {
	return func() bool {
		p := s.Progress()
		return p != nil && p.Step != nil && *p.Step == want
	}
}

func TestSocket(t *testing.T) {
	s, f := open(t, Config{Socket: filepath.Join(t.TempDir(), "s")})
	if s.Progress() != nil {
		t.Errorf("progress before anything was told: %+v", s.Progress())
	}
	conn := dial(t, s)
	send(t, conn, "step 1\nloss 0.5\nthroughput=10 step=2\n")
	send(t, conn, "checkpoint step=2 path=/data/step-2\n{\"step\":")
	until(t, s, "step 2", stepIs(s, 2))
	send(t, conn, "3}")
	conn.Close() // the last line lacks its end
	until(t, s, "step 3", stepIs(s, 3))
	got := s.Progress()
	if got.Checkpoint == nil || got.Checkpoint.AgeMS < 0 || got.Checkpoint.AgeMS > 60_000 || got.At.Before(got.Checkpoint.At) {
		t.Fatalf("progress %+v, checkpoint %+v", got, got.Checkpoint)
	}
	want := gangapi.Progress{At: got.At, Step: ptr[int64](3), Loss: ptr(0.5), Throughput: ptr(10.0),
		Checkpoint: &gangapi.Checkpoint{At: got.Checkpoint.At, AgeMS: got.Checkpoint.AgeMS, Step: ptr[int64](2), Path: "/data/step-2"}}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	if len(f.all()) > 0 {
		t.Errorf("faults %q", f.all())
	}
}

// A loss that is no number is told, and not reported: JSON could not hold it.
func TestLossIsNoNumber(t *testing.T) {
	s, f := open(t, Config{Socket: filepath.Join(t.TempDir(), "s")})
	send(t, dial(t, s), "loss 1\nloss nan\nloss nan\nstep 1\n")
	until(t, s, "step 1", stepIs(s, 1))
	b, err := json.Marshal(s.Progress())
	if err != nil || s.Progress().Loss != nil {
		t.Errorf("progress %s, %v", b, err)
	}
	if diff := cmp.Diff([]string{"the loss is NaN"}, f.all()); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestSocketGarbage(t *testing.T) {
	s, f := open(t, Config{Socket: filepath.Join(t.TempDir(), "s")})
	conn := dial(t, s)
	// A line of 100 kB counts as one fault, and what follows it is read.
	send(t, conn, strings.Repeat("x", 100_000)+"\nstep 1\n")
	until(t, s, "step 1", stepIs(s, 1))
	// A flood ends the connection.
	flood := strings.Repeat("nonsense\n", 1000)
	for {
		if _, err := io.WriteString(conn, flood); err != nil {
			break
		}
	}
	// Others are not harmed.
	send(t, dial(t, s), "step 2\n")
	until(t, s, "step 2", stepIs(s, 2))
	if got := f.all(); len(got) != 2 || !strings.Contains(got[0], "longer than") || !strings.Contains(got[1], "in a row") {
		t.Errorf("faults %q, want the long line and the flood, once each", got)
	}
}

func TestSocketConnectionsAreBounded(t *testing.T) {
	s, f := open(t, Config{Socket: filepath.Join(t.TempDir(), "s")})
	first := dial(t, s)
	send(t, first, "step 1\n")
	until(t, s, "step 1", stepIs(s, 1))
	for range maxConnections {
		dial(t, s)
	}
	until(t, s, "the fault", func() bool { return len(f.all()) == 1 })
	send(t, first, "step 2\n")
	until(t, s, "step 2", stepIs(s, 2))
}

// What is written faster than it may be taken in waits, and is not lost.
func TestRateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		line := fmt.Sprintf("checkpoint step=1 path=/%s\n", strings.Repeat("x", 4000))
		n := 5 * maxBytesPerSecond / len(line)
		r, w := io.Pipe()
		go func() {
			for range n {
				io.WriteString(w, line)
			}
			io.WriteString(w, "step 7\n")
			w.Close()
		}()
		began := time.Now()
		s.serve(t.Context(), r)
		if took := time.Since(began); took < 3*time.Second || took > 5*time.Second {
			t.Errorf("five seconds' worth of lines, one at once, took %v", took)
		}
		if !stepIs(s, 7)() {
			t.Errorf("progress %+v", s.Progress())
		}
	})
}

func TestSocketPath(t *testing.T) {
	dir := t.TempDir()
	t.Run("old socket", func(t *testing.T) {
		path := filepath.Join(dir, "s")
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
		s, _ := open(t, Config{Socket: path, SocketMode: 0o622, SocketOwner: &Owner{os.Getuid(), os.Getgid()}})
		info, err := os.Stat(s.Socket())
		if err != nil || info.Mode().Perm() != 0o622 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	})
	t.Run("something else is there", func(t *testing.T) {
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(Config{Socket: path}); err == nil {
			s.Close()
			t.Error("a file was taken for an old socket")
		}
		if b, err := os.ReadFile(path); string(b) != "mine" {
			t.Errorf("the file holds %q, %v", b, err)
		}
	})
	t.Run("too long", func(t *testing.T) {
		t.Setenv("TMPDIR", filepath.Join(dir, strings.Repeat("y", 100)))
		s, _ := open(t, Config{Socket: filepath.Join(dir, strings.Repeat("x", 200))})
		send(t, dial(t, s), "step 1\n")
		until(t, s, "step 1", stepIs(s, 1))
		s.Close()
		if _, err := os.Stat(filepath.Dir(s.Socket())); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the short path is left: %v", err)
		}
	})
	t.Run("no directory", func(t *testing.T) {
		if s, err := Open(Config{Socket: filepath.Join(dir, "none", "s")}); err == nil {
			s.Close()
			t.Error("listening in a directory that is not there")
		}
	})
}

func TestHook(t *testing.T) {
	s, f := open(t, Config{HTTP: true})
	base := s.URL()
	root := base[:strings.LastIndex(base, "/")]
	tests := []struct {
		name, method, url, body string
		want                    int
	}{
		{"progress", "POST", base + HookPath, `{"step":5,"loss":0.5,"checkpoint":{"path":"/a"}}`, 204},
		{"empty", "POST", base + HookPath, `{}`, 204},
		{"garbage", "POST", base + HookPath, `step 7`, 400},
		{"unknown key", "POST", base + HookPath, `{"stepp":7}`, 400},
		{"nothing", "POST", base + HookPath, ``, 400},
		{"too large", "POST", base + HookPath, `{"checkpoint":"` + strings.Repeat("x", maxLine) + `"}`, 413},
		{"without the secret", "POST", root + HookPath, `{"step":7}`, 404},
		{"wrong method", "GET", base + HookPath, ``, 405},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), test.method, test.url, strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, _ := io.ReadAll(resp.Body); resp.StatusCode != test.want || test.want == 400 && !strings.Contains(string(body), `"error"`) {
				t.Errorf("answer %d %s, want %d", resp.StatusCode, body, test.want)
			}
		})
	}
	p := s.Progress()
	if !stepIs(s, 5)() || p.Checkpoint == nil || p.Checkpoint.Path != "/a" || len(f.all()) != 1 {
		t.Errorf("progress %+v, faults %q", p, f.all())
	}
}

func TestNewer(t *testing.T) {
	dir := t.TempDir()
	ckpt := filepath.Join(dir, "ckpt")
	write := func(name string) {
		t.Helper()
		if err := os.MkdirAll(ckpt, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(ckpt, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("step-1")
	s, _ := open(t, Config{Checkpoints: []string{ckpt}, Settle: 50 * time.Millisecond, Poll: 50 * time.Millisecond, Socket: filepath.Join(dir, "s")})
	until(t, s, "the old checkpoint", func() bool { p := s.Progress(); return p != nil && *p.Checkpoint.Step == 1 })
	write("step-2") // begun before the mark
	mark := s.Mark(t.Context())
	until(t, s, "step 2", func() bool { return *s.Progress().Checkpoint.Step == 2 })
	if c, ok := s.Newer(mark); ok {
		t.Errorf("a checkpoint that was begun before the mark counts as newer: %+v", c)
	}
	write("step-3")
	if c, err := s.WaitNewer(t.Context(), mark); err != nil || *c.Step != 3 || c.Path != ckpt+"/step-3" {
		t.Errorf("newer than the mark: %+v, %v", c, err)
	}

	// One that the code tells of counts from then on, without any settling.
	mark = s.Mark(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.WaitNewer(ctx, mark); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	send(t, dial(t, s), "checkpoint step=4\n")
	if c, err := s.WaitNewer(t.Context(), mark); err != nil || *c.Step != 4 {
		t.Errorf("told after the mark: %+v, %v", c, err)
	}
}

// The kernel's word brings a look about long before the next poll.
func TestKernelTells(t *testing.T) {
	dir := t.TempDir()
	probe := notify()
	if probe == nil {
		t.Skip("the kernel has no watches left to give")
	}
	probe.Close()
	s, _ := open(t, Config{Checkpoints: []string{dir + "/*.ckpt"}, Settle: 10 * time.Millisecond, Poll: time.Hour})
	s.Mark(t.Context()) // the first look is over, the directory is watched
	if err := os.WriteFile(dir+"/7.ckpt", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, s, "the checkpoint", func() bool { return s.Progress() != nil })
}

// Without the kernel's word, polling finds the same, and time only matters as
// it passes, not as the clock says.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		found := make(chan string, 10)
		w := newWatcher(Config{Checkpoints: []string{dir}, Settle: time.Second, Poll: 10 * time.Second}, newFaults(nil),
			func() uint64 { return 1 }, func(c checkpoint) { found <- filepath.Base(c.path) })
		ctx, cancel := context.WithCancel(t.Context())
		go w.run(ctx, nil)
		synctest.Wait()
		if err := os.WriteFile(dir+"/a", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if len(found) > 0 {
			t.Errorf("complete at its first sight: %q", <-found)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(found) != 1 || <-found != "a" {
			t.Errorf("found %d other checkpoints, want a", len(found))
		}
		cancel()
		synctest.Wait()
	})
}

func TestConfigFaults(t *testing.T) {
	_, err := Open(Config{Checkpoints: []string{"rel", "/[", "/a/**", "/ok/*"}, Settle: -1})
	for _, want := range []string{`"rel": must be absolute`, `"/["`, "** is not known", "settle = -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

func TestFaultsAreBounded(t *testing.T) {
	n := 0
	f := newFaults(func(error) { n++ })
	for i := range 10 * maxFaults {
		f.tell(fmt.Sprint(i), errors.New("x"))
		f.tell("0", errors.New("x"))
	}
	if n != maxFaults {
		t.Errorf("%d faults told, want %d", n, maxFaults)
	}
}
