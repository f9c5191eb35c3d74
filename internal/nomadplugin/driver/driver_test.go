package driver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goplugin "github.com/hashicorp/go-plugin"

	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// fake is a driver that records its calls and answers with what it holds; a
// method named in fails returns that error.
type fake struct {
	calls []string
	fails map[string]error
	cfg   base.Config
	task  driver.TaskConfig
	usage driver.Usage
}

func (f *fake) call(name string, args ...any) error {
	f.calls = append(f.calls, strings.TrimSpace(fmt.Sprintln(append([]any{name}, args...)...)))
	return f.fails[name]
}

func (f *fake) Info() base.Info { return base.Info{Name: "fake", Version: "1.2.3"} }
func (f *fake) ConfigSchema() *hclspec.Spec {
	return hclspec.Object(map[string]*hclspec.Spec{"x": hclspec.Attr("x", "number", false)})
}
func (f *fake) SetConfig(_ context.Context, c base.Config) error { f.cfg = c; return nil }
func (f *fake) TaskConfigSchema() *hclspec.Spec                  { return hclspec.Attr("command", "string", true) }
func (f *fake) Capabilities() driver.Capabilities                { return capabilities }
func (f *fake) Init(context.Context) error                       { return f.call("Init") }
func (f *fake) Shutdown(context.Context) error                   { return f.call("Shutdown") }
func (f *fake) Recover(_ context.Context, h driver.Handle) error {
	f.task = h.Config
	return f.call("Recover", h.Version, string(h.DriverState))
}
func (f *fake) Destroy(_ context.Context, id string, force bool) error {
	return f.call("Destroy", id, force)
}
func (f *fake) Signal(_ context.Context, id, signal string) error {
	return f.call("Signal", id, signal)
}
func (f *fake) Stop(_ context.Context, id string, d time.Duration, signal string) error {
	return f.call("Stop", id, d, signal)
}

func (f *fake) Fingerprint(ctx context.Context, send func(driver.Fingerprint) error) error {
	if err := send(driver.Fingerprint{Attributes: map[string]attr.Value{"bad": {}}}); err == nil {
		return errors.New("an invalid attribute was sent")
	}
	if err := send(fingerprint); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (f *fake) Start(_ context.Context, t driver.TaskConfig) (driver.Handle, *driver.Network, error) {
	f.task = t
	if err := f.call("Start"); err != nil {
		return driver.Handle{}, nil, err
	}
	h, err := driver.NewHandle(2, t, "state")
	return h, &driver.Network{IP: "10.0.0.1", Ports: map[string]int{"http": 80}, Advertise: true}, err
}

func (f *fake) Wait(_ context.Context, id string) (driver.Exit, error) {
	return driver.Exit{Code: 3, Signal: 9, OOMKilled: true, Err: errors.New("lost sight")}, f.call("Wait", id)
}

func (f *fake) Inspect(_ context.Context, id string) (driver.Status, error) {
	return status, f.call("Inspect", id)
}

func (f *fake) Stats(_ context.Context, id string, interval time.Duration, send func(driver.Usage) error) error {
	if err := f.call("Stats", id, interval); err != nil {
		return err
	}
	return send(f.usage)
}

func (f *fake) Events(_ context.Context, send func(driver.Event) error) error { return send(event) }

func (f *fake) Exec(_ context.Context, id string, command []string, timeout time.Duration) (driver.ExecResult, error) {
	return driver.ExecResult{Stdout: []byte("out"), Stderr: []byte("err"), Exit: driver.Exit{Code: 1}}, f.call("Exec", id, command, timeout)
}

// ExecStream echoes its input in upper case and reports the terminal's size.
func (f *fake) ExecStream(_ context.Context, id string, o driver.ExecOptions) (driver.Exit, error) {
	if err := f.call("ExecStream", id, o.Command, o.TTY); err != nil {
		return driver.Exit{}, err
	}
	size := <-o.Resize
	fmt.Fprintf(o.Stderr, "%dx%d", size.Width, size.Height)
	in, err := io.ReadAll(o.Stdin)
	if err != nil {
		return driver.Exit{}, err
	}
	_, err = o.Stdout.Write(bytes.ToUpper(in))
	return driver.Exit{Code: 7}, err
}

var (
	capabilities = driver.Capabilities{
		Signals: true, Exec: true, FSIsolation: driver.FSChroot, NoMounts: true, NoLogCollection: true,
		DynamicUsers: true, CreatesNetwork: true, NetworkModes: []driver.NetworkMode{driver.NetworkHost, driver.NetworkGroup},
	}
	fingerprint = driver.Fingerprint{
		Attributes: map[string]attr.Value{"driver.fake": attr.Bool(true)}, Health: driver.Healthy, Description: "ready",
	}
	status = driver.Status{
		ID: "t1", Name: "main", State: driver.StateExited, Started: time.Unix(1, 0).UTC(), Exit: driver.Exit{Code: 1},
		Attributes: map[string]string{"pid": "1"}, Network: &driver.Network{IP: "::1"},
	}
	event = driver.Event{TaskID: "t1", AllocID: "a", TaskName: "main", Time: time.Unix(5, 0).UTC(), Message: "joined", Annotations: map[string]string{"rank": "3"}}
	task  = driver.TaskConfig{
		ID: "t1", Name: "main", Namespace: "ns", JobID: "j", JobName: "J", ParentJobID: "p", Group: "g", AllocID: "a",
		NodeID: "n", NodeName: "N", Env: map[string]string{"B": "2", "A": "1"}, DeviceEnv: map[string]string{"A": "1"},
		User: "nobody", AllocDir: "/alloc/a", StdoutPath: "o", StderrPath: "e", Raw: []byte{0x80},
		Resources: driver.Resources{
			CPUMHz: 100, MemoryMiB: 200, MemoryMaxMiB: 300,
			Networks: []driver.NetworkResource{{Device: "lo", CIDR: "127.0.0.0/8", IP: "127.0.0.1", MBits: 1, Reserved: []driver.Port{{Label: "r", Value: 1}}, Dynamic: []driver.Port{{Label: "d", Value: 2}}}},
			Ports:    []driver.PortMapping{{Label: "d", Value: 2, To: 3, HostIP: "127.0.0.1"}},
			Linux: driver.Linux{
				CPUPeriod: 1, CPUQuota: 2, CPUShares: 3, MemoryLimitBytes: 4, OOMScoreAdj: 5, CPUSet: "0-1", Cgroup: "/c", PercentTicks: 0.5,
			},
		},
		Mounts:  []driver.Mount{{TaskPath: "/t", HostPath: "/h", ReadOnly: true, Propagation: "private", SELinuxLabel: "z", Request: "vol"}},
		Devices: []driver.DeviceNode{{TaskPath: "/dev/x", HostPath: "/dev/y", Permissions: "rw"}},
		Network: &driver.NetworkIsolation{Mode: driver.NetworkGroup, Path: "/ns", Labels: map[string]string{"k": "v"}, Hosts: &driver.Hosts{Hostname: "h", Address: "a"}},
		DNS:     &driver.DNS{Servers: []string{"1.1.1.1"}, Searches: []string{"s"}, Options: []string{"o"}},
	}
)

func connect(t *testing.T, f *fake) (*base.Client, *driver.Client) {
	t.Helper()
	client, _ := goplugin.TestPluginGRPCConn(t, false, driver.Plugins(f, nil))
	t.Cleanup(func() { _ = client.Close() }) // it stops the server too
	b, err := client.Dispense(base.DispenseBase)
	if err != nil {
		t.Fatal(err)
	}
	d, err := client.Dispense(base.DispenseDriver)
	if err != nil {
		t.Fatal(err)
	}
	return b.(*base.Client), d.(*driver.Client)
}

// TestConfig sends the client's configuration for drivers with its topology.
func TestConfig(t *testing.T) {
	f := &fake{}
	b, _ := connect(t, f)
	if _, typ, err := b.Info(t.Context()); err != nil || typ != base.TypeDriver {
		t.Errorf("Info() = %v, %v", typ, err)
	}
	want := base.Config{APIVersion: base.APIVersion, Raw: []byte{0x80}, Driver: &base.DriverConfig{
		MinPort: 14000, MaxPort: 14512, Topology: &base.CPUTopology{
			NUMANodes: []uint32{0, 1}, Distances: [][]uint32{{10, 20}, {20, 10}}, OverrideComputeMHz: 9, ReservedComputeMHz: 8,
			Cores: []base.Core{{ID: 1, NUMANode: 1, Socket: 2, Efficiency: true, Disabled: true, BaseMHz: 3, MaxMHz: 4, GuessedMHz: 5}},
		},
	}}
	if err := b.SetConfig(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, f.cfg); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStartAndRecover(t *testing.T) {
	f := &fake{}
	_, d := connect(t, f)
	h, network, err := d.Start(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(task, f.task); diff != "" {
		t.Errorf("task as started (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(task, h.Config); diff != "" {
		t.Errorf("task in the handle (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&driver.Network{IP: "10.0.0.1", Ports: map[string]int{"http": 80}, Advertise: true}, network); diff != "" {
		t.Errorf("network (-want +got):\n%s", diff)
	}
	var state string
	if err := h.DecodeState(&state); err != nil || state != "state" || h.State != driver.StateRunning || h.Version != 2 {
		t.Errorf("handle = version %d, state %q, driver state %q, %v", h.Version, h.State, state, err)
	}
	f.task = driver.TaskConfig{}
	if err := d.Recover(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(task, f.task); diff != "" {
		t.Errorf("task as recovered (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"A=1", "B=2"}, task.Environ()); diff != "" {
		t.Errorf("Environ() (-want +got):\n%s", diff)
	}
}

func TestCalls(t *testing.T) {
	f := &fake{}
	_, d := connect(t, f)
	ctx := t.Context()
	if err := errors.Join(
		d.Init(ctx),
		d.Stop(ctx, "t1", time.Second, "SIGINT"),
		d.Destroy(ctx, "t1", true),
		d.Signal(ctx, "t1", "SIGHUP"),
		d.Shutdown(ctx),
	); err != nil {
		t.Fatal(err)
	}
	want := []string{"Init", "Stop t1 1s SIGINT", "Destroy t1 true", "Signal t1 SIGHUP", "Shutdown"}
	if diff := cmp.Diff(want, f.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if got, err := d.Capabilities(ctx); err != nil || !cmp.Equal(capabilities, got) {
		t.Errorf("Capabilities(), error %v (-want +got):\n%s", err, cmp.Diff(capabilities, got))
	}
	if schema, err := d.TaskConfigSchema(ctx); err != nil || schema.GetAttr().GetName() != "command" {
		t.Errorf("TaskConfigSchema() = %v, %v", schema, err)
	}
	if got, err := d.Inspect(ctx, "t1"); err != nil || !cmp.Equal(status, got) {
		t.Errorf("Inspect(), error %v (-want +got):\n%s", err, cmp.Diff(status, got))
	}
	exit, err := d.Wait(ctx, "t1")
	if err != nil || exit.Code != 3 || exit.Signal != 9 || !exit.OOMKilled || exit.Err == nil || exit.Err.Error() != "lost sight" {
		t.Errorf("Wait() = %+v, %v", exit, err)
	}
	result, err := d.Exec(ctx, "t1", []string{"ls", "-l"}, time.Minute)
	if want := (driver.ExecResult{Stdout: []byte("out"), Stderr: []byte("err"), Exit: driver.Exit{Code: 1}}); err != nil || !cmp.Equal(want, result) {
		t.Errorf("Exec() = %+v, %v", result, err)
	}
}

func TestStreams(t *testing.T) {
	n, x := uint64(5), 0.25
	f := &fake{usage: driver.Usage{
		TaskID: "t1", Time: time.Unix(9, 0).UTC(),
		Total:      driver.ResourceUsage{Percent: &x, SystemPercent: &x, ThrottledNanos: &n, RSS: &n, Usage: &n, KernelMaxUsage: new(uint64)},
		PerProcess: map[string]driver.ResourceUsage{"17": {UserPercent: &x}},
	}}
	_, d := connect(t, f)
	var usages []driver.Usage
	if err := d.Stats(t.Context(), "t1", 0, func(u driver.Usage) error { usages = append(usages, u); return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]driver.Usage{f.usage}, usages); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Stats t1 1s"}, f.calls); diff != "" {
		t.Errorf("an interval of 0 must become the default (-want +got):\n%s", diff)
	}
	var events []driver.Event
	if err := d.Events(t.Context(), func(e driver.Event) error { events = append(events, e); return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]driver.Event{event}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	enough := errors.New("enough")
	err := d.Fingerprint(t.Context(), func(got driver.Fingerprint) error {
		if diff := cmp.Diff(fingerprint, got, cmp.AllowUnexported(attr.Value{})); diff != "" {
			t.Errorf("fingerprint (-want +got):\n%s", diff)
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Errorf("Fingerprint() = %v, want the caller's error", err)
	}
}

func TestExecStream(t *testing.T) {
	f := &fake{}
	_, d := connect(t, f)
	resize := make(chan driver.TerminalSize, 1)
	resize <- driver.TerminalSize{Width: 80, Height: 24}
	var stdout, stderr bytes.Buffer
	exit, err := d.ExecStream(t.Context(), "t1", driver.ExecOptions{
		Command: []string{"sh"}, TTY: true, Stdin: strings.NewReader("hello"), Stdout: &stdout, Stderr: &stderr, Resize: resize,
	})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%d %s %s %q", exit.Code, &stdout, &stderr, f.calls)
	if want := `7 HELLO 80x24 ["ExecStream t1 [sh] true"]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	f.fails = map[string]error{"ExecStream": driver.ErrTaskNotFound}
	if _, err := d.ExecStream(t.Context(), "t1", driver.ExecOptions{}); !errors.Is(err, driver.ErrTaskNotFound) {
		t.Errorf("ExecStream() = %v, want %v", err, driver.ErrTaskNotFound)
	}
}

// TestErrors: what callers decide by survives the way between processes.
func TestErrors(t *testing.T) {
	f := &fake{fails: map[string]error{}}
	_, d := connect(t, f)
	ctx := t.Context()
	calls := map[string]func() error{
		"Start":   func() error { _, _, err := d.Start(ctx, task); return err },
		"Recover": func() error { return d.Recover(ctx, driver.Handle{}) },
		"Wait":    func() error { _, err := d.Wait(ctx, "t"); return err },
		"Stop":    func() error { return d.Stop(ctx, "t", 0, "") },
		"Destroy": func() error { return d.Destroy(ctx, "t", false) },
		"Inspect": func() error { _, err := d.Inspect(ctx, "t"); return err },
		"Signal":  func() error { return d.Signal(ctx, "t", "") },
		"Exec":    func() error { _, err := d.Exec(ctx, "t", nil, 0); return err },
		"Stats":   func() error { return d.Stats(ctx, "t", 0, func(driver.Usage) error { return nil }) },
	}
	for name := range maps.Keys(calls) {
		t.Run(name, func(t *testing.T) {
			f.fails[name] = fmt.Errorf("look up: %w", driver.ErrTaskNotFound)
			if err := calls[name](); !errors.Is(err, driver.ErrTaskNotFound) {
				t.Errorf("got %v, want ErrTaskNotFound", err)
			}
			f.fails[name] = &driver.Recoverable{Err: errors.New("try again")}
			var r *driver.Recoverable
			if err := calls[name](); !errors.As(err, &r) || r.Error() != "try again" {
				t.Errorf("got %v, want it recoverable", err)
			}
			f.fails[name] = errors.New("broken")
			if err := calls[name](); err == nil || errors.As(err, &r) || !strings.Contains(err.Error(), "broken") {
				t.Errorf("got %v, want a plain error", err)
			}
		})
	}
	if _, err := d.Capabilities(ctx); err != nil {
		t.Error(err)
	}
}
