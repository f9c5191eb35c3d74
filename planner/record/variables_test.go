package record_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/record"
)

// variables is Nomad's Variables API, with its limits, failing on demand.
type variables struct {
	mu    sync.Mutex
	index uint64
	data  map[string]*api.Variable
	// fail answers a request in Nomad's place if it returns a status.
	fail  func(method, path string) int
	calls []string
}

var legalPath = regexp.MustCompile(`^[a-zA-Z0-9-_~/]{1,128}$`)

func (v *variables) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.calls = append(v.calls, r.Method+" "+r.URL.Path)
	if v.fail != nil {
		if code := v.fail(r.Method, r.URL.Path); code != 0 {
			http.Error(w, "told to fail", code)
			return
		}
	}
	if r.URL.Path == "/v1/vars" {
		out := []*api.VariableMetadata{}
		for _, item := range v.data {
			if strings.HasPrefix(item.Path, r.URL.Query().Get("prefix")) {
				out = append(out, item.Metadata())
			}
		}
		_ = json.NewEncoder(w).Encode(out)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/v1/var/")
	if !legalPath.MatchString(path) {
		http.Error(w, "invalid path "+path, http.StatusBadRequest)
		return
	}
	now := v.data[path]
	if now == nil {
		now = &api.Variable{Path: path}
	}
	if cas := r.URL.Query().Get("cas"); cas != "" && cas != fmt.Sprint(now.ModifyIndex) {
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(now)
		return
	}
	v.serve(w, r, path)
}

func (v *variables) serve(w http.ResponseWriter, r *http.Request, path string) {
	switch r.Method {
	case http.MethodGet:
		if v.data[path] == nil {
			http.Error(w, "variable not found", http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(v.data[path])
	case http.MethodPut:
		var in api.Variable
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		size := 0
		for k, item := range in.Items {
			size += len(k) + len(item)
		}
		if size > 65536 {
			http.Error(w, "items are limited to 64KiB", http.StatusBadRequest)
			return
		}
		v.index++
		in.ModifyIndex = v.index
		v.data[path] = &in
		_ = json.NewEncoder(w).Encode(in)
	case http.MethodDelete:
		delete(v.data, path)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (v *variables) reads() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, c := range v.calls {
		if strings.HasPrefix(c, "GET /v1/var/") {
			n++
		}
	}
	v.calls = nil
	return n
}

func start(t *testing.T) (*variables, func() *record.Store) {
	t.Helper()
	v, client := newVariables(t)
	return v, func() *record.Store { return record.NewStore(client, "") }
}

func newVariables(t *testing.T) (*variables, *api.Client) {
	t.Helper()
	v := &variables{data: map[string]*api.Variable{}}
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	client, err := api.NewClient(&api.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return v, client
}
