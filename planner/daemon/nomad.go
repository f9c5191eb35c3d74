package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/go-cleanhttp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// connections is how many idle connections to Nomad are kept: the watches,
// and the details that are fetched at once.
const connections = 32

// clients makes two clients of Nomad's API: one that speaks as the planner,
// and one that has no token of its own.
func clients(n config.Nomad, clock *nomadClock) (planner, nobody *api.Client, err error) {
	cfg := n.ClientConfig()
	transport := cleanhttp.DefaultPooledTransport()
	transport.MaxIdleConnsPerHost = connections
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if u, err := url.Parse(n.Address); err == nil && u.Scheme == "unix" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", u.Path)
		}
		cfg.Address = "http://nomad.sock"
	}
	plain := &http.Client{Transport: transport}
	if err := api.ConfigureTLS(plain, cfg.TLSConfig); err != nil {
		return nil, nil, fmt.Errorf("set up TLS to Nomad: %w", err)
	}
	token, err := n.ReadToken()
	if err != nil {
		return nil, nil, err
	}
	make := func(hc *http.Client) (*api.Client, error) {
		own := *cfg
		own.HttpClient = hc
		c, err := api.NewClient(&own)
		if err != nil {
			return nil, fmt.Errorf("make Nomad client: %w", err)
		}
		return c, nil
	}
	if nobody, err = make(plain); err != nil {
		return nil, nil, err
	}
	planner, err = make(&http.Client{Transport: &tokenTransport{base: transport, nomad: n, token: token, clock: clock}})
	return planner, nobody, err
}

// tokenTransport puts the planner's token on requests that have none. When
// Nomad refuses it, the token file is read again, for the next request.
type tokenTransport struct {
	base  http.RoundTripper
	nomad config.Nomad
	clock *nomadClock

	mu    sync.Mutex
	token string
}

func (t *tokenTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.mu.Lock()
	token := t.token
	t.mu.Unlock()
	own := token != "" && req.Header.Get(httpapi.TokenHeader) == ""
	if own {
		req = req.Clone(req.Context())
		req.Header.Set(httpapi.TokenHeader, token)
	}
	asked := time.Now()
	resp, err := t.base.RoundTrip(req)
	if err == nil && req.URL.Query().Get("index") == "" {
		// A blocking query's answer may have been dated long before it came.
		t.clock.saw(resp.Header.Get("Date"), asked, time.Now())
	}
	if err == nil && own && t.nomad.TokenFile != "" && (resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusUnauthorized) {
		// An unreadable file leaves the old token, and the refusal is shown.
		if fresh, err := t.nomad.ReadToken(); err == nil {
			t.mu.Lock()
			t.token = fresh
			t.mu.Unlock()
		}
	}
	return resp, err
}
