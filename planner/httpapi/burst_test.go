package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/planner/burstapi"
)

func TestBurst(t *testing.T) {
	tests := map[string]struct {
		method, path, token, body, want string
		wantStatus, wantReports         int
	}{
		"asked":               {"GET", burstapi.PathBurst, "", "", `"leader":true,"pools":[{"name":"eu"`, 200, 0},
		"asked by nobody":     {"GET", burstapi.PathBurst, "nobody", "", "no read-job", 403, 0},
		"reported":            {"POST", burstapi.PathReport, "", `{"pool":"eu","purchase":"p","kind":"ordered"}`, "", 204, 1},
		"reported by nobody":  {"POST", burstapi.PathReport, "nobody", `{"pool":"eu","purchase":"p","kind":"ordered"}`, "no operator:read", 403, 0},
		"of no purchase":      {"POST", burstapi.PathReport, "", `{"pool":"eu","purchase":"none","kind":"gone"}`, "there is no purchase", 404, 0},
		"of no sense":         {"POST", burstapi.PathReport, "", `{"pool":"eu","kind":"done"}`, "kind: \\\"done\\\": want one of ordered, present, failed, gone", 400, 0},
		"forgotten":           {"POST", burstapi.PathForget, "", `{"purchase":"p"}`, `"pool":"eu"`, 200, 0},
		"forgotten by nobody": {"POST", burstapi.PathForget, "nobody", `{"purchase":"p"}`, "no management", 403, 0},
		"nothing forgotten":   {"POST", burstapi.PathForget, "", `{}`, "want the purchase's ID", 400, 0},
		"no JSON":             {"POST", burstapi.PathReport, "", `{`, "is not the JSON expected", 400, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := &fakeBackend{}
			r := httptest.NewRequest(test.method, test.path, strings.NewReader(test.body))
			r.Header.Set(TokenHeader, test.token)
			w := httptest.NewRecorder()
			Handler(b).ServeHTTP(w, r)
			if w.Code != test.wantStatus || !strings.Contains(w.Body.String(), test.want) || len(b.reports) != test.wantReports {
				t.Errorf("%d, %d reports: %s; want %d, %d: %s", w.Code, len(b.reports), w.Body, test.wantStatus, test.wantReports, test.want)
			}
		})
	}
	srv := httptest.NewServer(Handler(&fakeBackend{}))
	defer srv.Close()
	c, err := NewClient(srv.URL, "", http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := c.Burst(t.Context()); err != nil || a.Index != 7 {
		t.Errorf("client: %+v, %v", a, err)
	}
}
