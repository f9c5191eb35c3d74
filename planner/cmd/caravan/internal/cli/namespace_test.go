package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// The namespace that the job file names goes before the environment's; a flag
// that says another is refused; and all requests are for that namespace.
func TestNamespaceOfTheJobFile(t *testing.T) {
	own := strings.Replace(jobFileText, `type = "batch"`, `type = "batch"
  namespace = "ml"`, 1)
	tests := map[string]struct {
		text, flag, env string
		want            string
		wantErr         string
	}{
		"the file's":                     {text: own, want: "ml"},
		"the file's, before the NOMAD_…": {text: own, env: "web", want: "ml"},
		"the file's and the same flag":   {text: own, flag: "ml", want: "ml"},
		"another flag":                   {text: own, flag: "default", wantErr: `--namespace "default" contradicts <stdin>, whose job is for namespace "ml"`},
		"the flag's":                     {text: jobFileText, flag: "web", env: "ml", want: "web"},
		"the environment's":              {text: jobFileText, env: "web", want: "web"},
		"nobody's":                       {text: jobFileText, want: "default"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{}
			if tc.env != "" {
				env["NOMAD_NAMESPACE"] = tc.env
			}
			for _, command := range []string{"run", "plan"} {
				f := newFakePlanner(t)
				f.answers["GET /caravan/v1/explain/"+tc.want+"/train-gang"] = httpapi.Explain{Job: httpapi.Job{Namespace: tc.want, ID: "train-gang", State: model.StateRunning}}
				args := []string{command, "-"}
				if tc.flag != "" {
					args = append(args, "--namespace", tc.flag)
				}
				got := f.call(env, tc.text, args...)
				if tc.wantErr != "" {
					if got.code != CodeUsage || !strings.Contains(got.errOut, tc.wantErr) || len(f.registered) > 0 {
						t.Errorf("%s: code %d, %d registered, %s", command, got.code, len(f.registered), got.errOut)
					}
					continue
				}
				if got.code != CodeOK {
					t.Errorf("%s: code %d\n%s", command, got.code, got.errOut)
				}
				seen := map[string]string{"parse": f.namespaces["PUT /v1/jobs/parse"]}
				want := map[string]string{"parse": tc.want}
				if command == "plan" {
					seen["validate"], want["validate"] = f.namespaces["PUT /v1/validate/job"], tc.want
				} else {
					seen["register"], want["register"] = f.namespaces["PUT /v1/jobs"], tc.want
					seen["job"], want["job"] = *f.registered[0].Job.Namespace, tc.want
				}
				if diff := cmp.Diff(want, seen); diff != "" {
					t.Errorf("%s: namespaces (-want +got):\n%s", command, diff)
				}
				if shown := strings.Contains(got.out, tc.want+"/train-gang"); shown != (tc.want != "default") {
					t.Errorf("%s: output:\n%s", command, got.out)
				}
			}
		})
	}
}

// A job that is in another namespace is pointed at.
func TestExplainNamesTheOtherNamespace(t *testing.T) {
	f := newFakePlanner(t)
	f.answers["GET /caravan/v1/jobs"] = []httpapi.Job{{Namespace: "ml", ID: "train"}}
	got := f.call(nil, "", "explain", "train")
	if want := `no managed job "train" in namespace "default"; there is one in ml: name it ml/train`; got.code != CodeFailure || !strings.Contains(got.errOut, want) {
		t.Errorf("code %d, error %q lacks %q", got.code, got.errOut, want)
	}
}
