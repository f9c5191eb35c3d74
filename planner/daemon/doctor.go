package daemon

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/doctor"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// nomadClock compares Nomad's clock with this machine's by the dates of its
// answers.
type nomadClock struct {
	mu    sync.Mutex
	skew  time.Duration
	known bool
}

// saw takes the date of an answer that came between the two times. A date is
// cut to the second, so the middle of that second is the best guess.
func (c *nomadClock) saw(date string, asked, answered time.Time) {
	at, err := http.ParseTime(date)
	if err != nil {
		return
	}
	middle := asked.Add(answered.Sub(asked) / 2)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew, c.known = at.Add(time.Second/2).Sub(middle).Round(time.Second), true
}

func (c *nomadClock) get() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.skew, c.known
}

// The times between two looks at what the planner's token may do: Nomad leaves
// out of its lists, without a word, what a token may not see, and GPUs that are
// in use would look free.
const (
	rightsEvery = time.Hour
	rightsRetry = time.Minute
)

// watchRights keeps looking until ctx ends.
func (d *Daemon) watchRights(ctx context.Context) {
	for ctx.Err() == nil {
		wait := rightsEvery
		var lacking []httpapi.Warning
		for _, r := range d.parts {
			subject := "ACL"
			if len(d.parts) > 1 {
				subject = "region " + r.name + ": ACL"
			}
			for _, c := range doctor.Rights(ctx, doctor.Patient{Client: r.client, Config: &d.cfg, Skew: d.clock.get}) {
				switch c.Status {
				case httpapi.CheckFail:
					lacking = append(lacking, httpapi.Warning{Subject: subject, Text: c.Detail + "; " + c.Do})
					d.log.Error("a right is lacking", "in", subject, "what", c.Detail, "what_to_do", c.Do)
					wait = rightsRetry
				case httpapi.CheckWarn:
					wait = rightsRetry // Nomad does not answer
				}
			}
		}
		if ctx.Err() == nil {
			d.lacking.Store(&lacking)
		}
		pause(ctx, wait)
	}
}

// Doctor examines the cluster as this planner sees it.
func (b backend) Doctor(ctx context.Context) httpapi.Doctor {
	p := doctor.Patient{Client: b.d.client, Config: &b.d.cfg, Skew: b.d.clock.get, Now: b.d.now, Leads: func() (string, bool) {
		term, _ := b.d.leader.get()
		return b.d.Address(), term != nil
	}}
	if !b.d.cfg.ObserveOnly {
		p.Keys, p.Trust = b.d.keys, func() doctor.Trust { return doctor.Trust(b.d.identity.Trust()) }
	}
	// A view of before would hide that Nomad cannot be read now.
	b.d.acting.Lock()
	p.View, p.ViewError = b.d.observe.Refresh(ctx)
	b.d.acting.Unlock()
	return httpapi.NewDoctor(b.d.now().UTC(), Version, doctor.Examine(ctx, p))
}

// Doctor examines a cluster without a planner, with the token that the
// configuration names.
func Doctor(ctx context.Context, cfg config.Config) (httpapi.Doctor, error) {
	clock := new(nomadClock)
	client, nobody, err := clients(cfg.Nomad, clock)
	if err != nil {
		return httpapi.Doctor{}, err
	}
	defer client.Close()
	p := doctor.Patient{Client: client, Config: &cfg, Skew: clock.get, Keys: keysIn(nobody), Now: time.Now}
	seen := observe.New(observe.Options{Client: client, Records: record.NewStore(client, cfg.State.Namespace), Config: &cfg})
	p.View, p.ViewError = seen.Refresh(ctx)
	return httpapi.NewDoctor(time.Now().UTC(), Version, doctor.Examine(ctx, p)), nil
}
