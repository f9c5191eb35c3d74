package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/barrier/identity"
)

func (b *fakeBackend) Join(_ context.Context, token string, req gangapi.JoinRequest) (barrier.Reply[gangapi.JoinAnswer], error) {
	reply := barrier.Reply[gangapi.JoinAnswer]{Answer: gangapi.JoinAnswer{State: gangapi.JoinWaiting, Reason: req.Run + " by " + token}}
	if req.Run == "starts" {
		reply.Answer.State, reply.Tail = gangapi.JoinStart, b.tail
	}
	return reply, b.failMember
}

func (b *fakeBackend) Report(_ context.Context, token string, req gangapi.ReportRequest) (barrier.Reply[gangapi.ReportAnswer], error) {
	return barrier.Reply[gangapi.ReportAnswer]{Answer: gangapi.ReportAnswer{Attached: true, Reason: req.Run + " by " + token}}, b.failMember
}

func (b *fakeBackend) Gangs(namespace, job string) []barrier.Status {
	return []barrier.Status{{Phase: "running", Epoch: "1-x"}}
}

func (b *fakeBackend) Steer(_ context.Context, verb Verb, req SteerRequest) (SteerResult, error) {
	return SteerResult{Namespace: req.Namespace, Job: req.Job, Changed: true, Note: string(verb) + " " + req.Reason}, nil
}

func postMember(t *testing.T, b *fakeBackend, path, token, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	req.Header.Set(gangapi.IdentityHeader, token)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Handler(b).ServeHTTP(w, req)
	return w.Result(), w.Body.String()
}

func TestMembersAreAnswered(t *testing.T) {
	var join gangapi.JoinAnswer
	resp, body := postMember(t, &fakeBackend{}, gangapi.JoinPath, "jwt", `{"run":"r","attempt":1}`)
	if err := json.Unmarshal([]byte(body), &join); err != nil || resp.StatusCode != http.StatusOK || join.Reason != "r by jwt" {
		t.Errorf("join: %d %s %v", resp.StatusCode, body, err)
	}
	var report gangapi.ReportAnswer
	resp, body = postMember(t, &fakeBackend{}, gangapi.ReportPath, "jwt", `{"run":"r"}`)
	if err := json.Unmarshal([]byte(body), &report); err != nil || !report.Attached || report.Reason != "r by jwt" {
		t.Errorf("report: %d %s %v", resp.StatusCode, body, err)
	}
}

// A membership is encoded and packed once; each member's answer goes before it.
func TestMembershipsAreSentAsTheyWereEncoded(t *testing.T) {
	m := rendezvous.Membership{Epoch: "1-x", Generation: 1, Members: []rendezvous.Member{{Alloc: "a"}, {Alloc: "b"}}}
	tail, err := barrier.Encode(&m)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(Handler(&fakeBackend{tail: tail}))
	defer s.Close()
	for _, packed := range []bool{true, false} {
		hc := &http.Client{Transport: &http.Transport{DisableCompression: !packed}}
		resp, err := hc.Post(s.URL+gangapi.JoinPath, "application/json", strings.NewReader(`{"run":"starts"}`))
		if err != nil {
			t.Fatal(err)
		}
		var got gangapi.JoinAnswer
		err = json.NewDecoder(resp.Body).Decode(&got)
		resp.Body.Close()
		if err != nil || resp.Uncompressed != packed {
			t.Fatalf("packed %v, want %v: %v", resp.Uncompressed, packed, err)
		}
		want := gangapi.JoinAnswer{State: gangapi.JoinStart, Reason: "starts by ", Membership: &m}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("packed %v (-want +got):\n%s", packed, diff)
		}
	}
}

func TestMembersAreRefused(t *testing.T) {
	tests := map[string]struct {
		err        error
		body       string
		wantStatus int
		wantWords  []string
	}{
		"no identity": {err: identity.ErrMissing, wantStatus: 401, wantWords: []string{"carries no workload identity", `identity { name = \"caravan\", aud = [\"caravan\"], file = true, ttl = \"1h\" }`, "X-Caravan-Identity"}},
		"another's":   {err: fmt.Errorf("%w: it is made for the audience [vault.io]", identity.ErrInvalid), wantStatus: 401, wantWords: []string{"vault.io", "caravan"}},
		"no keys":     {err: fmt.Errorf("%w: refused", identity.ErrKeys), wantStatus: 503, wantWords: []string{"refused", "try again"}},
		"no leader":   {err: barrier.ErrNotLeading, wantStatus: 503},
		"busy":        {err: barrier.ErrBusy, wantStatus: 503},
		"nonsense":    {err: fmt.Errorf("%w: port", barrier.ErrRequest), wantStatus: 400, wantWords: []string{"port"}},
		"our fault":   {err: errors.New("disk"), wantStatus: 500},
		"no JSON":     {body: "{", wantStatus: 400, wantWords: []string{"not the JSON expected"}},
		"endless":     {body: `{"run":"` + strings.Repeat("x", maxMember) + `"}`, wantStatus: 413},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			body := test.body
			if body == "" {
				body = "{}"
			}
			for _, path := range []string{gangapi.JoinPath, gangapi.ReportPath} {
				resp, text := postMember(t, &fakeBackend{failMember: test.err}, path, "", body)
				if resp.StatusCode != test.wantStatus {
					t.Errorf("%s: status %d, want %d: %s", path, resp.StatusCode, test.wantStatus, text)
				}
				if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "" {
					t.Errorf("%s: no Retry-After", path)
				}
				for _, w := range test.wantWords {
					if !strings.Contains(text, w) {
						t.Errorf("%s: %s lacks %q", path, text, w)
					}
				}
			}
		})
	}
}

func TestSteer(t *testing.T) {
	b := &fakeBackend{view: testView(), explain: map[string]Explain{"team/a": {}}}
	for _, verb := range []Verb{VerbSuspend, VerbResume, VerbRequeue} {
		got, err := serve(t, b, "").Steer(t.Context(), verb, SteerRequest{Namespace: "team", Job: "a", Reason: "why"})
		want := SteerResult{Namespace: "team", Job: "a", Changed: true, Note: string(verb) + " why"}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", verb, err, diff)
		}
		if _, err := serve(t, b, "team").Steer(t.Context(), verb, SteerRequest{Namespace: "team", Job: "a"}); err == nil || !strings.Contains(err.Error(), "no submit-job") {
			t.Errorf("%s with a token that may only read: %v", verb, err)
		}
		if _, err := serve(t, b, "").Steer(t.Context(), verb, SteerRequest{Namespace: "team", Job: "b"}); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s of an unknown job: %v", verb, err)
		}
		if _, err := serve(t, b, "").Steer(t.Context(), verb, SteerRequest{}); err == nil || !strings.Contains(err.Error(), "names no job") {
			t.Errorf("%s of none: %v", verb, err)
		}
	}
}

func TestProgress(t *testing.T) {
	b := &fakeBackend{view: testView(), explain: map[string]Explain{"team/a": {}}}
	got, err := serve(t, b, "team").Progress(t.Context(), "team", "a")
	want := Progress{Namespace: "team", Job: "a", Gangs: []barrier.Status{{Phase: "running", Epoch: "1-x"}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := serve(t, b, "team").Progress(t.Context(), "other", "a"); err == nil {
		t.Error("a job of another namespace was shown")
	}
	if _, err := serve(t, b, "").Progress(t.Context(), "team", "b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown job: %v", err)
	}
}
