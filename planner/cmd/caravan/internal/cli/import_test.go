package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// All pages are read, of all namespaces, with what is needed of each job.
func TestTraceImport(t *testing.T) {
	empty := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		w.Header().Set("X-Nomad-Index", "1")
		w.Header().Set("X-Nomad-LastContact", "0")
		switch r.URL.Path {
		case "/v1/jobs":
			if q.Get("namespace") != "*" || q.Get("meta") != "true" {
				t.Errorf("jobs are asked for with %v", q)
			}
			if empty {
				_, _ = io.WriteString(w, "[]")
				return
			}
			if q.Get("next_token") == "" {
				w.Header().Set("X-Nomad-NextToken", "page2")
				_, _ = io.WriteString(w, `[{"ID":"a","Namespace":"ml","Type":"batch","Status":"dead"}]`)
				return
			}
			_, _ = io.WriteString(w, `[{"ID":"b","Namespace":"ml","Type":"batch","Status":"running"}]`)
		case "/v1/allocations":
			if q.Get("namespace") != "*" || q.Get("resources") != "true" || q.Get("task_states") != "true" {
				t.Errorf("allocations are asked for with %v", q)
			}
			gpus := `"AllocatedResources":{"Tasks":{"t":{"Devices":[{"Type":"gpu","DeviceIDs":["x","y"]}]}}}`
			_, _ = io.WriteString(w, `[{"Namespace":"ml","JobID":"a","ClientStatus":"complete","TaskStates":{"t":{"StartedAt":"2031-05-01T12:00:10Z","FinishedAt":"2031-05-01T12:01:00Z"}},`+gpus+`},
				{"Namespace":"ml","JobID":"b","ClientStatus":"running","TaskStates":{"t":{"StartedAt":"2031-05-01T12:00:10Z"}},`+gpus+`}]`)
		case "/v1/job/a/versions":
			if q.Get("namespace") != "ml" {
				t.Errorf("versions are asked for with %v", q)
			}
			_, _ = io.WriteString(w, `{"Versions":[{"SubmitTime":1935489615000000000},{"SubmitTime":1935489600000000000}]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	call := func(args ...string) (int, string, string) {
		var out, errOut bytes.Buffer
		code := Run(t.Context(), append([]string{"trace", "import", "--address", server.URL}, args...), Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errOut, LookupEnv: func(string) (string, bool) { return "", false }, Environ: func() []string { return nil }, Now: time.Now})
		return code, out.String(), errOut.String()
	}
	code, out, errOut := call("--nomad")
	if code != CodeOK || !strings.Contains(out, "ml/a,0,50,2,,,,ml,,") || !strings.Contains(errOut, "1 of 2 jobs are left out: it has not ended") {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	if code, _, errOut := call(); code != CodeUsage || !strings.Contains(errOut, "--nomad") {
		t.Errorf("without a source: exit code %d: %s", code, errOut)
	}
	empty = true
	if code, _, errOut := call("--nomad"); code != CodeFailure || !strings.Contains(errOut, "2 of 2 jobs are left out: it was purged") || !strings.Contains(errOut, "none of 2 jobs") {
		t.Errorf("nothing: exit code %d: %s", code, errOut)
	}
	server.Close()
	if code, _, errOut := call("--nomad"); code == CodeOK || !strings.Contains(errOut, "refused") {
		t.Errorf("nobody answers: exit code %d: %s", code, errOut)
	}
}
