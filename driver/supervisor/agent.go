package supervisor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// nomadAgent is the local Nomad agent.
type nomadAgent struct {
	url  string
	http *http.Client
}

// newNomadAgent reads certificates for each connection, as they are renewed
// while the task runs.
func newNomadAgent(base string, files TLS) *nomadAgent {
	dialer := &net.Dialer{Timeout: agentEvery}
	return &nomadAgent{
		url: strings.TrimRight(base, "/") + "/v1/status/leader",
		http: &http.Client{Transport: &http.Transport{
			DialContext: dialer.DialContext,
			DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				config, err := files.config()
				if err != nil {
					return nil, err
				}
				return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
			},
			MaxIdleConns: 1, IdleConnTimeout: time.Minute,
		}},
	}
}

func (t TLS) config() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read CA file: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA file: %s holds no PEM certificate", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read certificate and key: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

var errNoLeader = errors.New("Nomad's servers have no leader")

// maxLeader bounds the answer, an address in quotes.
const maxLeader = 4 << 10

// Attached implements agent: the agent passes the question on to a server, so
// an answer with a leader says that it reaches one, and that one the others.
func (n *nomadAgent) Attached(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url, nil)
	if err != nil {
		return fmt.Errorf("ask local agent: %w", err)
	}
	resp, err := n.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask local agent: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ask local agent: it answered %s", resp.Status)
	}
	var leader string
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxLeader)).Decode(&leader); err != nil {
		return fmt.Errorf("ask local agent: %w", err)
	}
	if leader == "" {
		return fmt.Errorf("ask local agent: %w", errNoLeader)
	}
	return nil
}
