package identity

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"
)

var start = time.Date(2031, 5, 17, 18, 0, 0, 0, time.UTC)

// issuer signs like Nomad's servers, and serves its keys.
type issuer struct {
	keys  map[string]any
	algs  map[string]jose.SignatureAlgorithm
	reads int
	err   error
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{keys: map[string]any{"rsa": rsaKey}, algs: map[string]jose.SignatureAlgorithm{"rsa": jose.RS256}}
}

func (i *issuer) add(t *testing.T, id string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.keys[id], i.algs[id] = key, jose.EdDSA
}

func (i *issuer) fetch(context.Context) ([]byte, error) {
	i.reads++
	if i.err != nil {
		return nil, i.err
	}
	var set jose.JSONWebKeySet
	for id, key := range i.keys {
		private := jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(i.algs[id]), Use: "sig"}
		set.Keys = append(set.Keys, private.Public())
	}
	return json.Marshal(set)
}

func (i *issuer) sign(t *testing.T, id string, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: i.algs[id], Key: jose.JSONWebKey{Key: i.keys[id], KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func claims(change func(map[string]any)) map[string]any {
	out := map[string]any{
		"aud": "caravan", "iat": start.Unix(), "nbf": start.Unix(),
		"nomad_namespace": "ml", "nomad_job_id": "train", "nomad_allocation_id": "0123456789", "nomad_task": "rank",
	}
	if change != nil {
		change(out)
	}
	return out
}

func TestVerify(t *testing.T) {
	is := newIssuer(t)
	is.add(t, "old")
	foreign := newIssuer(t)
	want := Claims{Namespace: "ml", Job: "train", Alloc: "0123456789", Task: "rank"}
	tests := map[string]struct {
		token string
		// wantErr and wantText are of the refusal; nil for none.
		wantErr  error
		wantText string
	}{
		"RS256":                {token: is.sign(t, "rsa", claims(nil))},
		"EdDSA":                {token: is.sign(t, "old", claims(nil))},
		"with a line's end":    {token: is.sign(t, "rsa", claims(nil)) + "\n"},
		"none":                 {token: "", wantErr: ErrMissing},
		"no JWT":               {token: "garbage", wantErr: ErrInvalid, wantText: "no JWT"},
		"endless":              {token: strings.Repeat("a", maxToken+1), wantErr: ErrInvalid, wantText: "16385 bytes"},
		"not signed":           {token: "eyJhbGciOiJub25lIn0.eyJhdWQiOiJjYXJhdmFuIn0.", wantErr: ErrInvalid},
		"another's signature":  {token: foreign.sign(t, "rsa", claims(nil)), wantErr: ErrInvalid, wantText: "signature"},
		"another audience":     {token: is.sign(t, "rsa", claims(func(c map[string]any) { c["aud"] = []string{"vault.io"} })), wantErr: ErrInvalid, wantText: `[vault.io], want "caravan"`},
		"no audience":          {token: is.sign(t, "rsa", claims(func(c map[string]any) { delete(c, "aud") })), wantErr: ErrInvalid, wantText: "audience"},
		"expired":              {token: is.sign(t, "rsa", claims(func(c map[string]any) { c["exp"] = start.Add(-31 * time.Second).Unix() })), wantErr: ErrInvalid, wantText: "expired at 2031-05-17T17:59:29Z"},
		"just expired":         {token: is.sign(t, "rsa", claims(func(c map[string]any) { c["exp"] = start.Add(-29 * time.Second).Unix() }))},
		"not yet":              {token: is.sign(t, "rsa", claims(func(c map[string]any) { c["nbf"] = start.Add(31 * time.Second).Unix() })), wantErr: ErrInvalid, wantText: "not valid before"},
		"nearly":               {token: is.sign(t, "rsa", claims(func(c map[string]any) { c["nbf"] = start.Add(29 * time.Second).Unix() }))},
		"issued in the future": {token: is.sign(t, "rsa", claims(func(c map[string]any) { c["iat"] = start.Add(time.Hour).Unix() })), wantErr: ErrInvalid, wantText: "in the future"},
		"a service's":          {token: is.sign(t, "rsa", claims(func(c map[string]any) { delete(c, "nomad_task") })), wantErr: ErrInvalid, wantText: "lacks the claims nomad_task"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := New("caravan", is.fetch, func() time.Time { return start })
			got, err := v.Verify(t.Context(), test.token)
			if test.wantErr != nil {
				if !errors.Is(err, test.wantErr) || !strings.Contains(err.Error(), test.wantText) {
					t.Fatalf("error = %v, want %v with %q", err, test.wantErr, test.wantText)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
		})
	}
}

// A token that names a key which is not in the set makes the planner read the
// set again, but not for every such token.
func TestKeysAreReadWhenTheyRotate(t *testing.T) {
	is := newIssuer(t)
	now := start
	v := New("caravan", is.fetch, func() time.Time { return now })
	verify := func(token string, wantOK bool, wantReads int) {
		t.Helper()
		_, err := v.Verify(t.Context(), token)
		if (err == nil) != wantOK || is.reads != wantReads {
			t.Fatalf("error = %v, want none: %v; %d reads, want %d", err, wantOK, is.reads, wantReads)
		}
	}
	verify(is.sign(t, "rsa", claims(nil)), true, 1)
	is.add(t, "next")
	rotated := is.sign(t, "next", claims(nil))
	verify(rotated, false, 1) // too soon after the last read
	now = now.Add(unknownRest)
	verify(rotated, true, 2)
	unknown := newIssuer(t)
	unknown.add(t, "made up")
	for range 5 {
		verify(unknown.sign(t, "made up", claims(nil)), false, 2)
	}
	verify(is.sign(t, "rsa", claims(nil)), true, 2)
	// A key that the servers have dropped counts no more after a while.
	delete(is.keys, "next")
	now = now.Add(stale)
	verify(rotated, false, 3)
}

func TestKeysThatCannotBeRead(t *testing.T) {
	is := newIssuer(t)
	token := is.sign(t, "rsa", claims(nil))
	now := start
	v := New("caravan", is.fetch, func() time.Time { return now })
	is.err = errors.New("connection refused")
	if _, err := v.Verify(t.Context(), token); !errors.Is(err, ErrKeys) || !strings.Contains(err.Error(), "connection refused") {
		t.Fatalf("error = %v, want %v with its cause", err, ErrKeys)
	}
	is.err, now = nil, now.Add(unknownRest)
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	// What is known serves on while Nomad is away.
	is.err, now = errors.New("connection refused"), now.Add(2*stale)
	if _, err := v.Verify(t.Context(), is.sign(t, "rsa", claims(nil))); err != nil {
		t.Fatalf("with known keys: %v", err)
	}
}

func TestTrust(t *testing.T) {
	i := newIssuer(t)
	v := New("caravan", i.fetch, func() time.Time { return start })
	if _, err := v.Verify(t.Context(), i.sign(t, "rsa", claims(nil))); err != nil {
		t.Fatal(err)
	}
	_, refused := v.Verify(t.Context(), i.sign(t, "rsa", claims(func(c map[string]any) { c["aud"] = "other" })))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = v.Verify(gone, "nonsense")
	if want := (Trust{Verified: 1, Refused: 1, LastRefused: start, Why: refused.Error()}); v.Trust() != want {
		t.Errorf("%+v, want %+v", v.Trust(), want)
	}
	raw, err := i.fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := CountKeys(raw); n != 1 || err != nil {
		t.Errorf("%d keys, %v", n, err)
	}
	if n, err := CountKeys([]byte("<html>")); n != 0 || err == nil {
		t.Errorf("%d keys of a page", n)
	}
}

func FuzzVerify(f *testing.F) {
	f.Add("")
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJub25lIn0.eyJhdWQiOiJjYXJhdmFuIn0.")
	f.Add("eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.e30.AA")
	v := New("caravan", func(context.Context) ([]byte, error) { return []byte(`{"keys":[]}`), nil }, func() time.Time { return start })
	f.Fuzz(func(t *testing.T, token string) {
		if c, err := v.Verify(t.Context(), token); err == nil {
			t.Errorf("%q was taken for %v", token, c)
		}
	})
}
