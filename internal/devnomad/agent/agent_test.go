package agent

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2/hclsimple"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

func TestTopics(t *testing.T) {
	events := []state.Event{
		{Topic: "Job", Key: "train", Namespace: "default"},
		{Topic: "Job", Key: "serve", Namespace: "web"},
		{Topic: "Allocation", Key: "a1", Namespace: "default", FilterKeys: []string{"train", "", "n1"}},
		{Topic: "Node", Key: "n1"},
	}
	tests := map[string]struct {
		topics    []string
		namespace string
		want      []string
		wantErr   string
	}{
		"all":              {nil, "*", []string{"train", "serve", "a1", "n1"}, ""},
		"all of a space":   {nil, "default", []string{"train", "a1", "n1"}, ""},
		"one topic":        {[]string{"Job"}, "*", []string{"train", "serve"}, ""},
		"one key":          {[]string{"Job:train"}, "*", []string{"train"}, ""},
		"by a related key": {[]string{"Allocation:train", "Node:n1"}, "*", []string{"a1", "n1"}, ""},
		"any topic, a key": {[]string{"*:n1"}, "*", []string{"a1", "n1"}, ""},
		"unknown":          {[]string{"Weather"}, "*", nil, ""},
		"malformed":        {[]string{"Job:a:b"}, "*", nil, "Invalid key value pair for topic"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			topics, err := parseTopics(tt.topics)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("error is %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range topics.filter(events, tt.namespace) {
				got = append(got, e.Key)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestQuery(t *testing.T) {
	tests := map[string]struct {
		raw     string
		want    query
		wantErr string
	}{
		"nothing":    {"", query{namespace: "default", wait: 5 * time.Minute}, ""},
		"everything": {"namespace=ml&prefix=tr&index=7&wait=3s&per_page=2&next_token=x&reverse=true", query{namespace: "ml", prefix: "tr", index: 7, wait: 3 * time.Second, perPage: 2, nextToken: "x", reverse: true}, ""},
		"long wait":  {"wait=1h", query{namespace: "default", wait: 10 * time.Minute}, ""},
		"bad index":  {"index=-1", query{}, "Invalid index"},
		"bad wait":   {"wait=soon", query{}, "Invalid wait time"},
		"bad page":   {"per_page=many", query{}, "per_page"},
		"filter":     {"filter=Name+%3D%3D%3D", query{}, "failed to read filter expression"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseQuery(httptest.NewRequest("GET", "/v1/jobs?"+tt.raw, nil))
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("error is %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(query{})); diff != "" {
				t.Errorf("query (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPages(t *testing.T) {
	list := []string{"a", "b", "c", "d", "e"}
	var got [][]string
	token := ""
	for range list {
		w := httptest.NewRecorder()
		got = append(got, page(w, query{perPage: 2, nextToken: token}, list, func(s string) string { return s }))
		if token = w.Header().Get("X-Nomad-NextToken"); token == "" {
			break
		}
	}
	if diff := cmp.Diff([][]string{{"a", "b"}, {"c", "d"}, {"e"}}, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
}

func TestPolicy(t *testing.T) {
	p := &policy{}
	src := `
namespace "ml-*" {
  policy       = "read"
  capabilities = ["alloc-lifecycle"]
  variables {
    path "caravan/*" { capabilities = ["read", "write"] }
    path "caravan/private" { capabilities = ["list"] }
  }
}
namespace "web" { policy = "write" }
operator { policy = "read" }
`
	if err := hclsimple.Decode("p.hcl", []byte(src), nil, &p.rules); err != nil {
		t.Fatal(err)
	}
	allows := map[string]bool{
		"ml-a read-job": true, "ml-a submit-job": false, "ml-a alloc-lifecycle": true,
		"web submit-job": true, "default read-job": false, "* read-job": true,
		"x operator:read": true, "x operator:write": false, "x node:read": false,
	}
	for q, want := range allows {
		ns, capability, _ := strings.Cut(q, " ")
		if got := p.allows(ns, capability); got != want {
			t.Errorf("%s is %v, want %v", q, got, want)
		}
	}
	variables := map[string]bool{
		"ml-a caravan/x write": true, "ml-a caravan/x list": true, "ml-a caravan/x destroy": false,
		"ml-a nomad/x read": false, "web caravan/x read": false,
	}
	for q, want := range variables {
		f := strings.Fields(q)
		if got := p.allowsVariable(f[0], f[1], f[2]); got != want {
			t.Errorf("%s is %v, want %v", q, got, want)
		}
	}
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{"", "index=1&wait=5s", "wait=-1s", "per_page=-3", "index=99999999999999999999", "%zz", "namespace=*&prefix=\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		r := httptest.NewRequest("GET", "/v1/jobs", nil)
		r.URL = &url.URL{Path: "/v1/jobs", RawQuery: raw}
		q, err := parseQuery(r)
		if err == nil && q.wait > maxWait {
			t.Errorf("%q waits for %v", raw, q.wait)
		}
		if err == nil {
			page(httptest.NewRecorder(), q, []string{"a", "b"}, func(s string) string { return s })
		}
	})
}

func FuzzTopics(f *testing.F) {
	for _, s := range []string{"", "Job", "Job:*", "Job:a:b", ":", "*:*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		topics, err := parseTopics([]string{s})
		if err == nil && len(topics) != 1 {
			t.Errorf("%q gives %v", s, topics)
		}
	})
}

func FuzzPolicy(f *testing.F) {
	f.Add(`namespace "*" { policy = "read" }`, "default", "read-job")
	f.Add(`node { policy = "write" }`, "default", "node:read")
	f.Add(`namespace "[" { variables { path "[a" { capabilities = ["read"] } } }`, "[", "x")
	f.Fuzz(func(t *testing.T, src, ns, capability string) {
		p := &policy{}
		if hclsimple.Decode("p.hcl", []byte(src), nil, &p.rules) == nil {
			p.allows(ns, capability)
			p.allowsVariable(ns, capability, "read")
		}
	})
}
