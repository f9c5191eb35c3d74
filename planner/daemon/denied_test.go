package daemon

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

func TestRightFor(t *testing.T) {
	for request, want := range map[string]string{
		"GET /v1/jobs?namespace=team":                 "list-jobs in namespace team",
		"PUT /v1/jobs":                                "submit-job",
		"POST /v1/jobs/parse":                         "parse-job",
		"GET /v1/job/a/allocations":                   "read-job",
		"DELETE /v1/job/a":                            "submit-job",
		"PUT /v1/job/a/dispatch":                      "dispatch-job",
		"PUT /v1/job/a%2Fb/scale?namespace=x":         "scale-job in namespace x",
		"PUT /v1/job/a/plan":                          "submit-job",
		"GET /v1/allocations":                         "read-job",
		"PUT /v1/allocation/x/stop":                   "alloc-lifecycle",
		"PUT /v1/client/allocation/x/restart":         "alloc-lifecycle",
		"GET /v1/client/allocation/x/exec":            "alloc-exec",
		"GET /v1/client/allocation/x/stats":           "read-job",
		"GET /v1/client/fs/logs/x":                    "read-logs",
		"GET /v1/client/fs/cat/x":                     "read-fs",
		"GET /v1/nodes":                               "node:read",
		"PUT /v1/node/x/drain":                        "node:write",
		"GET /v1/operator/scheduler/configuration":    "operator:read",
		"PUT /v1/operator/scheduler/configuration":    "operator:write",
		"GET /v1/agent/self":                          "agent:read",
		"GET /v1/acl/tokens":                          "management",
		"GET /v1/vars?prefix=a/":                      "list on variables path a/*",
		"GET /v1/var/a/b":                             "read on variables path a/b",
		"PUT /v1/var/a/b?namespace=x":                 "write on variables path a/b in namespace x",
		"DELETE /v1/var/a":                            "destroy on variables path a",
		"PUT /v1/deployment/fail/x":                   "submit-job",
		"GET /v1/evaluation/x":                        "read-job",
		"GET /v1/volumes":                             "",
		"GET /ui/":                                    "",
		"GET /v1/client/stats":                        "",
		"GET /v1/job/":                                "read-job",
		"GET /v1/client/gc?namespace=x":               "",
		"GET /v1/deployments?namespace=%2A&index=100": "read-job in namespace *",
	} {
		method, target, _ := strings.Cut(request, " ")
		if got := rightFor(httptest.NewRequest(method, target, nil)); got != want {
			t.Errorf("%s: %q, want %q", request, got, want)
		}
	}
}

// Only Nomad's own words are added to, and everything else passes as it is.
func TestNameRights(t *testing.T) {
	tests := map[string]struct {
		target string
		status int
		body   string
		want   string
	}{
		"a refusal":                 {"/v1/jobs", 403, "Permission denied", "Permission denied: the token lacks list-jobs"},
		"a refusal with a line end": {"/v1/jobs", 403, "Permission denied\n", "Permission denied: the token lacks list-jobs"},
		"another refusal":           {"/v1/jobs", 403, "ACL token not found", "ACL token not found"},
		"no right known":            {"/v1/plugins", 403, "Permission denied", "Permission denied"},
		"an answer":                 {"/v1/jobs", 200, "[]", "[]"},
		"by another agent":          {"/v1/client/fs/logs/x", 500, "Permission denied", "Permission denied: the token lacks read-logs"},
		"another fault":             {"/v1/jobs", 500, "no leader", "no leader"},
		"a fault without a right":   {"/v1/jobs", 429, "Permission denied", "Permission denied"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, packed := range []bool{false, true} {
				s := httptest.NewServer(nameRights(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Nomad-Index", "7")
					if packed {
						w.Header().Set("Content-Encoding", "gzip")
					} else {
						w.Header().Set("Content-Length", strconv.Itoa(len(test.body)))
					}
					w.WriteHeader(test.status)
					if packed {
						z := gzip.NewWriter(w)
						_, _ = io.WriteString(z, test.body)
						_ = z.Close()
					} else {
						_, _ = io.WriteString(w, test.body)
					}
					_ = http.NewResponseController(w).Flush()
				})))
				defer s.Close()
				resp, err := http.Get(s.URL + test.target)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				got, err := io.ReadAll(resp.Body)
				if err != nil || string(got) != test.want || resp.StatusCode != test.status || resp.Header.Get("X-Nomad-Index") != "7" {
					t.Errorf("%d %q, %v; want %d %q", resp.StatusCode, got, err, test.status, test.want)
				}
			}
		})
	}
}

// A stream is not held back.
func TestNameRightsStreams(t *testing.T) {
	next := make(chan struct{})
	s := httptest.NewServer(nameRights(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "one")
		_ = http.NewResponseController(w).Flush()
		<-next
	})))
	defer s.Close()
	defer close(next)
	resp, err := http.Get(s.URL + "/v1/event/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got := make([]byte, 3)
	if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != "one" {
		t.Errorf("read %q, %v", got, err)
	}
}
