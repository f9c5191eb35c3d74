package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/caravan-sched/caravan/planner/httpapi"
)

// planner is a process of the planner, which can be killed and started again.
type planner struct {
	name, address, config string
	api                   *httpapi.Client
	log                   logBuffer
	cmd                   *exec.Cmd
}

// logBuffer is written to by a process and read by tests.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) from(at int) (string, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()[at:], l.b.Len()
}

func newPlanner(s *stage, name, listen string) *planner {
	p := &planner{name: name, address: "http://" + listen, config: filepath.Join(s.dir, name+".hcl")}
	text := fmt.Sprintf(`
log_level = "debug"
nomad {
  address = %q
}
listen {
  address = %q
}
admission {
  deadline = "3m"
  retry {
    initial = "1s"
  }
}
`, s.cluster.Address(), listen)
	if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
		panic(err) // a directory of ours
	}
	var err error
	if p.api, err = httpapi.NewClient(p.address, s.cluster.Token(), nil); err != nil {
		panic(err)
	}
	return p
}

// launch starts the process.
func (p *planner) launch() error {
	p.cmd = exec.Command(filepath.Join(suite.dir, caravanBin), "agent", "-config", p.config)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return p.cmd.Start()
}

// start starts the process and waits until it leads and sees the cluster.
func (p *planner) start() error {
	if err := p.launch(); err != nil {
		return err
	}
	return p.await("leads", func(s httpapi.Status) bool { return s.Leader && !s.ViewTaken.IsZero() && s.Nomad.OK })
}

func (p *planner) await(what string, ok func(httpapi.Status) bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		s, err := p.api.Status(ctx)
		if err == nil && ok(s) {
			return nil
		}
		select {
		case <-ctx.Done():
			text, _ := p.log.from(0)
			return fmt.Errorf("%s never %s: %+v\n%s", p.name, what, s, errors.Join(err, errors.New(text)))
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// kill ends the process without a goodbye.
func (p *planner) kill() {
	if p.cmd == nil {
		return
	}
	p.cmd.Process.Kill()
	p.cmd.Wait()
	p.cmd = nil
}
