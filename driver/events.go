package driver

import (
	"context"

	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// fanIn brings all tasks' events to whoever listens. While nobody does, as
// between two connections of the client's, the tasks' followers wait, and the
// events are kept by the supervisors.
type fanIn struct{ events chan driver.Event }

func newFanIn() *fanIn { return &fanIn{events: make(chan driver.Event)} }

// put reports whether the event was taken before ctx ended.
func (f *fanIn) put(ctx context.Context, e driver.Event) bool {
	select {
	case f.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// Events implements driver.Plugin.
func (p *Plugin) Events(ctx context.Context, send func(driver.Event) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-p.events.events:
			if err := send(e); err != nil {
				return err
			}
		}
	}
}
