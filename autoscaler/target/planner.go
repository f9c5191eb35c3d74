package target

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/burstapi"
)

const (
	plannerLimit = 10 * time.Second
	maxAnswer    = 16 << 20
)

// Planner is what names the nodes.
type Planner interface {
	Burst(ctx context.Context) (burstapi.Answer, error)
	Report(ctx context.Context, r burstapi.Report) error
}

// plannerAPI is a planner by its HTTP API.
type plannerAPI struct {
	address, token string
	client         *http.Client
}

// Burst implements Planner.
func (p plannerAPI) Burst(ctx context.Context) (burstapi.Answer, error) {
	var a burstapi.Answer
	if err := p.do(ctx, http.MethodGet, burstapi.PathBurst, nil, &a); err != nil {
		return a, fmt.Errorf("ask planner: %w", err)
	}
	return a, nil
}

// Report implements Planner. A purchase that the planner knows no more needs none.
func (p plannerAPI) Report(ctx context.Context, r burstapi.Report) error {
	if err := r.Check(); err != nil {
		return fmt.Errorf("report to planner: %w", err)
	}
	err := p.do(ctx, http.MethodPost, burstapi.PathReport, r, nil)
	if s, ok := errors.AsType[statusError](err); ok && s.code == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("report to planner: %w", err)
	}
	return nil
}

// statusError is an answer other than success.
type statusError struct {
	code int
	text string
}

func (e statusError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.code, http.StatusText(e.code), e.text)
}

func (p plannerAPI) do(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, plannerLimit)
	defer cancel()
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.address+path, body)
	if err != nil {
		return err
	}
	if p.token != "" {
		req.Header.Set("X-Nomad-Token", p.token)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		text := strings.TrimSpace(string(raw))
		return statusError{resp.StatusCode, text[:min(len(text), 500)]}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("read its answer: %w", err)
	}
	return nil
}
