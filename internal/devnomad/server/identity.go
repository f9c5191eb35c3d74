package server

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"
)

// defaultIdentity is the name of the identity that every task has, and
// defaultAudience whom it is for.
const (
	defaultIdentity = "default"
	defaultAudience = "nomadproject.io"
)

// keyBits is the size of the signing key.
const keyBits = 2048

// keyring signs what workloads show of themselves. The key is made when it is
// first needed, since that takes a while.
type keyring struct {
	id   string
	make func() (*rsa.PrivateKey, error)
}

func newKeyring() *keyring {
	return &keyring{id: uuid.NewString(), make: sync.OnceValues(func() (*rsa.PrivateKey, error) {
		key, err := rsa.GenerateKey(rand.Reader, keyBits)
		if err != nil {
			return nil, fmt.Errorf("make signing key: %w", err)
		}
		return key, nil
	})}
}

// claims are those of Nomad's workload identities.
type claims struct {
	Namespace    string `json:"nomad_namespace"`
	JobID        string `json:"nomad_job_id"`
	AllocationID string `json:"nomad_allocation_id"`
	TaskName     string `json:"nomad_task,omitempty"`
	jwt.Claims
}

// PublicKeys are what identities can be checked with.
func (s *Server) PublicKeys() (*jose.JSONWebKeySet, error) {
	key, err := s.keys.make()
	if err != nil {
		return nil, err
	}
	return &jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{
		Key: &key.PublicKey, KeyID: s.keys.id, Algorithm: string(jose.RS256), Use: "sig",
	}}}, nil
}

// SignIdentity returns a token with which a task of an allocation shows who it
// is, and when it expires; zero is never. A child of a parameterized or
// periodic job has its parent's name.
func (s *Server) SignIdentity(a *api.Allocation, task string, wid *api.WorkloadIdentity) (string, time.Time, error) {
	key, err := s.keys.make()
	if err != nil {
		return "", time.Time{}, err
	}
	opts := (&jose.SignerOptions{}).WithHeader("kid", s.keys.id).WithType("JWT")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, opts)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign identity: %w", err)
	}
	now := s.Now().UTC()
	job := *a.Job.ID
	if p := deref(a.Job.ParentID); p != "" {
		job = p
	}
	c := claims{
		Namespace: a.Namespace, JobID: job, AllocationID: a.ID, TaskName: task,
		Claims: jwt.Claims{
			Subject:  strings.Join([]string{deref(a.Job.Region), a.Namespace, job, a.TaskGroup, task, wid.Name}, ":"),
			Audience: wid.Audience, NotBefore: jwt.NewNumericDate(now), IssuedAt: jwt.NewNumericDate(now), ID: uuid.NewString(),
		},
	}
	var expires time.Time
	if wid.TTL > 0 {
		expires = now.Add(wid.TTL)
		c.Expiry = jwt.NewNumericDate(expires)
	}
	token, err := jwt.Signed(signer).Claims(c).Serialize()
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign identity: %w", err)
	}
	return token, expires, nil
}

// canonicalIdentities moves the default identity to its own field, and
// completes it.
func canonicalIdentities(t *api.Task) {
	var others []*api.WorkloadIdentity
	for _, w := range t.Identities {
		if w.Name == "" || w.Name == defaultIdentity {
			w.Name, t.Identity = defaultIdentity, w
		} else {
			w.ChangeSignal = strings.ToUpper(w.ChangeSignal)
			others = append(others, w)
		}
	}
	t.Identities = others
	if t.Identity == nil {
		t.Identity = &api.WorkloadIdentity{}
	}
	t.Identity.Name, t.Identity.Audience = defaultIdentity, []string{defaultAudience}
}

// KnowsIdentity says whether a token is a workload identity of the server's that
// has not expired. Whom it is for does not matter, as with Nomad.
func (s *Server) KnowsIdentity(token string) bool {
	key, err := s.keys.make()
	if err != nil {
		return false
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		return false
	}
	var c claims
	if parsed.Claims(&key.PublicKey, &c) != nil {
		return false
	}
	return c.ValidateWithLeeway(jwt.Expected{Time: s.Now()}, jwt.DefaultLeeway) == nil
}
