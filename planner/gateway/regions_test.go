package gateway

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// place is a Locator of one job, one allocation and one node, all in us.
type place struct{}

func (place) Job(region, namespace, id string) string {
	if region == "eu" && namespace == "ml" && id == "big/one" {
		return "us"
	}
	return ""
}

func (place) Alloc(prefix string) string {
	if prefix == "a110c" {
		return "us"
	}
	return ""
}

func (place) Node(prefix string) string {
	if prefix == "n0de" {
		return "us"
	}
	return ""
}

func TestRegionOfRequest(t *testing.T) {
	f := NewRegions("eu", nil, place{})
	f.evals.put("e1", "us")
	tests := map[string]string{
		"GET /v1/job/big%2Fone?namespace=ml":             "us",
		"GET /v1/job/big%2Fone/allocations?namespace=ml": "us",
		"GET /v1/job/big%2Fone/versions?namespace=ml":    "us",
		"GET /v1/job/big%2Fone":                          "", // another namespace
		"DELETE /v1/job/big%2Fone?namespace=ml":          "", // it is stopped where it was submitted
		"PUT /v1/job/big%2Fone/scale?namespace=ml":       "",
		"GET /v1/jobs?prefix=big":                        "",
		"GET /v1/allocations?prefix=a110c":               "us",
		"GET /v1/allocations":                            "",
		"GET /v1/allocation/a110c":                       "us",
		"PUT /v1/allocation/a110c/stop":                  "us",
		"GET /v1/client/fs/logs/a110c?task=t":            "us",
		"GET /v1/client/allocation/a110c/exec?task=t":    "us",
		"PUT /v1/client/allocation/a110c/restart":        "us",
		"GET /v1/client/allocation/other/stats":          "",
		"GET /v1/client/stats":                           "",
		"GET /v1/node/n0de":                              "us",
		"PUT /v1/node/n0de/drain":                        "",
		"GET /v1/evaluation/e1":                          "us",
		"GET /v1/evaluation/e1/allocations":              "us",
		"GET /v1/evaluation/e2":                          "",
		"GET /ui/jobs":                                   "",
	}
	for request, want := range tests {
		method, target, _ := strings.Cut(request, " ")
		if got := f.of(httptest.NewRequest(method, target, nil)); got != want {
			t.Errorf("%s: region %q, want %q", request, got, want)
		}
	}
}
