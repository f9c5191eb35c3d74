package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"

	"github.com/hashicorp/go-cleanhttp"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/gateway"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// maxForwarded is how many idle connections to the leader are kept.
const maxForwarded = 1024

// forwarded marks a request that another planner sent on, so that two that
// disagree about who leads do not send it around in circles.
const forwarded = "X-Caravan-Forwarded"

// Handler serves everything on the planner's one listener: its own API, its
// metrics, and Nomad's API through the gateway. It is no ServeMux, which would
// redirect paths that it finds unclean: a job's ID in one may hold double
// slashes and dots.
func (d *Daemon) Handler() http.Handler {
	own := httpapi.Handler(backend{d})
	leaders := d.toLeader(own)
	nomad := nameRights(d.gateway)
	metrics := promhttp.HandlerFor(d.metrics.registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == "/metrics":
			metrics.ServeHTTP(w, r)
		case path == httpapi.Prefix+"/status":
			own.ServeHTTP(w, r)
		case path == "/caravan" || strings.HasPrefix(path, "/caravan/"):
			leaders.ServeHTTP(w, r)
		default:
			nomad.ServeHTTP(w, r)
		}
	})
}

// toLeader sends requests on to the planner that leads, since it alone knows
// the decisions and may change anything.
func (d *Daemon) toLeader(own http.Handler) http.Handler {
	// Members' polls come by the thousand, and each ends only to begin anew.
	transport := cleanhttp.DefaultPooledTransport()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, maxForwarded
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target := d.elsewhere()
		if target == nil || r.Header.Get(forwarded) != "" {
			own.ServeHTTP(w, r)
			return
		}
		proxy := &httputil.ReverseProxy{
			Transport: transport,
			Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(target)
				p.SetXForwarded()
				p.Out.Header.Set(forwarded, "1")
			},
			// What a follower knows itself is better than nothing.
			ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
				d.log.Debug("the leader cannot be reached", "leader", target, "error", err)
				if r.Method == http.MethodGet {
					own.ServeHTTP(w, r)
					return
				}
				http.Error(w, fmt.Sprintf(`{"error":"the leading planner at %s cannot be reached","what_to_do":"try again in a few seconds"}`, target), http.StatusBadGateway)
			},
		}
		gateway.Pass(proxy, w, r)
	})
}

// askPeer finds out whether a planner answers at an address, with whatever.
func (d *Daemon) askPeer(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+httpapi.Prefix+"/status", nil)
	if err != nil {
		return err
	}
	resp, err := d.peers.Do(req)
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err // the address is said anyway
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// elsewhere is the leader's address, nil if this planner leads or nobody does.
func (d *Daemon) elsewhere() *url.URL {
	if d.cfg.ObserveOnly {
		return nil
	}
	term, holder := d.leader.get()
	if term != nil || holder == "" || holder == d.Address() {
		return nil
	}
	u, err := url.Parse(holder)
	if err != nil || u.Host == "" {
		return nil
	}
	return u
}

// listenTLS is the listener's TLS configuration; nil without TLS. The files
// are read anew for every connection's handshake if they can be, so that
// renewed certificates need no restart.
func listenTLS(l config.Listen) (*tls.Config, error) {
	if l.CertFile == "" {
		return nil, nil
	}
	first, err := tls.LoadX509KeyPair(l.CertFile, l.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load the listener's certificate: %w", err)
	}
	out := &tls.Config{
		MinVersion: tls.VersionTLS12,
		// Nomad's exec and websockets want HTTP/1.1.
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if c, err := tls.LoadX509KeyPair(l.CertFile, l.KeyFile); err == nil {
				return &c, nil
			}
			return &first, nil
		},
	}
	if l.ClientCAFile != "" {
		pem, err := os.ReadFile(l.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("read the listener's client authority: %w", err)
		}
		out.ClientCAs = x509.NewCertPool()
		if !out.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("read the listener's client authority: " + l.ClientCAFile + " holds no PEM certificate")
		}
		out.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return out, nil
}
