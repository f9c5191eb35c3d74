package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/barrier/identity"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

const (
	// keysPath is where Nomad's servers publish the keys that they sign
	// identities with.
	keysPath = "/.well-known/jwks.json"
	// maxKeys bounds the key set in bytes.
	maxKeys = 4 << 20
	// keysTimeout bounds one read of it.
	keysTimeout = 5 * time.Second
	// gangsRest is how soon the gangs' states are read again after that failed.
	gangsRest = time.Second
)

// fetchKeys reads the servers' public keys, for which Nomad asks no token.
func fetchKeys(client *api.Client) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, keysTimeout)
		defer cancel()
		body, err := client.Raw().Response(keysPath, new(api.QueryOptions).WithContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", keysPath, err)
		}
		defer body.Close()
		raw, err := io.ReadAll(io.LimitReader(body, maxKeys))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", keysPath, err)
		}
		return raw, nil
	}
}

// keysIn counts the keys that can be used, as the doctor asks for them.
func keysIn(client *api.Client) func(context.Context) (string, int, error) {
	return func(ctx context.Context) (string, int, error) {
		url := strings.TrimSuffix(client.Address(), "/") + keysPath
		raw, err := fetchKeys(client)(ctx)
		if err != nil {
			return url, 0, err
		}
		n, err := identity.CountKeys(raw)
		return url, n, err
	}
}

// setUpBarrier makes the barrier of the daemon's gangs.
func (d *Daemon) setUpBarrier(parts []regional) {
	d.keys = keysIn(parts[0].nobody)
	d.identity = identity.New(gangapi.Audience, keysOfAll(parts), d.now)
	d.barrier = barrier.NewService(barrier.Options{
		Documents: record.NewDocuments(parts[0].client, d.cfg.State.Namespace, "gangs"),
		Now:       d.now, Wake: func() { d.poke(false) }, Unfit: d.noteUnfit, Watch: d.metrics.watch(d.noteOver),
		Levels: d.cfg.LevelNames(), ObserveOnly: d.cfg.ObserveOnly, MaxPolls: d.cfg.Barrier.MaxWaiting,
		Log: d.log.Named("barrier"),
	})
	d.metrics.waitingMembers(d.barrier.Waiting)
}

// updateBarrier shows the barrier a new view; term is nil while another leads.
func (d *Daemon) updateBarrier(ctx, term context.Context, v *observe.View) error {
	if d.cfg.ObserveOnly {
		return nil
	}
	return d.barrier.Update(ctx, term, v)
}

// Join implements httpapi.Members.
func (b backend) Join(ctx context.Context, token string, req gangapi.JoinRequest) (barrier.Reply[gangapi.JoinAnswer], error) {
	who, err := b.d.identity.Verify(ctx, token)
	if err != nil {
		return barrier.Reply[gangapi.JoinAnswer]{}, err
	}
	return b.d.barrier.Join(ctx, who, req)
}

// Report implements httpapi.Members.
func (b backend) Report(ctx context.Context, token string, req gangapi.ReportRequest) (barrier.Reply[gangapi.ReportAnswer], error) {
	who, err := b.d.identity.Verify(ctx, token)
	if err != nil {
		return barrier.Reply[gangapi.ReportAnswer]{}, err
	}
	return b.d.barrier.Report(ctx, who, req)
}

// Gangs implements httpapi.Members.
func (b backend) Gangs(namespace, job string) []barrier.Status {
	return b.d.barrier.Gangs(namespace, job)
}

// Steer implements httpapi.Members.
func (b backend) Steer(ctx context.Context, verb httpapi.Verb, req httpapi.SteerRequest) (httpapi.SteerResult, error) {
	out := httpapi.SteerResult{Namespace: req.Namespace, Job: req.Job}
	if b.d.cfg.ObserveOnly {
		return out, &httpapi.Error{Status: http.StatusConflict, Message: "the planner only observes", Do: "ask one that does not have observe_only set"}
	}
	var err error
	if verb == httpapi.VerbRequeue {
		out.Changed, out.Note, err = b.d.requeue(ctx, req)
	} else {
		out.Changed, out.Note, err = b.d.suspend(ctx, verb, req)
	}
	return out, err
}

// suspend suspends or resumes a job's gangs.
func (d *Daemon) suspend(ctx context.Context, verb httpapi.Verb, req httpapi.SteerRequest) (bool, string, error) {
	n, err := d.barrier.Suspend(ctx, req.Namespace, req.Job, verb == httpapi.VerbSuspend, byOperator(verb, req.Reason))
	switch {
	case errors.Is(err, barrier.ErrNoGang):
		return false, "", &httpapi.Error{Status: http.StatusConflict, Message: err.Error(), Do: "see caravan explain; only members that run under the caravan driver, or started with caravan join, can be suspended"}
	case err != nil:
		return false, "", err
	case n == 0:
		return false, fmt.Sprintf("nothing to do: no gang of it waits for a %s", verb), nil
	}
	return true, fmt.Sprintf("its members are told to %s", verb), nil
}

func byOperator(verb httpapi.Verb, reason string) string {
	text := map[httpapi.Verb]string{
		httpapi.VerbSuspend: "suspended by an operator", httpapi.VerbResume: "resumed by an operator", httpapi.VerbRequeue: "queued again by an operator",
	}[verb]
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// requeue stops a job that is placed, and queues it again. Nobody is blamed.
func (d *Daemon) requeue(ctx context.Context, req httpapi.SteerRequest) (bool, string, error) {
	d.acting.Lock()
	defer d.acting.Unlock()
	m, rec, err := d.fresh(ctx, req.Namespace, req.Job)
	if err != nil {
		return false, "", err
	}
	if rec.Phase != record.PhaseAdmitted && rec.Phase != record.PhaseRunning {
		return false, fmt.Sprintf("nothing to do: it is not placed, it is %s", rec.Phase), nil
	}
	reason := byOperator(httpapi.VerbRequeue, req.Reason)
	rec.Phase, rec.Unpinned, rec.Rollout = record.PhaseRollback, false, nil
	rec.Reason, rec.RetryAfter = reason, time.Time{}
	rec.Note(d.now(), string(apply.KindRollback), reason)
	if err := d.stores[m.Region].Put(ctx, rec); err != nil {
		return false, "", err
	}
	d.poke(true)
	return true, "it is stopped, with a checkpoint where its members take one, and queued again", nil
}

// fresh is a job with its record as it is stored now, by the term in which it
// may be written. The caller holds acting.
func (d *Daemon) fresh(ctx context.Context, namespace, id string) (*observe.Managed, *record.Record, error) {
	if _, leading := d.leads(ctx); !leading {
		return nil, nil, barrier.ErrNotLeading
	}
	v := d.view.Load()
	if v == nil {
		return nil, nil, errNoView
	}
	m, ok := v.Job(namespace, id)
	if !ok {
		return nil, nil, &httpapi.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("Caravan manages no job %q in namespace %q", id, namespace)}
	}
	rec, err := d.stores[m.Region].Get(ctx, namespace, m.JobID())
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil, &httpapi.Error{Status: http.StatusConflict, Message: fmt.Sprintf("job %q has no record yet", id), Do: "try again in a moment"}
	}
	return m, rec, err
}

// noteUnfit remembers that a job's preflight has found a node unfit for it.
// What follows from that is decided at the next look.
func (d *Daemon) noteUnfit(u barrier.Unfit) {
	go func() {
		d.acting.Lock()
		defer d.acting.Unlock()
		term, leading := d.leads(context.Background())
		if !leading {
			return
		}
		ctx, cancel := context.WithTimeout(term, refreshTimeout)
		defer cancel()
		m, rec, err := d.fresh(ctx, u.Namespace, u.Job)
		if err == nil && rec.Avoid(u.Node, u.NodeName, u.Why(), d.now(), d.cfg.Barrier.AvoidFor) {
			d.log.Warn("a preflight has found a node unfit", "namespace", u.Namespace, "job", u.Job, "node", u.NodeName, "found", u.Why())
			if err = d.stores[m.Region].Put(ctx, rec); err == nil {
				d.metrics.memberFailures.WithLabelValues(causePreflight).Inc()
				d.poke(true)
			}
		}
		if err != nil && ctx.Err() == nil {
			// The member says it again.
			d.log.Warn("an unfit node is not remembered yet", "namespace", u.Namespace, "job", u.Job, "node", u.NodeName, "error", err)
		}
	}()
}

// noteOver remembers that a gang has failed for good by its members' own word,
// so that it is taken off without waiting for Nomad to have tried each of them
// as often as it may.
func (d *Daemon) noteOver(o barrier.Over) {
	go func() {
		d.acting.Lock()
		defer d.acting.Unlock()
		term, leading := d.leads(context.Background())
		if !leading {
			return
		}
		ctx, cancel := context.WithTimeout(term, refreshTimeout)
		defer cancel()
		m, rec, err := d.fresh(ctx, o.Namespace, o.Job)
		if err == nil && overInForce(m, rec, o) {
			rec.GangFailures = maps.Clone(rec.GangFailures)
			if rec.GangFailures == nil {
				rec.GangFailures = map[string]string{}
			}
			rec.GangFailures[o.Group] = o.Why
			if err = d.stores[m.Region].Put(ctx, rec); err == nil {
				d.log.Warn("a gang has failed for good", "namespace", o.Namespace, "job", o.Job, "gang", o.Group, "why", o.Why)
				d.poke(true)
			}
		}
		if err != nil && ctx.Err() == nil {
			// The barrier says it again.
			d.log.Warn("a gang that has failed is not taken off yet", "namespace", o.Namespace, "job", o.Job, "gang", o.Group, "error", err)
		}
	}()
}

// overInForce says whether a gang that has failed is the one in force, and this
// is news. Canaries are judged by their update.
func overInForce(m *observe.Managed, rec *record.Record, o barrier.Over) bool {
	if rec.Phase != record.PhaseAdmitted && rec.Phase != record.PhaseRunning || rec.GangFailures[o.Group] != "" {
		return false
	}
	return slices.ContainsFunc(m.Members, func(s observe.MemberState) bool { return s.Alloc != nil && s.Alloc.ID == o.Alloc && !s.Member.Ended })
}
