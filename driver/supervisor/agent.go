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
	// socket is the agent's socket for the task, which is asked instead where it
	// is there, with the token in tokenFile.
	socket, tokenFile string
	task              *http.Client
}

// leaderPath asks a server, through the agent, who leads. It needs no right.
const leaderPath = "/v1/status/leader"

// newNomadAgent reads certificates for each connection, as they are renewed
// while the task runs.
func newNomadAgent(f Fence) *nomadAgent {
	dialer := &net.Dialer{Timeout: agentEvery}
	files := f.TLS
	return &nomadAgent{
		socket: f.Socket, tokenFile: f.TokenFile,
		task: &http.Client{Transport: &http.Transport{
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dialUnix(ctx, f.Socket) },
			DisableKeepAlives: true, // the agent may be another one by the next time
		}},
		url: strings.TrimRight(f.Nomad, "/") + leaderPath,
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

var (
	errNoLeader = errors.New("Nomad's servers have no leader")
	errDenied   = errors.New("it does not take the task's token")
	errNoAgent  = errors.New("its address is not set, and its socket for the task is not there")
)

// maxLeader bounds the answer, an address in quotes.
const maxLeader = 4 << 10

// Attached implements agent: the agent passes the question on to a server, so
// an answer with a leader says that it reaches one, and that one the others.
func (n *nomadAgent) Attached(ctx context.Context) error {
	if n.socket != "" {
		// Nomad's Task API takes any of the task's workload identities.
		if text, err := os.ReadFile(n.tokenFile); err == nil {
			if _, err := os.Stat(n.socket); err == nil {
				err := ask(ctx, n.task, "http://task"+leaderPath, strings.TrimSpace(string(text)))
				if !errors.Is(err, errDenied) || n.url == leaderPath {
					return err
				}
				// The token has expired, as after a long time apart. That says
				// nothing about the agent.
			}
		}
	}
	if n.url == leaderPath {
		return fmt.Errorf("ask local agent: %w", errNoAgent)
	}
	return ask(ctx, n.http, n.url, "")
}

func ask(ctx context.Context, client *http.Client, url, token string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("ask local agent: %w", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask local agent: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("ask local agent: %w: it answered %s", errDenied, resp.Status)
	default:
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
