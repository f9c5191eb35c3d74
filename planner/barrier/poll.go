package barrier

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
	"github.com/caravan-sched/caravan/planner/barrier/identity"
)

// Encoded is a membership's JSON, plain and packed. It is the same for all
// members of a gang, and large: n members get n entries each.
type Encoded struct {
	of    *rendezvous.Membership
	Plain []byte
	Gzip  []byte
}

// encode makes the membership's JSON once.
func (g *served) encode(m *rendezvous.Membership) (*Encoded, error) {
	if g.encoded != nil && g.encoded.of == m {
		return g.encoded, nil
	}
	e, err := Encode(m)
	g.encoded = e
	return e, err
}

// Encode makes the end of an answer that has this membership.
func Encode(m *rendezvous.Membership) (*Encoded, error) {
	plain, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode membership: %w", err)
	}
	plain = append(append([]byte(membershipKey), plain...), '}')
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(plain)
	if err = errors.Join(err, z.Close()); err != nil {
		return nil, fmt.Errorf("compress membership: %w", err)
	}
	return &Encoded{of: m, Plain: plain, Gzip: packed.Bytes()}, nil
}

// membershipKey is how an answer goes on before the membership.
const membershipKey = `,"membership":`

// Reply is an answer. Where it has a membership, Tail is the end of its JSON
// from there on, and the answer itself comes without.
type Reply[T any] struct {
	Answer T
	Tail   *Encoded
}

// Join lets a member wait at the barrier, until there is an answer or the wait
// that it asks for is over.
func (s *Service) Join(ctx context.Context, who identity.Claims, req gangapi.JoinRequest) (Reply[gangapi.JoinAnswer], error) {
	none := Reply[gangapi.JoinAnswer]{}
	if err := checkJoin(who, req); err != nil {
		return none, err
	}
	if s.opts.ObserveOnly {
		return Reply[gangapi.JoinAnswer]{Answer: gangapi.JoinAnswer{State: gangapi.JoinAlone, Reason: "the planner only observes"}}, nil
	}
	if err := s.enter(); err != nil {
		return none, err
	}
	defer s.leave()
	arrived := s.opts.Now()
	p := poll{service: s, who: who, member: Member{who.Alloc, who.Task}}
	defer p.close()
	return await(ctx, waitFor(req.WaitMS), func(over bool) (Reply[gangapi.JoinAnswer], []<-chan struct{}, error) {
		return p.join(req, arrived, over)
	})
}

// await looks for an answer again and again, until one is final or the wait is
// over, which look is told.
func await[T any](ctx context.Context, wait time.Duration, look func(over bool) (Reply[T], []<-chan struct{}, error)) (Reply[T], error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for over := false; ; {
		reply, changes, err := look(over)
		if changes == nil || over {
			return reply, err
		}
		if errors.Is(err, ErrNotLeading) {
			timer.Reset(min(wait, patience))
		}
		select {
		case <-ctx.Done():
			return Reply[T]{}, ctx.Err()
		case <-timer.C:
			over = true
		case <-changes[0]:
		case <-changes[1]:
		}
	}
}

// patience is how long a request waits for this planner to lead: if another
// does, the member had better ask that one.
const patience = 2 * time.Second

// poll is one request that waits.
type poll struct {
	service *Service
	who     identity.Claims
	member  Member
	opened  *served
	req     gangapi.JoinRequest
	woken   bool
}

func (p *poll) close() {
	if p.opened == nil {
		return
	}
	p.opened.mu.Lock()
	defer p.opened.mu.Unlock()
	p.opened.gang.Close(p.member, p.req, p.service.opts.Now())
}

// wake asks once for a view that is newer than the request.
func (p *poll) wake() {
	if !p.woken && p.service.opts.Wake != nil {
		p.woken = true
		p.service.opts.Wake()
	}
}

// join is one look at the barrier. wait are the channels that tell of another
// answer; nil if this one is final.
func (p *poll) join(req gangapi.JoinRequest, arrived time.Time, over bool) (reply Reply[gangapi.JoinAnswer], wait []<-chan struct{}, err error) {
	at, err := p.service.look(p.who)
	wait = []<-chan struct{}{at.ch, nil}
	if err != nil {
		return reply, wait, err
	}
	v := at.verdict
	reply.Answer = gangapi.JoinAnswer{State: gangapi.JoinWaiting, Reason: v.Reason}
	if at.gang == nil {
		switch {
		case !at.taken.After(arrived):
			// What the view says may be older than the member.
			p.wake()
		case v.Alone && v.Member:
			return p.alone(req, v)
		case v.Alone:
			reply.Answer.State = gangapi.JoinAlone
			return reply, nil, nil
		case v.Refused:
			reply.Answer.State = gangapi.JoinRefused
			return reply, nil, nil
		}
		return reply, wait, nil
	}
	g := at.gang
	g.mu.Lock()
	defer g.mu.Unlock()
	now := p.service.opts.Now()
	if p.opened != g && g.gang.Open(p.member, req, now) {
		p.opened, p.req = g, req
		p.service.tellUnfit(g, v.Gang, p.member, req)
		p.service.drive(g)
	}
	answer, final := g.gang.Answer(p.member, req, now)
	wait[1] = g.changed
	switch {
	case final:
		wait = nil
	case over:
		answer = g.gang.Waiting(req, now)
	}
	reply.Answer = answer
	if answer.Membership != nil {
		p.service.tell(g, p.member.Alloc, now)
		reply.Tail, err = g.encode(answer.Membership)
		reply.Answer.Membership = nil
	}
	return reply, wait, err
}

// alone lets a member start that is placed by Caravan and is no gang's.
func (p *poll) alone(req gangapi.JoinRequest, v Verdict) (reply Reply[gangapi.JoinAnswer], wait []<-chan struct{}, err error) {
	reply.Answer = gangapi.JoinAnswer{State: gangapi.JoinAlone, Reason: v.Reason}
	planned, ok := p.service.place(p.who)
	if !ok {
		return reply, nil, nil
	}
	if req.Fault != nil && p.service.opts.Unfit != nil {
		p.service.opts.Unfit(Unfit{Namespace: p.who.Namespace, Job: p.who.Job, Node: planned.Node, NodeName: planned.NodeName, Fault: *req.Fault})
		reply.Answer.State = gangapi.JoinWaiting
		reply.Answer.Reason = fmt.Sprintf("the preflight found the node unfit (%s); the member is moved", faultText(*req.Fault))
		return reply, []<-chan struct{}{p.service.viewing(), nil}, nil
	}
	want := planned.ByTask[p.who.Task]
	if len(want) > 0 && !sameSet(want, req.GPUs) {
		reply.Answer = gangapi.JoinAnswer{State: gangapi.JoinRefused, Reason: otherGPUs(want, req.GPUs)}
	}
	return reply, nil, nil
}

// Report takes what a member tells, and waits for an order.
func (s *Service) Report(ctx context.Context, who identity.Claims, req gangapi.ReportRequest) (Reply[gangapi.ReportAnswer], error) {
	none := Reply[gangapi.ReportAnswer]{}
	if err := checkReport(req); err != nil {
		return none, err
	}
	if err := s.enter(); err != nil {
		return none, err
	}
	defer s.leave()
	arrived := s.opts.Now()
	p := poll{service: s, who: who, member: Member{who.Alloc, who.Task}}
	return await(ctx, waitFor(req.WaitMS), func(bool) (Reply[gangapi.ReportAnswer], []<-chan struct{}, error) { return p.report(req, arrived) })
}

// report is one look for an order.
func (p *poll) report(req gangapi.ReportRequest, arrived time.Time) (reply Reply[gangapi.ReportAnswer], wait []<-chan struct{}, err error) {
	at, err := p.service.look(p.who)
	wait = []<-chan struct{}{at.ch, nil}
	if err != nil {
		return reply, wait, err
	}
	v := at.verdict
	now := p.service.opts.Now()
	// A node counts as seen only by a Nomad that answers.
	reply.Answer.Attached = v.Member && now.Sub(at.taken) < fresh
	reply.Answer.Reason = v.Reason
	g := at.gang
	if g == nil {
		switch {
		case (v.Gone || v.Refused) && !at.taken.After(arrived):
			p.wake()
		case v.Gone:
			reply.Answer.Gone = true
			// The planner may have stopped the members before they have asked why.
			if why := at.ended(req.Epoch); why != "" {
				reply.Answer.Reason += "; " + why
			}
			return reply, nil, nil
		}
		return reply, wait, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.opened != g && g.gang.Report(p.member, req, now) {
		p.opened = g
		p.service.drive(g)
	}
	answer, final := g.gang.Orders(p.member, req)
	answer.Attached, answer.Reason = reply.Answer.Attached, reply.Answer.Reason
	wait[1] = g.changed
	if final {
		wait = nil
	}
	reply.Answer = answer
	if answer.Membership != nil {
		reply.Tail, err = g.encode(answer.Membership)
		reply.Answer.Membership = nil
	}
	return reply, wait, err
}
