package daemon

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hashicorp/nomad/api"
)

// TestLockIsTakenUpAgain: a lock that outlived a term is its holder's still.
func TestLockIsTakenUpAgain(t *testing.T) {
	var asked []string
	held := ""
	nomad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v api.Variable
		_ = json.NewDecoder(r.Body).Decode(&v)
		_, acquire := r.URL.Query()["lock-acquire"]
		switch {
		case acquire:
			asked = append(asked, "acquire")
		default:
			asked = append(asked, "renew "+v.Lock.ID)
		}
		if acquire && held == "" {
			held = "lock-1"
		} else if acquire || v.Lock.ID != held {
			w.WriteHeader(http.StatusConflict)
		}
		v.Lock = &api.VariableLock{ID: held}
		_ = json.NewEncoder(w).Encode(v)
	}))
	defer nomad.Close()
	client, err := api.NewClient(&api.Config{Address: nomad.URL})
	if err != nil {
		t.Fatal(err)
	}
	l := &variableLock{client: client, namespace: "default"}
	for range 2 {
		if err := l.Acquire(t.Context(), "http://me"); err != nil {
			t.Fatalf("acquire: %v; asked %q", err, asked)
		}
	}
	held = "another's"
	if err := l.Acquire(t.Context(), "http://me"); !errors.Is(err, errHeld) || l.id != "" {
		t.Errorf("error %v with lock %q, want that another leads", err, l.id)
	}
	if len(asked) != 4 || asked[1] != "renew lock-1" || asked[3] != "acquire" {
		t.Errorf("asked %q", asked)
	}
}
