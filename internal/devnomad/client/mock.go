package client

import (
	"errors"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// mockTask is a task of mock_driver, which runs nothing: run_for is how long
// it "runs", for ever without one, and exit_code, start_error and kill_after
// are what Nomad's mock driver has.
type mockTask struct {
	t     *taskRunner
	code  int
	over  <-chan struct{} // nil runs for ever
	ended chan struct{}   // closed when it was stopped
}

func (t *taskRunner) text(key string) string {
	s, _ := t.task.Config[key].(string)
	return s
}

func (t *taskRunner) startMock() (process, error) {
	if e := t.text("start_error"); e != "" {
		return nil, errors.New(e)
	}
	m := &mockTask{t: t, ended: make(chan struct{})}
	if d, err := time.ParseDuration(t.text("run_for")); err == nil {
		m.over = t.r.after(d)
	}
	switch n := t.task.Config["exit_code"].(type) {
	case float64:
		m.code = int(n)
	case int:
		m.code = n
	}
	return m, nil
}

func (m *mockTask) wait() exit {
	select {
	case <-m.over:
		return exit{code: m.code}
	case <-m.ended:
		return exit{}
	}
}

func (m *mockTask) stop(over <-chan exit, _ time.Duration, _ string, now <-chan struct{}) exit {
	if d, err := time.ParseDuration(m.t.text("kill_after")); err == nil {
		select {
		case <-m.t.r.after(d):
		case <-now:
		}
	}
	close(m.ended)
	return <-over
}

func (m *mockTask) signal(string) error { return nil }

func (m *mockTask) exec(driver.ExecOptions, <-chan struct{}) (int, error) {
	return 0, errors.New("the development cluster's mock_driver runs no commands")
}

func (m *mockTask) usage() *api.TaskResourceUsage { return nil }
