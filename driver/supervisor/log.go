package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// maxLog is when a log file is begun anew; the one before is kept beside it.
const maxLog = 1 << 20

// logFile is a log that is bounded in size and in the time that it takes: lines
// that the disk does not take in time are dropped.
type logFile struct {
	path  string
	lines chan []byte
	done  chan struct{}
	once  sync.Once
}

func openLog(dir string) *logFile {
	l := &logFile{path: filepath.Join(dir, fileLog), lines: make(chan []byte, 256), done: make(chan struct{})}
	go l.run()
	return l
}

func (l *logFile) logger() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: "supervisor", Level: hclog.Info, Output: l, TimeFormat: "2006-01-02T15:04:05.000Z07:00"})
}

// Write takes a line and never fails.
func (l *logFile) Write(p []byte) (int, error) {
	select {
	case l.lines <- append([]byte(nil), p...):
	default:
	}
	return len(p), nil
}

// Close writes what is left. Nothing may be written after it.
func (l *logFile) Close() {
	l.once.Do(func() { close(l.lines) })
	<-l.done
}

func (l *logFile) run() {
	defer close(l.done)
	var f *os.File
	size := 0
	for line := range l.lines {
		if f == nil || size+len(line) > maxLog {
			if f != nil {
				_ = f.Close()
				_ = os.Rename(l.path, l.path+".1")
			}
			f, size = nil, 0
			opened, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				fmt.Fprintln(os.Stderr, "open log:", err)
				continue
			}
			f = opened
			if info, err := f.Stat(); err == nil {
				size = int(info.Size())
			}
		}
		n, _ := f.Write(line) // a full disk loses lines of the log, no more
		size += n
	}
	if f != nil {
		_ = f.Close()
	}
}
