package gateway

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

func TestClassify(t *testing.T) {
	tests := map[string]struct {
		method, path string
		header       string
		want         kind
		wantID       string
		wantTarget   string
	}{
		"the CLI's registration":       {method: "PUT", path: "/v1/jobs", want: kindRegister},
		"POST registers too":           {method: "POST", path: "/v1/jobs", want: kindRegister},
		"listing":                      {method: "GET", path: "/v1/jobs", want: kindPass},
		"update of a job":              {method: "PUT", path: "/v1/job/train", want: kindRegister, wantID: "train"},
		"no ID in the path":            {method: "PUT", path: "/v1/job/", want: kindRegister},
		"the mux would add a slash":    {method: "PUT", path: "/v1/job", want: kindRegister},
		"ID with slashes":              {method: "PUT", path: "/v1/job/team/a/train", want: kindRegister, wantID: "team/a/train"},
		"ID with an escaped slash":     {method: "PUT", path: "/v1/job/team%2Ftrain", want: kindRegister, wantID: "team/train"},
		"ID with an escaped percent":   {method: "PUT", path: "/v1/job/a%2525", want: kindRegister, wantID: "a%25"},
		"ID with a trailing slash":     {method: "PUT", path: "/v1/job/train/", want: kindRegister, wantID: "train/"},
		"plan":                         {method: "PUT", path: "/v1/job/train/plan", want: kindPlan, wantID: "train"},
		"plan with escapes":            {method: "POST", path: "/v1/job/a%2Fb%2Fplan", want: kindPlan, wantID: "a/b"},
		"scale":                        {method: "PUT", path: "/v1/job/train/scale", want: kindScale, wantID: "train"},
		"revert":                       {method: "PUT", path: "/v1/job/train/revert", want: kindRevert, wantID: "train"},
		"dispatch":                     {method: "PUT", path: "/v1/job/train/dispatch", want: kindDispatch, wantID: "train"},
		"reading":                      {method: "GET", path: "/v1/job/a/b", want: kindJob, wantID: "a/b"},
		"history":                      {method: "GET", path: "/v1/job/a/b/versions", want: kindVersions, wantID: "a/b"},
		"scale status":                 {method: "GET", path: "/v1/job/a/scale", want: kindScaleStatus, wantID: "a"},
		"summary":                      {method: "GET", path: "/v1/job/a/summary", want: kindSummary, wantID: "a"},
		"reading the allocations":      {method: "GET", path: "/v1/job/a/allocations", want: kindPass},
		"an action's websocket":        {method: "GET", path: "/v1/job/a/action", want: kindPass},
		"stop of a member":             {method: "POST", path: "/v1/allocation/0a-1b/stop", want: kindAllocStop, wantID: "0a-1b"},
		"restart of a member":          {method: "PUT", path: "/v1/client/allocation/0a-1b/restart", want: kindAllocRestart, wantID: "0a-1b"},
		"signal to a member":           {method: "PUT", path: "/v1/client/allocation/0a-1b/signal", want: kindPass},
		"reading a member":             {method: "GET", path: "/v1/allocation/0a-1b", want: kindAlloc, wantID: "0a-1b"},
		"tag":                          {method: "POST", path: "/v1/job/train/versions/1/tag", want: kindPass},
		"deregistration":               {method: "DELETE", path: "/v1/job/train", want: kindPass},
		"parse":                        {method: "PUT", path: "/v1/jobs/parse", want: kindPass},
		"validate":                     {method: "PUT", path: "/v1/validate/job", want: kindPass},
		"escaped letter":               {method: "PUT", path: "/v1/%6Aobs", want: kindRegister},
		"escaped slash before jobs":    {method: "PUT", path: "/v1%2Fjobs", want: kindRegister},
		"escaped twice is another":     {method: "PUT", path: "/v1/%256Aobs", want: kindPass},
		"other case is another":        {method: "PUT", path: "/V1/Jobs", want: kindPass},
		"double slashes":               {method: "PUT", path: "/v1//jobs", want: kindRedirect, wantTarget: "/v1/jobs"},
		"leading double slash":         {method: "PUT", path: "//v1/jobs", want: kindRedirect, wantTarget: "/v1/jobs"},
		"dots":                         {method: "PUT", path: "/v1/x/../jobs", want: kindRedirect, wantTarget: "/v1/jobs"},
		"dots keep escapes":            {method: "PUT", path: "/v1/./job/a%2Fb", want: kindRedirect, wantTarget: "/v1/job/a%2Fb"},
		"trailing slash":               {method: "PUT", path: "/v1/jobs/", want: kindRefuse},
		"escaped dots to jobs":         {method: "PUT", path: "/v1/x/%2E%2E/jobs", want: kindRefuse},
		"escaped dots to another ID":   {method: "PUT", path: "/v1/job/x/%2e%2e/scale", want: kindRefuse},
		"escaped dots in an ID":        {method: "PUT", path: "/v1/job/x/%2e%2e/y", want: kindRegister, wantID: "x/../y"},
		"escaped double slash":         {method: "PUT", path: "/v1/%2Fjobs", want: kindRefuse},
		"method in small letters":      {method: "put", path: "/v1/jobs", want: kindRefuse},
		"method override":              {method: "PUT", path: "/v1/jobs", header: "X-HTTP-Method-Override", want: kindRefuse},
		"method override on a reading": {method: "GET", path: "/v1/jobs", header: "X-HTTP-Method-Override", want: kindRefuse},
		"method override elsewhere":    {method: "GET", path: "/v1/nodes", header: "X-Method-Override", want: kindPass},
		"the asterisk":                 {method: "OPTIONS", path: "*", want: kindPass},
		"nothing":                      {method: "PUT", path: "", want: kindPass},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			r.Method = test.method
			u, err := url.Parse(test.path)
			if test.path == "//v1/jobs" {
				u, err = &url.URL{Path: test.path}, nil
			}
			if err != nil {
				t.Fatal(err)
			}
			r.URL = u
			if test.header != "" {
				r.Header.Set(test.header, "PUT")
			}
			got := classify(r)
			if got.kind != test.want || got.jobID != test.wantID || got.target != test.wantTarget {
				t.Errorf("classify(%s %s) = %+v, want kind %d, ID %q, target %q", test.method, test.path, got, test.want, test.wantID, test.wantTarget)
			}
		})
	}
}

func TestRedirectKeepsMethodAndQuery(t *testing.T) {
	r := newRig(t)
	w := r.do("PUT", "/v1//job/a%2Fb?namespace=x", registration(t, gang()))
	if w.Code != http.StatusTemporaryRedirect || w.Header().Get("Location") != "/v1/job/a%2Fb?namespace=x" {
		t.Errorf("answer = %d to %q, want 307 to the clean path", w.Code, w.Header().Get("Location"))
	}
	if n := len(r.nomad.requests); n != 0 {
		t.Errorf("%d requests reached Nomad, want none", n)
	}
}
