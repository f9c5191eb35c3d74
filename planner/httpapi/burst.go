package httpapi

import (
	"context"
	"net/http"

	"github.com/caravan-sched/caravan/planner/burstapi"
)

// Buyer says what is wanted of the pools in which nodes can be bought.
type Buyer interface {
	// Burst is what is wanted.
	Burst() burstapi.Answer
	// BurstReport takes over what became of a purchase.
	BurstReport(ctx context.Context, r burstapi.Report) error
	// BurstForget lets go of a purchase of which nothing is there.
	BurstForget(ctx context.Context, f burstapi.Forget) (burstapi.Forgotten, error)
}

// maxReport bounds a report's body.
const maxReport = 1 << 20

// handleBurst serves what the autoscaler's plugins ask and say.
func (s *server) handleBurst(mux *http.ServeMux) {
	mux.HandleFunc("GET "+burstapi.PathBurst, s.answer(s.burst))
	mux.HandleFunc("POST "+burstapi.PathReport, func(w http.ResponseWriter, r *http.Request) {
		if err := s.burstReport(r); err != nil {
			writeError(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST "+burstapi.PathForget, s.answer(s.burstForget))
}

// burst names jobs of all namespaces, and nodes.
func (s *server) burst(r *http.Request) (any, error) {
	for _, right := range []Right{RightReadJob, RightReadNode} {
		if err := s.authorize(r, right, "*"); err != nil {
			return nil, err
		}
	}
	return s.b.Burst(), nil
}

// burstReport changes what is decided next, so it needs more than to see jobs.
func (s *server) burstReport(r *http.Request) error {
	if err := s.authorize(r, RightReadOperator, "*"); err != nil {
		return err
	}
	var report burstapi.Report
	if err := decodeMax(r, &report, maxReport); err != nil {
		return err
	}
	if err := report.Check(); err != nil {
		return &Error{Status: http.StatusBadRequest, Message: err.Error(), Do: "correct the report"}
	}
	return s.b.BurstReport(r.Context(), report)
}

// burstForget lets quota and money go that may be in use, so it needs all rights.
func (s *server) burstForget(r *http.Request) (any, error) {
	if err := s.authorize(r, RightManage, "*"); err != nil {
		return nil, err
	}
	var forget burstapi.Forget
	if err := decodeMax(r, &forget, maxReport); err != nil {
		return nil, err
	}
	if forget.Purchase == "" {
		return nil, &Error{Status: http.StatusBadRequest, Message: "purchase: \"\": want the purchase's ID", Do: "name one that caravan pools shows"}
	}
	return s.b.BurstForget(r.Context(), forget)
}

// Burst asks what is wanted of the pools in which nodes can be bought.
func (c *Client) Burst(ctx context.Context) (burstapi.Answer, error) {
	return get[burstapi.Answer](ctx, c, "burst")
}

// BurstReport tells what became of a purchase. ErrNotFound says that the planner
// knows it no more.
func (c *Client) BurstReport(ctx context.Context, r burstapi.Report) error {
	_, err := post[struct{}](ctx, c, r, "burst", "report")
	return err
}

// BurstForget lets go of a purchase of which nothing is there.
func (c *Client) BurstForget(ctx context.Context, f burstapi.Forget) (burstapi.Forgotten, error) {
	return post[burstapi.Forgotten](ctx, c, f, "burst", "forget")
}
