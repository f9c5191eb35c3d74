package devrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
)

const (
	gatedJob = `{"Topic":"Job","Type":"JobRegistered","Key":"j","Index":5,"Payload":{"Job":{"ID":"j","Namespace":"default","Version":0,"JobModifyIndex":5,
		"Constraints":[{"LTarget":"${meta.caravan_gate}","RTarget":"open","Operand":"="}],"TaskGroups":[{"Name":"g"}]}}}`
	runningAlloc = `{"Topic":"Allocation","Type":"AllocationUpdated","Key":"a","Index":6,"Payload":{"Allocation":{"ID":"a","Name":"j.g[0]","Namespace":"default",
		"JobID":"j","TaskGroup":"g","NodeID":"n","DesiredStatus":"run","ClientStatus":"running","Job":null,
		"AllocatedResources":{"Tasks":{"t1":{"Devices":[{"Vendor":"nvidia","Type":"gpu","Name":"x","DeviceIDs":["g2","g1"]}]},"t2":{"Devices":null}}}}}}`
	nodeEvent = `{"Topic":"Node","Type":"NodeRegistration","Index":7,"Payload":{"Node":{"ID":"n"}}}`
)

// stream serves an event stream of these lines, which stays open if it should.
func stream(t *testing.T, open bool, lines ...string) *api.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/event/stream" || r.URL.Query().Get("namespace") != "*" {
			http.NotFound(w, r)
			return
		}
		for _, l := range lines {
			fmt.Fprintln(w, strings.ReplaceAll(l, "\n", ""))
		}
		w.(http.Flusher).Flush()
		if open {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	client, err := api.NewClient(&api.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var shown atomic.Int32
	client := stream(t, true, "{}", `{"Index":5,"Events":[`+gatedJob+`]}`, `{"Index":7,"Events":[`+runningAlloc+","+nodeEvent+`]}`)
	w, err := watch(ctx, client, time.Now(), func(sighting) { shown.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	seen, err := w.await(ctx, "the member runs", func(t timeline) bool { return t.runningMembers("j") == 1 })
	if err != nil {
		t.Fatal(err)
	}
	for i := range seen {
		seen[i].at = 0
	}
	want := timeline{
		{index: 5, job: &jobState{namespace: "default", id: "j", modify: 5, gated: true}},
		{index: 6, alloc: &allocState{
			id: "a", name: "j.g[0]", namespace: "default", job: "j", group: "g", node: "n",
			gpus: []string{"g1", "g2"}, desired: "run", client: "running",
		}},
	}
	if diff := cmp.Diff(want, seen, cmp.AllowUnexported(sighting{}, jobState{}, allocState{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Waiting ends with its context, and says for what it waited.
	short, stop := context.WithTimeoutCause(ctx, time.Millisecond, errors.New("out of time"))
	defer stop()
	if _, err := w.await(short, "pigs fly", func(timeline) bool { return false }); err == nil || !strings.Contains(err.Error(), "wait until pigs fly: out of time") {
		t.Errorf("await() = %v", err)
	}
}

// TestWatchBreaks: a run whose events may be incomplete must not pass.
func TestWatchBreaks(t *testing.T) {
	tests := map[string]string{
		"the stream ends": "{}",
		"not JSON":        "<html>",
		"a broken event":  `{"Index":5,"Events":[{"Topic":"Job","Type":"JobRegistered","Index":5,"Payload":{"Job":{"ID":7}}}]}`,
	}
	for name, line := range tests {
		t.Run(name, func(t *testing.T) {
			w, err := watch(t.Context(), stream(t, false, line), time.Now(), func(sighting) {})
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.await(t.Context(), "anything", func(timeline) bool { return false })
			if err == nil || !strings.Contains(err.Error(), "watch events") {
				t.Errorf("await() = %v, want the stream's trouble", err)
			}
		})
	}
}

// pinnedJob has what rewrite.IsPinned looks for, and gatedBody what IsGated does.
const (
	pinnedBody = `{"Job":{"ID":"train-gang","TaskGroups":[{"Name":"g","Constraints":[
		{"LTarget":"${meta.caravan_gate}","Operand":"is_not_set"},
		{"LTarget":"${node.unique.id}","RTarget":"^(aa|bb)","Operand":"regexp"}]}]}}`
	gatedBody = `{"Job":{"ID":"train-gang","Constraints":[{"LTarget":"${meta.caravan_gate}","RTarget":"open","Operand":"="}],"TaskGroups":[{"Name":"g"}]}}`
)

func TestInterpose(t *testing.T) {
	var order []string
	nomad := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		order = append(order, fmt.Sprint(r.Method, " ", r.URL.Path, " ", len(body)))
	}))
	defer nomad.Close()
	var intruders []*api.Job
	i, err := interpose(nomad.URL, trainGang, func(pinned *api.Job) error {
		order = append(order, "before")
		intruders = append(intruders, intruder(pinned))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer i.stop()
	send := func(method, path, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, i.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s %s = %s", method, path, resp.Status)
		}
	}
	send("GET", "/v1/jobs", "")
	send("PUT", "/v1/jobs", gatedBody)
	send("PUT", "/v1/job/train-gang/plan", pinnedBody)
	send("PUT", "/v1/jobs", "not JSON")
	send("PUT", "/v1/jobs", pinnedBody)
	send("PUT", "/v1/jobs", pinnedBody)
	want := []string{
		"GET /v1/jobs 0", fmt.Sprint("PUT /v1/jobs ", len(gatedBody)), fmt.Sprint("PUT /v1/job/train-gang/plan ", len(pinnedBody)), "PUT /v1/jobs 8",
		"before", fmt.Sprint("PUT /v1/jobs ", len(pinnedBody)), fmt.Sprint("PUT /v1/jobs ", len(pinnedBody)),
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := intruders[0].TaskGroups[0].Constraints; len(got) != 1 || got[0].RTarget != "^(aa|bb)" || *intruders[0].Namespace != otherTeam {
		t.Errorf("intruder in %s has constraints %v, want the nodes of the pins alone", *intruders[0].Namespace, got)
	}
}

func TestInterposeFails(t *testing.T) {
	i, err := interpose("http://127.0.0.1:1", trainGang, func(*api.Job) error { return errors.New("no room") })
	if err != nil {
		t.Fatal(err)
	}
	defer i.stop()
	for range 2 {
		resp, err := http.Post(i.url+"/v1/jobs", "application/json", strings.NewReader(pinnedBody))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusBadGateway || !strings.Contains(string(body), "no room") {
			t.Errorf("answer %s %q, %v; want the reason", resp.Status, body, err)
		}
	}
}
