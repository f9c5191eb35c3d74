package httpapi

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// TestDivisions: a device plugin, which has no token, is told of the GPUs that it
// names, and by a planner that leads.
func TestDivisions(t *testing.T) {
	many := url.Values{}
	for i := range 65 {
		many.Add("gpu", "GPU-"+strconv.Itoa(i))
	}
	tests := map[string]struct {
		query, want string
		wantStatus  int
	}{
		"told":         {"gpu=GPU-1&gpu=GPU-2", `[{"gpu":"GPU-1","profiles":["3g.40gb"]}]`, http.StatusOK},
		"a standby":    {"", "another planner leads", http.StatusServiceUnavailable},
		"far too much": {many.Encode(), "at most 64", http.StatusBadRequest},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			Handler(&fakeBackend{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, Prefix+"/divisions?"+test.query, nil))
			if w.Code != test.wantStatus || !strings.Contains(w.Body.String(), test.want) {
				t.Errorf("%d: %s; want %d: %s", w.Code, w.Body, test.wantStatus, test.want)
			}
		})
	}
}
