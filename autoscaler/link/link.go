// Package link joins the autoscaler's plugins to the planner: the settings that all
// of them have in common, and a client made of them.
package link

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/httpapi"
)

// The keys of a plugin's configuration that say where the planner is.
const (
	// KeyAddress is the planner's address; it must be set.
	KeyAddress = "planner_address"
	// KeyToken is the Nomad ACL token that the planner checks, KeyTokenFile a file
	// with it. Without either it is the autoscaler's own, keyNomadToken.
	KeyToken      = "planner_token"
	KeyTokenFile  = "planner_token_file"
	keyNomadToken = "nomad_token"
	// KeyCA is a file with the certificates that the planner's is checked against,
	// in PEM; "" means the machine's.
	KeyCA = "planner_ca_file"
	// KeyTimeout bounds a request; 10 s where it is not set.
	KeyTimeout = "planner_timeout"
)

// Keys are all of them that are this package's own.
func Keys() []string { return []string{KeyAddress, KeyToken, KeyTokenFile, KeyCA, KeyTimeout} }

const defaultTimeout = 10 * time.Second

// Open makes a client by a plugin's configuration. It says everything that is wrong.
func Open(config map[string]string) (*httpapi.Client, error) {
	var faults []error
	bad := func(key, want string) {
		faults = append(faults, fmt.Errorf("%s is %q: want %s", key, config[key], want))
	}
	address := config[KeyAddress]
	if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		bad(KeyAddress, "the planner's address such as "+httpapi.DefaultAddress+", without a user")
	}
	token := config[KeyToken]
	if path := config[KeyTokenFile]; path != "" {
		raw, err := os.ReadFile(path)
		if err != nil || token != "" {
			bad(KeyTokenFile, "a file that can be read, and no "+KeyToken+" beside it")
		}
		token = strings.TrimSpace(string(raw))
	}
	if token == "" {
		token = config[keyNomadToken]
	}
	timeout := defaultTimeout
	if v := config[KeyTimeout]; v != "" {
		var err error
		if timeout, err = time.ParseDuration(v); err != nil || timeout <= 0 {
			bad(KeyTimeout, `a duration above 0 such as "10s"`)
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if path := config[KeyCA]; path != "" {
		roots := x509.NewCertPool()
		raw, err := os.ReadFile(path)
		if err != nil || !roots.AppendCertsFromPEM(raw) {
			bad(KeyCA, "a file with certificates in PEM")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return httpapi.NewClient(address, token, &http.Client{Transport: transport, Timeout: timeout})
}
