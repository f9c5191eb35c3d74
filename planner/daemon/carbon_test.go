package daemon

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/autoscaler/pool"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// A source's figure is in the pools that a decision sees, while it is not too old;
// a failure is told of once, and wakes nobody.
func TestCarbonOfASource(t *testing.T) {
	answer, status := 0.0, http.StatusOK
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"carbonIntensity": %g}`, answer)
	}))
	defer server.Close()
	now := burstTime
	var said bytes.Buffer
	d := &Daemon{log: hclog.New(&hclog.LoggerOptions{Output: &said}), wake: make(chan struct{}, 1)}
	d.bursts.carbon.now, d.bursts.carbon.anew = func() time.Time { return now }, make(chan struct{}, 1)
	two := &pool.File{Currency: "EUR", Pools: []pool.Pool{{Name: "a", Region: "eu-1", Carbon: 290, GPUs: 1, IslandSize: 1, NUMANodes: 1}, {Name: "b", Region: "eu-1", Carbon: 50, GPUs: 1, IslandSize: 1, NUMANodes: 1}}}
	configure := func(url string) {
		c := config.Default()
		c.Burst.Pools = two
		if url != "" {
			c.Burst.Carbon = &config.CarbonSource{URL: url, Value: "carbonIntensity", Zones: map[string]string{"eu-1": "IE"}, Every: time.Hour, Keep: 2 * time.Hour}
		}
		d.bursts.configure(&c)
	}
	figures := func() string {
		var out []string
		for _, p := range d.bursts.at(now).Pools {
			out = append(out, fmt.Sprint(p.Carbon))
		}
		return strings.Join(out, " ")
	}
	configure("")
	if wait := d.askCarbon(t.Context()); wait != 0 || figures() != "290 50" {
		t.Errorf("without a source: asked again after %s, %s", wait, figures())
	}
	woken := func() bool { return len(d.wake) > 0 && func() bool { <-d.wake; return true }() }
	configure(server.URL + "/{region}")
	if len(d.bursts.carbon.anew) != 1 {
		t.Error("a new source is not asked at once")
	}
	answer = 120
	if wait := d.askCarbon(t.Context()); wait != time.Hour || figures() != "120 120" || !woken() || strings.Join(paths, " ") != "/IE" {
		t.Errorf("asked again after %s, figures %s, asked %v: want both pools' by one request", wait, figures(), paths)
	}
	status = http.StatusBadGateway
	for range 2 {
		d.askCarbon(t.Context())
	}
	configure(server.URL + "/{region}") // the same again
	now = now.Add(2 * time.Hour)
	if got := figures(); got != "120 120" || woken() || strings.Count(said.String(), "status 502") != 1 {
		t.Errorf("figures %s; said: %s", got, said.String())
	}
	now = now.Add(time.Second)
	if got := figures(); got != "290 50" {
		t.Errorf("figures %s: want the pools file's", got)
	}
	status, answer = http.StatusOK, 100
	if d.askCarbon(t.Context()); figures() != "100 100" || !strings.Contains(said.String(), "answers again") {
		t.Errorf("figures %s; said: %s", figures(), said.String())
	}
	configure("")
	if got := figures(); got != "290 50" {
		t.Errorf("figures %s after the source was taken out", got)
	}
	if diff := d.bursts.at(now); len(diff.Pools) != 2 || diff.Currency != "EUR" {
		t.Errorf("pools %+v", diff)
	}
	var none model.Burst
	if got := d.bursts.carbon.update(none, now); len(got.Pools) != 0 {
		t.Errorf("pools of none: %+v", got)
	}
}
