package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
)

func TestBodiesRefused(t *testing.T) {
	whole := string(encode(t, map[string]any{"Job": gang()}))
	tests := map[string]struct {
		path, body, encoding string
		wantStatus           int
		want                 string
	}{
		"empty":                     {"/v1/jobs", "", "", 400, "empty"},
		"blank":                     {"/v1/jobs", " \n", "", 400, "empty"},
		"not JSON":                  {"/v1/jobs", "job \"x\" {}", "", 400, "cannot be understood"},
		"truncated":                 {"/v1/jobs", whole[:len(whole)-3], "", 400, "cannot be understood"},
		"null":                      {"/v1/jobs", "null", "", 400, "Job must be specified"},
		"a list":                    {"/v1/jobs", "[" + whole + "]", "", 400, "cannot be understood"},
		"no job":                    {"/v1/jobs", "{}", "", 400, "Job must be specified"},
		"no ID":                     {"/v1/jobs", `{"Job":{}}`, "", 400, "Job ID"},
		"another ID than the path":  {"/v1/job/other", whole, "", 400, `not the path's, "other"`},
		"plan of another ID":        {"/v1/job/other/plan", whole, "", 400, `not the path's, "other"`},
		"a second value":            {"/v1/jobs", `{"Job":{"ID":"a","Type":"system"}}` + whole, "", 400, "cannot be understood"},
		"a key twice":               {"/v1/jobs", `{"Job":{"ID":"a","Type":"system"},` + whole[1:], "", 400, `"Job" comes twice`},
		"a key twice by case":       {"/v1/jobs", `{"job":{"ID":"a","Type":"system"},` + whole[1:], "", 400, `"Job" comes twice`},
		"a key twice by a long s":   {"/v1/jobs", `{"Job":{"ID":"a","Constraints":[],"Constraintſ":null}}`, "", 400, `comes twice in Job`},
		"a key twice, deep":         {"/v1/jobs", `{"Job":{"ID":"a","Meta":{"a":"1","a":"2"}}}`, "", 400, `"a" comes twice in Job.Meta`},
		"a null group":              {"/v1/jobs", `{"Job":{"ID":"a","TaskGroups":[null]}}`, "", 400, "Job.TaskGroups[0] is null"},
		"a null device":             {"/v1/jobs", `{"Job":{"ID":"a","TaskGroups":[{"Tasks":[{"Resources":{"Devices":[null]}}]}]}}`, "", 400, "Devices[0] is null"},
		"a null volume":             {"/v1/jobs", `{"Job":{"ID":"a","TaskGroups":[{"Volumes":{"v":null}}]}}`, "", 400, "Volumes[v] is null"},
		"gzip":                      {"/v1/jobs", whole, "gzip", 415, "Content-Encoding"},
		"encodings in a row":        {"/v1/jobs", whole, "identity, gzip", 415, "Content-Encoding"},
		"nested without end":        {"/v1/jobs", strings.Repeat("[", 1<<20), "", 400, "cannot be understood"},
		"nested deep in the config": {"/v1/jobs", `{"Job":{"ID":"a","X":` + strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000) + "}}", "", 400, "cannot be understood"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			var header []string
			if test.encoding != "" {
				header = []string{"Content-Encoding", test.encoding}
			}
			w := r.do("PUT", test.path, []byte(test.body), header...)
			if w.Code != test.wantStatus || !strings.Contains(w.Body.String(), test.want) {
				t.Errorf("answer = %d %s, want %d with %q", w.Code, w.Body, test.wantStatus, test.want)
			}
			if n := len(r.nomad.requests); n != 0 {
				t.Errorf("%d requests reached Nomad, want none", n)
			}
		})
	}
}

func TestKeysThatDifferInCaseDeepDownAreTheUsers(t *testing.T) {
	r := newRig(t)
	w := r.do("PUT", "/v1/jobs", []byte(`{"Job":{"ID":"a","Type":"system","Meta":{"a":"1","A":"2"}}}`), "Content-Encoding", "identity")
	if w.Code != http.StatusOK {
		t.Errorf("answer = %d %s, want 200", w.Code, w.Body)
	}
}

func TestNamespaceAsNomadResolvesIt(t *testing.T) {
	tests := map[string]struct {
		query, write, job string
		want              string
	}{
		"none":                                {"", "", "", "default"},
		"the job's":                           {"", "", "j", "j"},
		"the request's wins":                  {"", "w", "j", "w"},
		"the query's wins most":               {"?namespace=q", "w", "j", "q"},
		"the first of several":                {"?namespace=q&namespace=r", "w", "j", "q"},
		"an empty one is none":                {"?namespace=", "", "j", "j"},
		"one cut off by a fault in the query": {"?namespace=q;x=y", "", "j", "j"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			job := gang(func(j *api.Job) {
				if test.job != "" {
					j.Namespace = &test.job
				}
			})
			w := r.do("PUT", "/v1/jobs"+test.query, registration(t, job, func(req *api.JobRegisterRequest) { req.Namespace = test.write }))
			if w.Code != http.StatusOK {
				t.Fatalf("answer = %d %s", w.Code, w.Body)
			}
			if r.nomad.job(t, test.want+"/train") == nil {
				t.Errorf("Nomad has no job in %q", test.want)
			}
			if _, ok := r.records.data[test.want+"/train"]; !ok {
				t.Errorf("no record in %q: %v", test.want, r.records.data)
			}
		})
	}
}

func TestUnknownFieldIsSaid(t *testing.T) {
	r := newRig(t)
	var body map[string]any
	if err := json.Unmarshal(registration(t, gang()), &body); err != nil {
		t.Fatal(err)
	}
	body["Job"].(map[string]any)["Futuristic"] = true
	resp := decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", encode(t, body)))
	if !strings.Contains(resp.Warnings, `does not know the field "Futuristic"`) {
		t.Errorf("warnings = %q, want the field that was left out", resp.Warnings)
	}
}
