package facts

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
)

// keys are what the cluster publishes for checking identities.
func (e *env) keys() *jose.JSONWebKeySet {
	e.t.Helper()
	resp, err := http.Get(e.c.Address() + "/.well-known/jwks.json")
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out jose.JSONWebKeySet
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		e.t.Fatal(err)
	}
	return &out
}

// claims checks a token's signature and returns its claims, times apart.
func (e *env) claims(token string) (claims map[string]any, issued, expires time.Time) {
	e.t.Helper()
	parsed, err := jwt.ParseSigned(strings.TrimSpace(token), []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		e.t.Fatalf("token %q: %v", token, err)
	}
	if err := parsed.Claims(e.keys(), &claims); err != nil {
		e.t.Fatal(err)
	}
	moment := func(name string) time.Time {
		n, ok := claims[name].(float64)
		delete(claims, name)
		if !ok {
			return time.Time{}
		}
		return time.Unix(int64(n), 0)
	}
	issued, expires = moment("iat"), moment("exp")
	if begins := moment("nbf"); !begins.Equal(issued) {
		e.t.Errorf("a token issued at %v holds from %v", issued, begins)
	}
	if id, _ := claims["jti"].(string); len(id) != 36 {
		e.t.Errorf("jti is %v", claims["jti"])
	}
	delete(claims, "jti")
	return claims, issued, expires
}

// Tasks get tokens that say who they are, in files and in the environment.
func TestIdentities(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *env) {
		j := e.driven(`echo "$NOMAD_TOKEN_caravan"; cat "$NOMAD_SECRETS_DIR/nomad_caravan.jwt"; echo; cat ../main/local/here.jwt; echo; cat "$NOMAD_SECRETS_DIR/nomad_token"; echo; echo "$NOMAD_TOKEN_file-only$NOMAD_TOKEN."; echo end; ` + sleeper)
		task := j.TaskGroups[0].Tasks[0]
		task.Identities = []*api.WorkloadIdentity{
			{Name: "caravan", Audience: []string{"caravan"}, Env: true, File: true, TTL: time.Hour},
			{Name: "other", Audience: []string{"a", "b"}, File: true, Filepath: "local/here.jwt"},
			{Name: "default", File: true},
		}
		e.register(j)
		alloc := e.only(*j.ID, api.AllocClientStatusRunning)
		lines := strings.Split(e.wrote(alloc, func(s string) bool { return strings.HasSuffix(s, "end\n") }), "\n")
		if len(lines) != 7 || lines[0] != lines[1] || lines[4] != "-only." {
			t.Fatalf("the task wrote %q", lines)
		}
		claims := func(identity string, aud ...any) map[string]any {
			out := map[string]any{
				"nomad_namespace": "default", "nomad_job_id": *j.ID, "nomad_allocation_id": alloc.ID, "nomad_task": "main",
				"sub": "global:default:" + *j.ID + ":g:main:" + identity, "aud": aud,
			}
			if len(aud) == 1 {
				out["aud"] = aud[0]
			}
			return out
		}
		tests := []struct {
			token string
			want  map[string]any
			ttl   time.Duration
		}{
			{lines[0], claims("caravan", "caravan"), time.Hour},
			{lines[2], claims("other", "a", "b"), 0},
			{lines[3], claims("default", "nomadproject.io"), 0},
		}
		for _, test := range tests {
			got, issued, expires := e.claims(test.token)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
			if age := time.Since(issued); age < -time.Minute || age > time.Minute {
				t.Errorf("the token was issued at %v", issued)
			}
			if test.ttl == 0 && !expires.IsZero() || test.ttl > 0 && expires.Sub(issued) != test.ttl {
				t.Errorf("the token expires at %v, want %v after %v", expires, test.ttl, issued)
			}
		}
		if keys := e.keys().Keys; len(keys) == 0 || keys[0].Algorithm != "RS256" || keys[0].Use != "sig" || len(keys[0].KeyID) != 36 {
			t.Errorf("keys are %+v", keys)
		}
	})
}

// A child of a parameterized job has its parent's identity: only the
// allocation tells it from its siblings.
func TestIdentityOfAChild(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *env) {
		j := e.driven(`cat "$NOMAD_SECRETS_DIR/nomad_caravan.jwt"; echo; echo end; ` + sleeper)
		j.ParameterizedJob = &api.ParameterizedJobConfig{}
		j.TaskGroups[0].Tasks[0].Identities = []*api.WorkloadIdentity{{Name: "caravan", Audience: []string{"caravan"}, File: true}}
		if _, _, err := e.api.Jobs().Register(clone(j), nil); err != nil {
			t.Fatal(err)
		}
		child, _, err := e.api.Jobs().Dispatch(*j.ID, nil, nil, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.purge(child.DispatchedJobID) })
		alloc := e.only(child.DispatchedJobID, api.AllocClientStatusRunning)
		lines := strings.Split(e.wrote(alloc, func(s string) bool { return strings.HasSuffix(s, "end\n") }), "\n")
		got, _, _ := e.claims(lines[0])
		want := map[string]any{
			"nomad_namespace": "default", "nomad_job_id": *j.ID, "nomad_allocation_id": alloc.ID, "nomad_task": "main",
			"sub": "global:default:" + *j.ID + ":g:main:caravan", "aud": "caravan",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("claims (-want +got):\n%s", diff)
		}
	})
}

// A token that expires is renewed when half of its time is over, but not
// sooner than ten seconds, and the task is told as it wants.
func TestIdentityIsRenewed(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *env) {
		j := e.driven(`trap 'echo renewed; cat "$NOMAD_SECRETS_DIR/nomad_caravan.jwt"; echo; echo end' USR1; cat "$NOMAD_SECRETS_DIR/nomad_caravan.jwt"; echo; while :; do sleep 0.05; done`)
		j.TaskGroups[0].Tasks[0].Identities = []*api.WorkloadIdentity{{
			Name: "caravan", Audience: []string{"caravan"}, File: true, TTL: 20 * time.Second, ChangeMode: "signal", ChangeSignal: "SIGUSR1",
		}}
		e.register(j)
		alloc := e.only(*j.ID, api.AllocClientStatusRunning)
		lines := strings.Split(e.wrote(alloc, func(s string) bool { return strings.HasSuffix(s, "end\n") }), "\n")
		_, first, expires := e.claims(lines[0])
		_, second, _ := e.claims(lines[2])
		if gap := second.Sub(first); gap < 9*time.Second || !second.Before(expires) {
			t.Errorf("a token from %v to %v was renewed at %v", first, expires, second)
		}
		if x := e.event(alloc.ID, "main", ofType(api.TaskSignaling)); x.DisplayMessage != "Identity[caravan]: new Identity token acquired" {
			t.Errorf("the event says %q", x.DisplayMessage)
		}
	})
}

func TestIdentityFaults(t *testing.T) {
	tests := map[string]struct {
		identity api.WorkloadIdentity
		want     string
	}{
		"name":    {api.WorkloadIdentity{Name: "a b"}, "invalid name \"a b\""},
		"mode":    {api.WorkloadIdentity{Name: "a", ChangeMode: "sometimes"}, "invalid change_mode: sometimes"},
		"signal":  {api.WorkloadIdentity{Name: "a", ChangeMode: "signal"}, "change_signal must be specified"},
		"ttl":     {api.WorkloadIdentity{Name: "default", TTL: time.Hour}, "ttl for default identity not yet supported"},
		"no file": {api.WorkloadIdentity{Name: "a", Filepath: "x"}, "file parameter must be true"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, e *env) {
				j := e.newJob(api.JobTypeBatch, alike, 1, 0, "true")
				j.TaskGroups[0].Tasks[0].Identities = []*api.WorkloadIdentity{&test.identity}
				if _, _, err := e.api.Jobs().Register(clone(j), nil); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("error is %v, want %q in it", err, test.want)
				}
			})
		})
	}
}
