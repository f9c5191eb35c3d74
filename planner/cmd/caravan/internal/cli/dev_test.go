package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/caravan-sched/caravan/internal/devrun"
)

func TestDev(t *testing.T) {
	tests := map[string]struct {
		args     []string
		devErr   error
		wantCode int
		want     *devrun.Options
		wantErr  string
	}{
		"plain": {args: []string{"dev"}, want: &devrun.Options{Scenario: "gang"}},
		"everything": {
			args: []string{"dev", "-once", "-json", "-scenario=race", "-backend", "devnomad", "-plugin", "/bin/p", "-verbose"},
			want: &devrun.Options{Scenario: "race", Once: true, JSON: true, Backend: "devnomad", Plugin: "/bin/p"}, wantErr: "a log line\n",
		},
		"unknown scenario":      {args: []string{"dev", "-scenario", "x"}, wantCode: 2, wantErr: `--scenario "x": it is one of `},
		"unknown backend":       {args: []string{"dev", "-backend", "x"}, wantCode: 2, wantErr: `--backend "x": it is one of nomad, devnomad`},
		"a check did not hold":  {args: []string{"dev"}, devErr: devrun.ErrChecks, wantCode: 1, want: &devrun.Options{Scenario: "gang"}},
		"the cluster is broken": {args: []string{"dev"}, devErr: errors.New("no port"), wantCode: 1, want: &devrun.Options{Scenario: "gang"}, wantErr: "run the development cluster: no port"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			var got *devrun.Options
			code := Run(t.Context(), tc.args, Env{
				Stdout: &out, Stderr: &errOut, Now: time.Now,
				LookupEnv: func(string) (string, bool) { return "", false },
				Dev: func(_ context.Context, opts devrun.Options) (devrun.Report, error) {
					got = &opts
					if opts.Log != nil {
						opts.Log("a log line")
					}
					return devrun.Report{}, tc.devErr
				},
			})
			if code != tc.wantCode {
				t.Errorf("code %d, want %d", code, tc.wantCode)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(devrun.Options{}, "Out", "Log")); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			if !strings.Contains(errOut.String(), tc.wantErr) || tc.wantErr == "" && errOut.Len() > 0 {
				t.Errorf("error output %q, want %q", errOut.String(), tc.wantErr)
			}
		})
	}
}
