package cli

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/httpapi"
)

// With --json there is one JSON value on standard output, also when a command
// fails.
func TestJSONErrors(t *testing.T) {
	jobPath := writeFile(t, "job.hcl", jobFileText)
	tests := map[string]struct {
		env               map[string]string
		fail              map[string]int
		args              []string
		wantCode          int
		wantError, wantDo string
	}{
		"planner not there": {
			env: map[string]string{httpapi.AddressEnv: "http://127.0.0.1:1"}, args: []string{"queue", "--json"}, wantCode: 1,
			wantError: "cannot reach the planner at http://127.0.0.1:1: connect: connection refused", wantDo: "caravan agent -config FILE",
		},
		"no such job":      {args: []string{"--json", "explain", "x"}, wantCode: 1, wantError: `there is no managed job "x"`},
		"unknown command":  {args: []string{"quue", "-json"}, wantCode: 2, wantError: `unknown command "quue"`, wantDo: "Run 'caravan --help' for help."},
		"unknown flag":     {args: []string{"queue", "--nope", "--json"}, wantCode: 2, wantError: "unknown flag: --nope", wantDo: "Run 'caravan queue --help' for help."},
		"file not there":   {args: []string{"run", "--json", "/no/file"}, wantCode: 1, wantError: "read job file: open /no/file"},
		"without rights":   {fail: map[string]int{"PUT /v1/jobs": 403}, args: []string{"run", "--json", jobPath}, wantCode: 1, wantError: "answer 403", wantDo: "NOMAD_TOKEN"},
		"planner's advice": {fail: map[string]int{"GET /caravan/v1/queue": 502}, args: []string{"queue", "--json"}, wantCode: 1, wantError: "read queue: it was made to fail"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFakePlanner(t)
			for key, status := range tc.fail {
				f.fail[key] = status
			}
			got := f.call(tc.env, "", tc.args...)
			var v map[string]string
			if err := json.Unmarshal([]byte(got.out), &v); err != nil || got.code != tc.wantCode {
				t.Fatalf("code %d, %v in %q", got.code, err, got.out)
			}
			if !strings.Contains(v["error"], tc.wantError) || !strings.Contains(v["what_to_do"], tc.wantDo) {
				t.Errorf("error %q, what to do %q", v["error"], v["what_to_do"])
			}
			if !strings.Contains(got.errOut, "Error: "+v["error"]) {
				t.Errorf("people are told %q", got.errOut)
			}
		})
	}
	f := newFakePlanner(t)
	if got := f.call(nil, "", "explain", "x"); got.out != "" {
		t.Errorf("without --json: %q", got.out)
	}
}

// TestNomadWords: a text that says what is wrong with a request needs no number.
func TestNomadWords(t *testing.T) {
	for _, test := range []struct {
		status     int
		body, want string
	}{
		{400, "Job \"a\" cannot be queued.\n", "Job \"a\" cannot be queued."},
		{500, "rpc error", "answer 500: rpc error"},
		{404, `{"error": "x"}`, `answer 404: {"error": "x"}`},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.body)
		}))
		defer server.Close()
		client, err := api.NewClient(&api.Config{Address: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = client.Jobs().Info("a", nil)
		var nomad api.UnexpectedResponseError
		if !errors.As(err, &nomad) {
			t.Fatal(err)
		}
		if got := nomadWords(err, nomad); got != test.want {
			t.Errorf("answer %d with %q: %q, want %q", test.status, test.body, got, test.want)
		}
	}
}

// Who lacks a right is told once how to give a token, in the command's terms.
func TestForbidden(t *testing.T) {
	const give = "Give a Nomad ACL token that may do this, with --token or NOMAD_TOKEN, and the namespace in which it may, with --namespace or NOMAD_NAMESPACE."
	tests := map[string]struct{ do, want string }{
		"no advice":                  {"", give},
		"advice of another kind":     {"ask the owner of the queue", "Ask the owner of the queue.\n" + give},
		"of the token in the header": {"send a Nomad ACL token that has it in the header " + httpapi.TokenHeader, give},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := &httpapi.Error{Status: http.StatusForbidden, Message: "the token does not have management", Do: tt.do}
			got := new(app).failureOf(&exit{code: CodeFailure, err: err}, "caravan release")
			if got.Do != tt.want || got.Error != "the token does not have management" {
				t.Errorf("error %q, what to do %q; want %q", got.Error, got.Do, tt.want)
			}
		})
	}
}
