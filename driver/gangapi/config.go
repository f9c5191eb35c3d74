package gangapi

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"
)

// Config says how a member reaches the planners.
type Config struct {
	// Addresses are the planners' base URLs, http://HOST:PORT or
	// https://HOST:PORT. They are tried in turn, the last good one first.
	Addresses []string
	// CAFile holds the authorities of the planners' certificates, in PEM; ""
	// means the system's. CertFile and KeyFile are shown to planners that ask for
	// a certificate. All are read again for each new connection, so that they
	// can be renewed while a member runs.
	CAFile   string
	CertFile string
	KeyFile  string
	// ServerName is expected in the planners' certificates in place of the
	// address's host.
	ServerName string
	// IdentityFile holds the workload identity. Nomad renews it, so it is read
	// for every request.
	IdentityFile string

	// DialTimeout bounds the connecting to one address, TLS included; 0 is
	// DefaultDialTimeout. Slack is how much later than asked an answer may come
	// before the address counts as dead; 0 is DefaultSlack.
	DialTimeout time.Duration
	Slack       time.Duration
}

// The defaults of Config.
const (
	DefaultDialTimeout = 5 * time.Second
	DefaultSlack       = 10 * time.Second
)

// Validate returns every fault of the configuration. The identity file need not
// be there yet.
func (c Config) Validate() error {
	var faults []error
	if len(c.Addresses) == 0 {
		faults = append(faults, errors.New("addresses: name at least one planner, as http://HOST:PORT or https://HOST:PORT"))
	}
	for _, a := range c.Addresses {
		if _, err := base(a); err != nil {
			faults = append(faults, err)
		}
	}
	if c.IdentityFile == "" {
		faults = append(faults, errors.New("identity file: name the file with the workload identity"))
	}
	if c.DialTimeout < 0 || c.Slack < 0 {
		faults = append(faults, fmt.Errorf("dial timeout = %v, slack = %v: must not be negative", c.DialTimeout, c.Slack))
	}
	if _, err := c.tls(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// base checks a planner's address and returns it without a trailing slash.
func base(address string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil {
		return nil, fmt.Errorf("address %q: want http://HOST:PORT or https://HOST:PORT", address)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("address %q: want http://HOST:PORT or https://HOST:PORT", address)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// tls reads the files anew and reports all that is wrong with them.
func (c Config) tls() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	var faults []error
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			faults = append(faults, fmt.Errorf("read CA file: %w", err))
		}
		out.RootCAs = x509.NewCertPool()
		if err == nil && !out.RootCAs.AppendCertsFromPEM(pem) {
			faults = append(faults, fmt.Errorf("read CA file: %s holds no PEM certificate", c.CAFile))
		}
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		faults = append(faults, fmt.Errorf("certificate file %q, key file %q: give both or none", c.CertFile, c.KeyFile))
	} else if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			faults = append(faults, fmt.Errorf("read certificate and key: %w", err))
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, errors.Join(faults...)
}

const maxIdentity = 64 << 10

// missingIdentity is the path at which there is no workload identity.
type missingIdentity string

func (m missingIdentity) Error() string {
	return fmt.Sprintf("no workload identity at %s: the job was not submitted through Caravan's gateway, or has no identity block named %s", string(m), IdentityName)
}

func (missingIdentity) Unwrap() error { return ErrNoIdentity }

// identity reads the token. What is not one, for instance while the file is
// being replaced, is not sent.
func (c Config) identity() (string, error) {
	info, err := os.Stat(c.IdentityFile)
	if errors.Is(err, fs.ErrNotExist) {
		// Nomad writes it before it starts the task.
		return "", missingIdentity(c.IdentityFile)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoIdentity, err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxIdentity {
		return "", fmt.Errorf("%w: %s is no file with a token", ErrNoIdentity, c.IdentityFile)
	}
	b, err := os.ReadFile(c.IdentityFile)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoIdentity, err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%w: %s holds no token", ErrNoIdentity, c.IdentityFile)
	}
	return token, nil
}
