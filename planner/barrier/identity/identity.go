// Package identity checks the workload identities that gang members show: JWTs
// signed by Nomad's servers, which say of which allocation and task the bearer
// is. Nothing else about a member is believed.
package identity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

var (
	// ErrMissing: the request carries no identity.
	ErrMissing = errors.New("the request carries no workload identity")
	// ErrInvalid: what it carries is no identity that Nomad gave for this use.
	ErrInvalid = errors.New("the workload identity is not valid")
	// ErrKeys: the servers' keys cannot be read, so nothing can be said.
	ErrKeys = errors.New("the keys of Nomad's servers cannot be read")
)

// Leeway is how far clocks may be apart.
const Leeway = 30 * time.Second

// maxToken bounds a token's length in bytes; Nomad's have about a thousand.
const maxToken = 16 << 10

// algorithms are those that Nomad signs with: RS256, and EdDSA with the keys
// of servers before 1.7.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.EdDSA}

// Claims say who a member is.
type Claims struct {
	Namespace string
	Job       string
	Alloc     string
	Task      string
}

// String names the bearer for people.
func (c Claims) String() string {
	return fmt.Sprintf("task %q of allocation %s of job %q in namespace %q", c.Task, short(c.Alloc), c.Job, c.Namespace)
}

func short(id string) string { return id[:min(len(id), 8)] }

// Verifier checks identities. It may be used by many at once.
type Verifier struct {
	audience string
	keys     *keys
	now      func() time.Time

	mu    sync.Mutex
	trust Trust
}

// Trust is what a Verifier has found so far.
type Trust struct {
	// Verified counts identities that were found to be Nomad's, Refused those
	// that were not; LastRefused is when the last of these was, and Why.
	Verified, Refused int
	LastRefused       time.Time
	Why               string
}

// Trust is what was found so far.
func (v *Verifier) Trust() Trust {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.trust
}

// New returns a Verifier of identities made for the audience. fetch reads the
// servers' key set as JSON (/.well-known/jwks.json).
func New(audience string, fetch func(context.Context) ([]byte, error), now func() time.Time) *Verifier {
	return &Verifier{audience: audience, keys: &keys{fetch: fetch, now: now}, now: now}
}

// nomadClaims are what Nomad says beyond the registered claims.
type nomadClaims struct {
	Namespace string `json:"nomad_namespace"`
	Job       string `json:"nomad_job_id"`
	Alloc     string `json:"nomad_allocation_id"`
	Task      string `json:"nomad_task"`
}

// Verify says whose identity the token is. The error wraps one of the
// package's, and says what was found and what was wanted.
func (v *Verifier) Verify(ctx context.Context, token string) (Claims, error) {
	who, err := v.verify(ctx, token)
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case err == nil:
		v.trust.Verified++
	case ctx.Err() == nil:
		v.trust.Refused++
		v.trust.LastRefused, v.trust.Why = v.now(), err.Error()
	}
	return who, err
}

func (v *Verifier) verify(ctx context.Context, token string) (Claims, error) {
	token = strings.TrimSpace(token)
	switch {
	case token == "":
		return Claims{}, ErrMissing
	case len(token) > maxToken:
		return Claims{}, fmt.Errorf("%w: it has %d bytes, more than the %d of any", ErrInvalid, len(token), maxToken)
	}
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return Claims{}, fmt.Errorf("%w: it is no JWT signed as Nomad signs: %w", ErrInvalid, err)
	}
	if len(parsed.Headers) != 1 {
		return Claims{}, fmt.Errorf("%w: it has %d signatures, want 1", ErrInvalid, len(parsed.Headers))
	}
	key, err := v.keys.get(ctx, parsed.Headers[0].KeyID)
	if err != nil {
		return Claims{}, err
	}
	var registered jwt.Claims
	var own nomadClaims
	if err := parsed.Claims(key, &registered, &own); err != nil {
		return Claims{}, fmt.Errorf("%w: its signature is not of Nomad's key %q: %w", ErrInvalid, parsed.Headers[0].KeyID, err)
	}
	if err := v.check(registered); err != nil {
		return Claims{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return own.complete()
}

func (v *Verifier) check(c jwt.Claims) error {
	err := c.ValidateWithLeeway(jwt.Expected{AnyAudience: jwt.Audience{v.audience}, Time: v.now()}, Leeway)
	switch {
	case errors.Is(err, jwt.ErrInvalidAudience):
		return fmt.Errorf("it is made for the audience [%s], want %q", strings.Join(c.Audience, ", "), v.audience)
	case errors.Is(err, jwt.ErrExpired):
		return fmt.Errorf("it expired at %s", c.Expiry.Time().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrNotValidYet):
		return fmt.Errorf("it is not valid before %s; see that the clocks agree", c.NotBefore.Time().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrIssuedInTheFuture):
		return fmt.Errorf("it was issued at %s, in the future; see that the clocks agree", c.IssuedAt.Time().UTC().Format(time.RFC3339))
	}
	return err
}

// complete refuses identities that are not a task's: services and workloads of
// Consul's and Vault's have some of the claims only.
func (c nomadClaims) complete() (Claims, error) {
	var lacking []string
	for _, claim := range []struct{ name, value string }{
		{"nomad_namespace", c.Namespace}, {"nomad_job_id", c.Job}, {"nomad_allocation_id", c.Alloc}, {"nomad_task", c.Task},
	} {
		if claim.value == "" {
			lacking = append(lacking, claim.name)
		}
	}
	if len(lacking) > 0 {
		return Claims{}, fmt.Errorf("%w: it lacks the claims %s, so it is not a task's", ErrInvalid, strings.Join(lacking, ", "))
	}
	return Claims(c), nil
}
