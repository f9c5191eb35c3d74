package doctor

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/httpapi"
)

func TestIdentities(t *testing.T) {
	now := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	answer := func(status int) error {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) }))
		defer server.Close()
		client, err := api.NewClient(&api.Config{Address: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Raw().Response("/x", nil)
		return err
	}
	tests := map[string]struct {
		keys  int
		err   error
		trust *Trust
		want  httpapi.CheckStatus
		// parts of the detail and of what to do
		detail, do string
	}{
		"sound, without a planner":   {2, nil, nil, httpapi.CheckOK, "http://nomad/jwks shows 2 keys to check", ""},
		"sound":                      {1, nil, &Trust{Verified: 5}, httpapi.CheckOK, "1 key; 5 identities of members were verified", ""},
		"none was refused lately":    {1, nil, &Trust{Verified: 5, Refused: 1, LastRefused: now.Add(-2 * time.Hour)}, httpapi.CheckOK, "5 identities", ""},
		"one was refused":            {1, nil, &Trust{Verified: 5, Refused: 2, LastRefused: now.Add(-time.Minute), Why: "it expired at noon"}, httpapi.CheckWarn, "2 identities were refused and 5 verified since the planner started; the last one was refused at 2030-12-31T23:59:00Z: it expired at noon", "clocks agree"},
		"a proxy that asks":          {0, answer(403), nil, httpapi.CheckFail, "are refused at http://nomad/jwks", "something in between"},
		"no such page":               {0, answer(404), nil, httpapi.CheckFail, "there are no keys at http://nomad/jwks", "1.7 or newer"},
		"it cannot be reached":       {0, errors.New("connection refused"), nil, httpapi.CheckFail, "cannot be read at http://nomad/jwks, so members' identities cannot be checked and no gang starts: connection refused", "reaches this address"},
		"a key set without any keys": {0, nil, nil, httpapi.CheckFail, "http://nomad/jwks shows no key", "keyring"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Patient{Now: func() time.Time { return now }, Keys: func(context.Context) (string, int, error) { return "http://nomad/jwks", tt.keys, tt.err }}
			if tt.trust != nil {
				p.Trust = func() Trust { return *tt.trust }
			}
			x := &examination{Patient: p, ctx: t.Context()}
			x.identities()
			if len(x.checks) != 1 {
				t.Fatalf("%d checks", len(x.checks))
			}
			got := x.checks[0]
			if got.Name != "identity" || got.Status != tt.want || !strings.Contains(got.Detail, tt.detail) || !strings.Contains(got.Do, tt.do) {
				t.Errorf("%+v, want %s, %q and %q", got, tt.want, tt.detail, tt.do)
			}
		})
	}
	x := &examination{ctx: t.Context()}
	if x.identities(); len(x.checks) != 0 {
		t.Errorf("a planner that serves no members is checked: %v", x.checks)
	}
}
