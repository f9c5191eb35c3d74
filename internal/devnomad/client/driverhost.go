package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/caravan-sched/caravan/internal/devnomad/clock"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
	"github.com/caravan-sched/caravan/internal/nomadplugin/host"
)

// errDetached says that the client is being stopped.
var errDetached = errors.New("the client is stopped")

// Times of Nomad's client with its drivers.
const (
	// exitSeen is how long after a broken connection the process is looked at.
	exitSeen = 3 * time.Second
	// relaunchWait is the pause after a driver could not be started.
	relaunchWait = 5 * time.Second
)

// driverHost keeps a task driver's plugin process going while the client runs.
type driverHost struct {
	plugin  string
	launch  func(ctx context.Context) (*host.Plugin, error)
	changed func(health string) // the fingerprint did; the text is a new health's
	event   func(driver.Event)  // the driver said something
	logf    func(string, ...any)
	clock   clock.Clock
	ctx     context.Context
	cancel  context.CancelFunc
	loops   sync.WaitGroup

	getting sync.Mutex // one launch at a time

	mu       sync.Mutex
	name     string
	instance *driverInstance
	info     *api.DriverInfo
	detached bool
}

// driverInstance is one connection to one process of a driver.
type driverInstance struct {
	host   *driverHost
	proc   *host.Plugin
	client *driver.Client
	schema *hclspec.Spec
	caps   driver.Capabilities
}

// startDriver follows a driver whose process runs, and waits for its first
// fingerprint.
func startDriver(ctx context.Context, d *driverHost, proc *host.Plugin) error {
	instance, err := d.adopt(ctx, proc)
	if err != nil {
		return err
	}
	d.name, d.instance = proc.Info.Name, instance
	first := make(chan struct{})
	seen := sync.OnceFunc(func() { close(first) })
	d.loops.Go(func() { d.fingerprint(seen) })
	d.loops.Go(d.events)
	timer := time.NewTimer(firstFingerprint)
	defer timer.Stop()
	select {
	case <-first:
	case <-timer.C:
		d.logf("driver %s: no fingerprint after %v", d.name, firstFingerprint)
	case <-ctx.Done():
		return fmt.Errorf("wait for the fingerprint of driver %s: %w", d.name, ctx.Err())
	}
	return nil
}

// adopt asks a driver what it is, and initialises it.
func (d *driverHost) adopt(ctx context.Context, proc *host.Plugin) (*driverInstance, error) {
	client, err := proc.Driver()
	if err != nil {
		return nil, err
	}
	out := &driverInstance{host: d, proc: proc, client: client}
	if err := client.Init(ctx); err != nil {
		return nil, err
	}
	if out.caps, err = client.Capabilities(ctx); err != nil {
		return nil, err
	}
	out.schema, err = client.TaskConfigSchema(ctx)
	return out, err
}

// get returns the driver, started again if its process has died.
func (d *driverHost) get() (*driverInstance, error) {
	d.getting.Lock()
	defer d.getting.Unlock()
	d.mu.Lock()
	instance, detached := d.instance, d.detached
	d.mu.Unlock()
	switch {
	case detached:
		return nil, errDetached
	case !instance.proc.Exited():
		return instance, nil
	}
	d.logf("driver %s exited, and is started again", d.name)
	proc, err := d.launch(d.ctx)
	if err != nil {
		return nil, err
	}
	if instance, err = d.adopt(d.ctx, proc); err != nil {
		proc.Close()
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.detached {
		proc.Close()
		return nil, errDetached
	}
	d.instance = instance
	return instance, nil
}

// broken says whether an error is about the connection, and if so waits until
// the end of the process or of the client is known.
func (i *driverInstance) broken(err error) bool {
	if code := status.Code(root(err)); code != codes.Unavailable && code != codes.Canceled {
		return false
	}
	for end := time.Now().Add(exitSeen); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if i.proc.Exited() || i.host.ctx.Err() != nil {
			break
		}
	}
	return true
}

// root is the error as it came over the wire.
func root(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// follow calls a stream of the driver again and again, until the client stops.
func (d *driverHost) follow(stream func(*driverInstance) error, failed func(error)) {
	for d.ctx.Err() == nil {
		instance, err := d.get()
		if err == nil {
			err = stream(instance)
			if err == nil || instance.broken(err) {
				continue
			}
		}
		if d.ctx.Err() != nil {
			return
		}
		failed(err)
		select {
		case <-d.ctx.Done():
		case <-time.After(relaunchWait):
		}
	}
}

func (d *driverHost) fingerprint(seen func()) {
	failed := func(err error) {
		d.logf("driver %s: %v", d.name, err)
		d.set(&api.DriverInfo{HealthDescription: "failed to fingerprint driver"})
		seen()
	}
	d.follow(func(i *driverInstance) error {
		err := i.client.Fingerprint(d.ctx, func(f driver.Fingerprint) error {
			info := &api.DriverInfo{
				Attributes: map[string]string{}, Detected: f.Health != driver.Undetected, Healthy: f.Health == driver.Healthy,
				HealthDescription: f.Description,
			}
			for k, v := range f.Attributes {
				info.Attributes[k] = v.Text()
			}
			d.set(info)
			seen()
			return nil
		})
		if err != nil && d.ctx.Err() == nil && i.broken(err) {
			d.set(&api.DriverInfo{HealthDescription: "failed to fingerprint driver"})
		}
		return err
	}, failed)
}

func (d *driverHost) events() {
	d.follow(func(i *driverInstance) error {
		return i.client.Events(d.ctx, func(e driver.Event) error {
			d.event(e)
			return nil
		})
	}, func(err error) { d.logf("driver %s: %v", d.name, err) })
}

// set keeps a fingerprint. What a later one leaves out stays with the node, as
// in Nomad.
func (d *driverHost) set(info *api.DriverInfo) {
	info.UpdateTime = d.clock.Now()
	d.mu.Lock()
	old := d.info
	attributes := map[string]string{}
	if old != nil {
		maps.Copy(attributes, old.Attributes)
	}
	maps.Copy(attributes, info.Attributes)
	info.Attributes = attributes
	d.info = info
	d.mu.Unlock()
	if old == nil {
		d.changed("")
		return
	}
	health := old.Healthy != info.Healthy || old.HealthDescription != info.HealthDescription
	switch {
	case health:
		d.changed(info.HealthDescription)
	case old.Detected != info.Detected || !maps.Equal(old.Attributes, attributes):
		d.changed("")
	}
}

// show adds the driver to a node.
func (d *driverHost) show(n *api.Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.info == nil {
		return
	}
	n.Drivers[d.name] = d.info
	for k, v := range d.info.Attributes {
		if v != "" {
			n.Attributes[k] = v
		}
	}
	delete(n.Attributes, "driver."+d.name)
	if d.info.Detected {
		n.Attributes["driver."+d.name] = "1"
	}
}

// detach leaves the process alone, as an agent does that is killed, and says
// how to find it again.
func (d *driverHost) detach() (host.Handle, bool) {
	instance := d.halt()
	if instance.proc.Exited() {
		return host.Handle{}, false
	}
	handle := instance.proc.Handle()
	if err := instance.proc.Detach(); err != nil {
		d.logf("driver %s: %v", d.name, err)
	}
	d.loops.Wait()
	return handle, true
}

// close ends the process.
func (d *driverHost) close() {
	instance := d.halt()
	instance.proc.Close()
	d.loops.Wait()
}

func (d *driverHost) halt() *driverInstance {
	d.mu.Lock()
	d.detached = true
	instance := d.instance
	d.mu.Unlock()
	d.cancel()
	return instance
}
