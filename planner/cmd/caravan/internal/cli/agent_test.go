package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/planner/config"
)

func TestAgent(t *testing.T) {
	good := writeFile(t, "good.hcl", "log_level = \"debug\"\n")
	bad := writeFile(t, "bad.hcl", "log_levle = \"debug\"\n")
	tests := map[string]struct {
		args     []string
		agentErr error
		wantCode int
		wantRuns int
		wantOut  string
		wantErr  string
	}{
		"runs":               {args: []string{"agent", "-config", good}, wantRuns: 1, wantErr: "[DEBUG] caravan: started"},
		"with less log":      {args: []string{"agent", "-config", good, "-log-level=warn"}, wantRuns: 1},
		"with JSON log":      {args: []string{"agent", "-config", good, "-log-json"}, wantRuns: 1, wantErr: `"@message":"started"`},
		"fails":              {args: []string{"agent", "-config", good}, agentErr: errors.New("the port is taken"), wantCode: 1, wantRuns: 1, wantErr: "run planner: the port is taken"},
		"checks":             {args: []string{"agent", "-config", good, "-check"}, wantOut: "The configuration is valid. Once a planner runs with it, caravan doctor examines"},
		"faulty file":        {args: []string{"agent", "-config", bad}, wantCode: 1, wantErr: "log_levle"},
		"file is not there":  {args: []string{"agent", "-config", "/no/file"}, wantCode: 1, wantErr: "/no/file"},
		"log level is wrong": {args: []string{"agent", "-log-level", "loud"}, wantCode: 2, wantErr: `"loud": it is one of trace`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			runs := 0
			code := Run(t.Context(), tc.args, Env{
				Stdout: &out, Stderr: &errOut, Now: time.Now,
				LookupEnv: func(string) (string, bool) { return "", false },
				Agent: func(_ context.Context, cfg config.Config, _ func() (config.Config, error), log hclog.Logger) error {
					runs++
					if cfg.Listen.Address == "" {
						t.Error("the configuration is not complete")
					}
					log.Debug("started")
					return tc.agentErr
				},
			})
			if code != tc.wantCode || runs != tc.wantRuns {
				t.Errorf("code %d after %d runs, want %d after %d\n%s", code, runs, tc.wantCode, tc.wantRuns, errOut.String())
			}
			if !strings.Contains(out.String(), tc.wantOut) || !strings.Contains(errOut.String(), tc.wantErr) {
				t.Errorf("output %q, error output %q; want %q and %q", out.String(), errOut.String(), tc.wantOut, tc.wantErr)
			}
			if tc.wantErr == "" && errOut.Len() > 0 {
				t.Errorf("unexpected error output %q", errOut.String())
			}
		})
	}
}
