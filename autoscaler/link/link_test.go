package link

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenSaysEveryFault(t *testing.T) {
	tests := map[string]struct {
		config map[string]string
		want   []string
	}{
		"nothing":   {nil, []string{`planner_address is "": want the planner's address`}},
		"no scheme": {map[string]string{KeyAddress: "planner:4656"}, []string{`planner_address is "planner:4656"`}},
		"a user":    {map[string]string{KeyAddress: "http://me:secret@planner:4656"}, []string{"without a user"}},
		"all of it": {map[string]string{KeyTokenFile: "/no/such", KeyCA: "/no/such", KeyTimeout: "-1s"},
			[]string{KeyAddress, KeyTokenFile, KeyTimeout, KeyCA}},
		"two tokens": {map[string]string{KeyAddress: "http://planner:4656", KeyToken: "a", KeyTokenFile: os.DevNull}, []string{"no planner_token beside it"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Open(test.config)
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(test.want) {
				t.Fatalf("faults = %q, want %q", lines, test.want)
			}
			for i, want := range test.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("fault %q, want %q", lines[i], want)
				}
			}
		})
	}
}

func TestTokenComesFromWhereItIs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("X-Nomad-Token")
		_, _ = w.Write([]byte(`{}`))
	}))
	defer srv.Close()
	for want, config := range map[string]map[string]string{
		"from-file": {KeyTokenFile: file, keyNomadToken: "nomads"},
		"own":       {KeyToken: "own", keyNomadToken: "nomads"},
		"nomads":    {keyNomadToken: "nomads"},
	} {
		config[KeyAddress] = srv.URL
		c, err := Open(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("token = %q, want %q", got, want)
		}
	}
}
