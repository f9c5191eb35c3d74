package progress

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// bench is a scanner with a clock of its own on a directory.
type bench struct {
	*scanner
	t      *testing.T
	dir    string
	now    time.Time
	seq    uint64
	faults []string
}

func newBench(t *testing.T, patterns ...string) *bench {
	b := &bench{t: t, dir: t.TempDir(), now: time.Now()}
	for i := range patterns {
		patterns[i] = b.dir + "/" + patterns[i]
	}
	f := newFaults(func(err error) { b.faults = append(b.faults, strings.ReplaceAll(err.Error(), b.dir+"/", "")) })
	b.scanner = &scanner{patterns: patterns, settle: time.Second, faults: f, entries: map[string]*entry{},
		begin: func() uint64 { b.seq++; return b.seq }}
	return b
}

func (b *bench) write(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// after looks again after some time and returns what became complete, as its
// path, "" for nothing.
func (b *bench) after(d time.Duration) string {
	b.t.Helper()
	b.now = b.now.Add(d)
	out := b.scan(b.now)
	if out.complete == nil {
		return ""
	}
	return strings.TrimPrefix(out.complete.path, b.dir+"/")
}

func (b *bench) want(got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("complete is %q, want %q; faults %q", got, want, b.faults)
	}
}

func TestScanSettles(t *testing.T) {
	b := newBench(t, "ckpt")
	b.want(b.after(0), "")
	b.write("ckpt/step-1/rank0", "half")
	b.want(b.after(time.Second), "")
	b.write("ckpt/step-1/rank0", "half and more")
	b.want(b.after(time.Second), "") // it was growing
	b.want(b.after(time.Second/2), "")
	b.write("ckpt/step-1/deep/rank1", "another")
	b.want(b.after(time.Second), "") // a file was added inside
	b.want(b.after(time.Second), "ckpt/step-1")
	b.want(b.after(time.Second), "") // told once
	if len(b.faults) > 0 {
		t.Errorf("faults %q", b.faults)
	}
}

func TestScanNewest(t *testing.T) {
	b := newBench(t, "ckpt")
	for i, name := range []string{"step-3", "step-1", "step-2"} {
		b.write("ckpt/"+name, "x")
		at := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(filepath.Join(b.dir, "ckpt", name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	b.after(0)
	b.want(b.after(time.Second), "ckpt/step-2") // the last by the files' times

	// What comes while watching is newer, whatever its time says.
	b.write("ckpt/step-4", "x")
	long := time.Now().Add(-1000 * time.Hour)
	if err := os.Chtimes(filepath.Join(b.dir, "ckpt/step-4"), long, long); err != nil {
		t.Fatal(err)
	}
	b.after(time.Second)
	b.want(b.after(time.Second), "ckpt/step-4")
	// Its age counts from when it was seen.
	if e := b.entries[b.dir+"/ckpt/step-4"]; e.first {
		t.Error("what came later counts as there from the start")
	}
}

// A version of an entry begins when it is first seen to differ.
func TestScanVersions(t *testing.T) {
	b := newBench(t, "latest")
	b.write("latest", "1")
	b.after(0)
	b.want(b.after(time.Second), "latest")
	first := b.entries[b.dir+"/latest"].begun

	b.write("latest", "22")
	b.after(time.Second)
	second := b.entries[b.dir+"/latest"].begun
	b.write("latest", "333")
	b.after(time.Second / 2)
	if got := b.entries[b.dir+"/latest"].begun; second <= first || got != second {
		t.Errorf("versions begin at %d, %d, and %d while the second is written", first, second, got)
	}
	b.want(b.after(time.Second), "latest")

	// Replaced while half-written: that is another version.
	b.write("latest", "4444")
	b.after(time.Second / 2)
	third := b.entries[b.dir+"/latest"].begun
	b.write("new", "55555")
	if err := os.Rename(b.dir+"/new", b.dir+"/latest"); err != nil {
		t.Fatal(err)
	}
	b.after(time.Second / 2)
	if got := b.entries[b.dir+"/latest"].begun; third <= second || got <= third {
		t.Errorf("versions begin at %d, %d, %d; want them to grow", second, third, got)
	}
}

func TestScanPatterns(t *testing.T) {
	tests := map[string]struct {
		pattern string
		files   []string
		want    string
	}{
		"directory":              {"d", []string{"d/step-1"}, "d/step-1"},
		"file":                   {"d/COMPLETE", []string{"d/COMPLETE", "d/other"}, "d/COMPLETE"},
		"glob":                   {"d/*/COMPLETE", []string{"d/a/COMPLETE", "d/b/other"}, "d/a/COMPLETE"},
		"glob of directories":    {"run-[0-9]/step-*", []string{"run-1/step-5/x", "run-x/step-6/x"}, "run-1/step-5"},
		"half-written by name":   {"d", []string{"d/a.tmp", "d/.b", "d/c.partial", "d/e~", "d/f.TMP"}, ""},
		"nothing matches":        {"d/*.ckpt", []string{"d/a"}, ""},
		"directory where a file": {"d/*/x", []string{"d/a"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.pattern)
			for _, f := range test.files {
				b.write(f, "x")
			}
			b.after(0)
			b.want(b.after(time.Second), test.want)
		})
	}
}

func TestScanLinks(t *testing.T) {
	b := newBench(t, "latest", "ckpt")
	link := func(to, name string) {
		t.Helper()
		if err := os.MkdirAll(b.dir+"/ckpt", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(b.dir, name)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(b.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	b.write("all/step-1/x", "x")
	b.write("all/step-2/x", "x")
	link("all/step-1", "latest")
	link("nowhere", "ckpt/broken")
	link("loop", "ckpt/loop")
	b.after(0)
	b.want(b.after(time.Second), "latest")
	link("all/step-2", "latest") // the link says which is the last
	b.after(time.Second)
	b.want(b.after(time.Second), "latest")
	if len(b.faults) != 2 || !strings.Contains(b.faults[0], "ckpt/broken is a link to nowhere, which is not there") || !strings.Contains(b.faults[1], "loop") {
		t.Errorf("faults %q, want the broken link and the loop, once each", b.faults)
	}
	link("../all/step-1", "ckpt/broken") // mended
	b.after(time.Second)
	b.want(b.after(time.Second), "ckpt/broken")
}

func TestScanOddities(t *testing.T) {
	b := newBench(t, "ckpt", "fifo/*", "gone")
	b.write("ckpt/step-1", "x")
	if err := os.Mkdir(b.dir+"/fifo", 0o700); err != nil {
		t.Fatal(err)
	}
	// Nothing is opened that could block.
	if err := syscall.Mkfifo(b.dir+"/ckpt/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	b.after(0)
	if err := os.Remove(b.dir + "/ckpt/step-1"); err != nil {
		t.Fatal(err)
	}
	b.want(b.after(time.Second), "ckpt/pipe") // a name is a name
	if _, ok := b.entries[b.dir+"/ckpt/step-1"]; ok {
		t.Error("an entry that has vanished is remembered")
	}
	if len(b.faults) > 0 {
		t.Errorf("faults %q", b.faults)
	}
}

func TestScanUnreadable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("changing the user for a directory that cannot be read takes root")
	}
	b := newBench(t, "ckpt")
	b.write("ckpt/step-1/x", "x")
	for _, dir := range []string{"", "/ckpt", "/ckpt/step-1"} {
		if err := os.Chmod(b.dir+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(b.dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(b.dir+"/ckpt", 0o700); err != nil {
		t.Fatal(err)
	}
	done := make(chan []string)
	go func() {
		// The thread is not unlocked, so that it ends with the goroutine.
		runtime.LockOSThread()
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			t.Errorf("change user: %v", errno)
		}
		for range 3 {
			b.now = b.now.Add(time.Second)
			b.scan(b.now)
		}
		done <- b.faults
	}()
	if got := <-done; len(got) != 1 || !strings.Contains(got[0], "permission denied") {
		t.Errorf("faults %q, want one", got)
	}
}

// A directory that grows for ever costs no more than the budget, is told once,
// and is never complete.
func TestScanGrowsForEver(t *testing.T) {
	b := newBench(t, "ckpt", "other")
	b.write("ckpt/step-1/0", "x")
	if err := os.MkdirAll(b.dir+"/ckpt/step-1/many", 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range maxLooked + 5 {
		if err := os.Link(b.dir+"/ckpt/step-1/0", fmt.Sprint(b.dir, "/ckpt/step-1/many/", i%1000, "-", i)); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		b.want(b.after(2*time.Second), "")
	}
	if diff := cmp.Diff([]string{errTooMany.Error()}, b.faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// A thousand old checkpoints with many files are seen in a few looks and cost
// little afterwards.
func TestScanManyOldOnes(t *testing.T) {
	b := newBench(t, "ckpt")
	for i := range 60 {
		for j := range 400 {
			if j == 0 {
				b.write(fmt.Sprintf("ckpt/step-%d/%d", i, j), "x")
			} else if err := os.Link(fmt.Sprintf("%s/ckpt/step-%d/0", b.dir, i), fmt.Sprintf("%s/ckpt/step-%d/%d", b.dir, i, j)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 6 {
		b.after(time.Second)
	}
	for path, e := range b.entries {
		if !e.settled || !e.first {
			t.Errorf("%s: settled %v, there from the start %v", path, e.settled, e.first)
		}
	}
	b.write("ckpt/step-99/x", "x")
	b.after(time.Second)
	b.want(b.after(time.Second), "ckpt/step-99")
}

func TestStepOf(t *testing.T) {
	tests := map[string]*int64{
		"/c/step-1200": ptr[int64](1200), "/c/global_step7": ptr[int64](7), "/c/checkpoint-1200": ptr[int64](1200), "/c/ckpt_5.pt": ptr[int64](5),
		"/c/epoch=3-step=1200.ckpt": ptr[int64](1200), "/c/iter_0001200": ptr[int64](1200), "/c/step-8/COMPLETE": ptr[int64](8),
		"/c/model-v2": nil, "/c/latest": nil, "/c/step-": nil, "/c/step-99999999999999999999": nil,
	}
	for path, want := range tests {
		if diff := cmp.Diff(want, stepOf(path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

func FuzzPattern(f *testing.F) {
	for _, s := range []string{"/a", "/a/*", "/[", "/a/**", "a", "/\x00", "/" + strings.Repeat("*/", 50), `/a\*`, "/../*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		if checkPattern(pattern) != nil {
			return
		}
		l := &looker{left: 200, faults: newFaults(nil)}
		paths, err := l.expand(pattern)
		if err == nil && len(paths) > 200 {
			t.Errorf("%d paths of a budget of 200", len(paths))
		}
	})
}
