package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/rewrite"
)

// ungated lists the jobs that the fake Nomad took in with GPUs and without a
// gate. What counts as a job is the fake's judgement, which is Nomad's: it has
// net/http's mux and decodes with Nomad's types; what counts as one with GPUs
// is looked up the plainest way.
func ungated(f *fakeNomad) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for key, job := range f.jobs {
		if usesGPUs(job) && !rewrite.IsGated(job) {
			out = append(out, key)
		}
	}
	return out
}

func usesGPUs(job *api.Job) bool {
	if job.Periodic != nil || job.ParameterizedJob != nil {
		return false
	}
	if job.Type != nil && *job.Type != "" && *job.Type != "service" && *job.Type != "batch" {
		return false
	}
	for _, g := range job.TaskGroups {
		for _, t := range g.Tasks {
			if t.Resources == nil {
				continue
			}
			for _, d := range t.Resources.Devices {
				switch d.Name {
				case "gpu", "nvidia/gpu", "nvidia/gpu/H100":
					return true
				}
			}
		}
	}
	return false
}

// overTheWire parses a request as net/http's server does; nil if the server
// would refuse it itself.
func overTheWire(raw string) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		return nil
	}
	r.RemoteAddr = "127.0.0.1:1"
	return r
}

// wire sends a request as it comes over the wire.
func (r *rig) wire(raw string) *httptest.ResponseRecorder {
	req := overTheWire(raw)
	if req == nil {
		return nil
	}
	w := httptest.NewRecorder()
	r.gateway.ServeHTTP(w, req)
	return w
}

func rawRequest(method, target, headers string, body []byte, chunked bool) string {
	if chunked {
		return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: gw\r\n%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", method, target, headers, len(body), body)
	}
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: gw\r\n%sContent-Length: %d\r\n\r\n%s", method, target, headers, len(body), body)
}

// TestNoManagedJobPassesUngated draws requests from everything that is known to
// make two readers of one request differ.
func TestNoManagedJobPassesUngated(t *testing.T) {
	// Of a gateway that refused all it would be true as well.
	plain := newRig(t)
	if w := plain.wire(rawRequest("PUT", "/v1/jobs", "", registration(t, gang()), false)); w.Code != http.StatusOK || len(plain.nomad.jobs) != 1 {
		t.Fatalf("a plain registration is answered %d: %s", w.Code, w.Body)
	}
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t)
		id := rapid.SampledFrom([]string{"train", "a/b", "a/../b", "x/plan", "x/scale", "a%2Fb", "é", "a b", "..", "jobs"}).Draw(rt, "id")
		job := gang(func(j *api.Job) {
			j.ID = &id
			j.Type = rapid.SampledFrom([]*string{nil, new("batch"), new("service"), new("system"), new("")}).Draw(rt, "type")
			j.TaskGroups[0].Tasks[0].Resources.Devices[0].Name = rapid.SampledFrom([]string{"gpu", "nvidia/gpu", "nvidia/gpu/H100", "intel/fpga"}).Draw(rt, "device")
			j.Dispatched = rapid.Bool().Draw(rt, "dispatched")
			j.ParentID = rapid.SampledFrom([]*string{nil, new(""), new("parent")}).Draw(rt, "parent")
			j.Namespace = rapid.SampledFrom([]*string{nil, new("default"), new("other")}).Draw(rt, "namespace")
		})
		body := registration(t, job)
		switch rapid.SampledFrom([]string{"plain", "plain", "plain", "keys", "twice", "tail", "cut"}).Draw(rt, "body") {
		case "keys":
			body = bytes.Replace(body, []byte(`"Job":`), []byte(rapid.SampledFrom([]string{`"job":`, `"JOB":`, "\"J\\u006fb\":"}).Draw(rt, "key")), 1)
		case "twice":
			body = append([]byte(`{"Job":{"ID":"x","Type":"system"},`), body[1:]...)
		case "tail":
			body = append(body, body...)
		case "cut":
			body = body[:rapid.IntRange(0, len(body)).Draw(rt, "length")]
		}
		escape := rapid.SampledFrom([]func(string) string{
			func(s string) string { return strings.NewReplacer("%", "%25", " ", "%20", "é", "%C3%A9").Replace(s) },
			func(s string) string {
				return strings.NewReplacer("%", "%25", " ", "%20", "/", "%2F", ".", "%2e", "é", "%C3%A9").Replace(s)
			},
		}).Draw(rt, "escape")
		target := rapid.SampledFrom([]string{
			"/v1/jobs", "/v1/job/" + escape(id), "/v1/job/", "/v1//jobs", "//v1/jobs", "/v1/jobs/", "/v1/%6aobs", "/v1%2fjobs",
			"/v1/./jobs", "/v1/x/../jobs", "/v1/x/%2e%2e/jobs", "/v1/job/" + escape(id) + "/", "/v1/job//" + escape(id),
			"http://elsewhere/v1/jobs", "/v1/job/" + escape(id) + "/plan", "/v1/job/x/%2e%2e/" + escape(id), "/V1/jobs", "/v1/jobs;a=b",
			"/v1/job/" + escape(id) + "/scale", "/v1/jobs%00", "/v1/jobs/parse", "/v1\\jobs",
		}).Draw(rt, "target") + rapid.SampledFrom([]string{"", "?namespace=q", "?namespace=q&namespace=r", "?namespace=%zz", "?region=&a;b"}).Draw(rt, "query")
		headers := rapid.SampledFrom([]string{
			"", "X-HTTP-Method-Override: GET\r\n", "Content-Encoding: gzip\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\n",
			"Expect: 100-continue\r\n", "Connection: Content-Type, X-Nomad-Token\r\nX-Nomad-Token: t\r\n",
		}).Draw(rt, "headers")
		method := rapid.SampledFrom([]string{"PUT", "POST", "put", "PATCH", "GET"}).Draw(rt, "method")
		w := r.wire(rawRequest(method, target, headers, body, rapid.Bool().Draw(rt, "chunked")))
		if w != nil && w.Code == http.StatusTemporaryRedirect {
			w = r.wire(rawRequest(method, w.Header().Get("Location"), headers, body, false))
		}
		if bad := ungated(r.nomad); len(bad) > 0 {
			rt.Fatalf("ungated: %v", bad)
		}
	})
}

// FuzzRequest sends whole requests as they come over the wire.
func FuzzRequest(f *testing.F) {
	body := registration(f, gang())
	for _, target := range []string{"/v1/jobs", "/v1/job/train", "/v1//jobs", "/v1/%6Aobs", "/v1/x/%2E%2E/jobs", "/v1/job/train/plan", "*", "http://x/v1/jobs?namespace=a;b"} {
		f.Add(rawRequest("PUT", target, "", body, false))
		f.Add(rawRequest("POST", target, "Content-Encoding: gzip\r\n", body, true))
	}
	f.Add(rawRequest("PUT", "/v1/jobs", "", append([]byte(`{"job":{"Type":"system"},`), body[1:]...), false))
	f.Add("CONNECT nomad:4646 HTTP/1.1\r\nHost: x\r\n\r\n")
	f.Fuzz(func(t *testing.T, raw string) {
		r := newRig(t)
		r.wire(raw)
		if bad := ungated(r.nomad); len(bad) > 0 {
			t.Errorf("ungated: %v", bad)
		}
	})
}

// FuzzBody varies the body alone, which a fuzzer reaches deeper.
func FuzzBody(f *testing.F) {
	f.Add(registration(f, gang()))
	f.Add([]byte(`{"Job":{"ID":"a","TaskGroups":[{"Tasks":[{"Resources":{"Devices":[{"Name":"gpu"}]}}]}]}}`))
	f.Add([]byte(`{"Job":{"ID":"a","Type":null,"TaskGroups":[null,{"Name":null,"Tasks":[{}]}],"Constraints":[{}],"Meta":{"caravan_gang":"job"}}}`))
	f.Add([]byte(`{"Namespace":"x","Job":{"ID":"a","Dispatched":true,"ParentID":"p","TaskGroups":[{"Count":-1,"Scaling":{},"Tasks":[{"Resources":{"Devices":[{"Name":"nvidia/gpu","Count":18446744073709551615}]}}]}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, target := range []string{"/v1/jobs", "/v1/job/a", "/v1/job/a/plan"} {
			r := newRig(t)
			// The second meets the first's record.
			r.do("PUT", target, body)
			r.do("PUT", target, body)
			if bad := ungated(r.nomad); len(bad) > 0 {
				t.Errorf("ungated: %v", bad)
			}
		}
	})
}
