package gangapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

var (
	// ErrUnreachable: nobody answered there, or only that it cannot answer now.
	// Ask again later.
	ErrUnreachable = errors.New("planner cannot be reached")
	// ErrRefusedIdentity: the planner does not accept the workload identity.
	ErrRefusedIdentity = errors.New("planner refuses the workload identity")
	// ErrNonsense: what answered is no planner, or one that cannot be understood.
	ErrNonsense = errors.New("no sensible answer of a planner")
	// ErrNoIdentity: the file with the workload identity cannot be used. Nobody
	// was asked.
	ErrNoIdentity = errors.New("read workload identity")
)

// maxAnswer bounds an answer: the membership of the largest gang is far below
// it.
const maxAnswer = 32 << 20

// Client talks to the planners. It is safe for concurrent use; the supervisor
// has a report open while it does other things.
type Client struct {
	config    Config
	bases     []*url.URL
	http      *http.Client
	transport *http.Transport
	// good is the index of the address that answered last.
	good atomic.Int64
}

// NewClient checks the configuration whole.
func NewClient(config Config) (*Client, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("make planner client: %w", err)
	}
	if config.DialTimeout == 0 {
		config.DialTimeout = DefaultDialTimeout
	}
	if config.Slack == 0 {
		config.Slack = DefaultSlack
	}
	c := &Client{config: config}
	for _, a := range config.Addresses {
		u, err := base(a)
		if err != nil {
			return nil, fmt.Errorf("make planner client: %w", err)
		}
		c.bases = append(c.bases, u)
	}
	// No proxy: the planner is as near as the other members, and a proxy that
	// ends long polls would only do harm.
	c.transport = &http.Transport{
		DialContext:         (&net.Dialer{Timeout: config.DialTimeout, KeepAlive: 10 * time.Second}).DialContext,
		DialTLSContext:      c.dialTLS,
		MaxIdleConnsPerHost: 2,
		IdleConnTimeout:     90 * time.Second,
	}
	c.http = &http.Client{
		Transport: c.transport,
		// The identity goes to the addresses that were configured and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// Close lets go of idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// dialTLS reads certificates for each connection.
func (c *Client) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	config, err := c.config.tls()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.DialTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{KeepAlive: 10 * time.Second}, Config: config}).DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("connect by TLS: %w", err)
	}
	return conn, nil
}

// Join asks to start, and waits up to r.WaitMS for news.
func (c *Client) Join(ctx context.Context, r JoinRequest) (JoinAnswer, error) {
	return ask(ctx, c, call[JoinAnswer]{JoinPath, r.WaitMS, "state", JoinAnswer.validate}, r)
}

// Report tells how the member does, and waits up to r.WaitMS for an order.
func (c *Client) Report(ctx context.Context, r ReportRequest) (ReportAnswer, error) {
	return ask(ctx, c, call[ReportAnswer]{ReportPath, r.WaitMS, "attached", ReportAnswer.validate}, r)
}

// call is one kind of request.
type call[Answer any] struct {
	path   string
	waitMS int64
	// key is in every answer: what lacks it is another program's JSON.
	key      string
	validate func(Answer) error
}

// ask tries the addresses in turn, from the last good one on, until one gives
// an answer that can be used. If none does, the error holds what each of them
// did, and every sentinel that applies: ErrRefusedIdentity weighs more than that
// another one could not be reached.
func ask[Answer any](ctx context.Context, c *Client, k call[Answer], request any) (Answer, error) {
	var zero Answer
	body, err := json.Marshal(request)
	if err != nil {
		return zero, fmt.Errorf("encode request: %w", err)
	}
	if k.waitMS < 0 || k.waitMS > maxWaitMS {
		return zero, fmt.Errorf("ask planner: wait of %d ms: from 0 to %d", k.waitMS, maxWaitMS)
	}
	limit := time.Duration(k.waitMS)*time.Millisecond + c.config.DialTimeout + c.config.Slack
	first := int(c.good.Load())
	var faults []error
	for i := range c.bases {
		at := (first + i) % len(c.bases)
		answer, err := try(ctx, c, c.bases[at], k, limit, body)
		if err == nil {
			c.good.Store(int64(at))
			return answer, nil
		}
		if ctx.Err() != nil {
			return zero, fmt.Errorf("ask planner: %w", context.Cause(ctx))
		}
		faults = append(faults, err)
		if errors.Is(err, ErrNoIdentity) {
			break
		}
	}
	return zero, errors.Join(faults...)
}

// maxWaitMS bounds the wait that may be asked for: an hour.
const maxWaitMS = 3_600_000

func try[Answer any](ctx context.Context, c *Client, base *url.URL, k call[Answer], limit time.Duration, body []byte) (Answer, error) {
	var zero Answer
	identity, err := c.config.identity()
	if err != nil {
		return zero, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base.String()+k.path, bytes.NewReader(body))
	if err != nil {
		return zero, fmt.Errorf("make request to %s: %w", base, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(IdentityHeader, identity)
	// Asking twice is asking once: a request on a connection that the planner has
	// just closed is sent again. The empty value is not sent.
	req.Header["Idempotency-Key"] = nil
	resp, err := c.http.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // the address is said once
		}
		return zero, fmt.Errorf("%s: %w: %w", base, ErrUnreachable, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return zero, fmt.Errorf("%s: %w: read answer: %w", base, ErrUnreachable, err)
	}
	if err := statusError(resp.StatusCode, b); err != nil {
		return zero, fmt.Errorf("%s: %w", base, err)
	}
	answer, err := k.read(b)
	if err != nil {
		return zero, fmt.Errorf("%s: %w: %w", base, ErrNonsense, err)
	}
	return answer, nil
}

// read decodes and checks an answer.
func (k call[Answer]) read(b []byte) (Answer, error) {
	var answer, zero Answer
	if len(b) > maxAnswer {
		return zero, fmt.Errorf("it is larger than %d MiB", maxAnswer>>20)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(b, &keys); err != nil {
		return zero, err
	}
	if _, ok := keys[k.key]; !ok {
		return zero, fmt.Errorf("it has no %q", k.key)
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return zero, err
	}
	if err := k.validate(answer); err != nil {
		return zero, err
	}
	return answer, nil
}

// statusError is nil for a success. A planner that stands by, starts or is
// overloaded says so with a 5xx or 429.
func statusError(status int, body []byte) error {
	kind := ErrNonsense
	switch {
	case status == http.StatusOK:
		return nil
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		kind = ErrRefusedIdentity
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		kind = ErrUnreachable
	}
	return fmt.Errorf("%w: status %d: %s", kind, status, words(body))
}

// words are what an answer says, short: the planner's own, or the start of
// whatever else answered.
func words(body []byte) string {
	var own struct {
		Error string `json:"error"`
	}
	text := ""
	if json.Unmarshal(body, &own) == nil {
		text = own.Error
	}
	if text == "" {
		text = string(body[:min(len(body), 4*maxWords)])
	}
	runes := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " "))
	if len(runes) > maxWords {
		return string(runes[:maxWords]) + "…"
	}
	return string(runes)
}

const maxWords = 300
