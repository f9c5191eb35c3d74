package target_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/burstapi"
)

// planner is a planner whose answer the test writes.
type planner struct {
	*httptest.Server
	mu      sync.Mutex
	pool    burstapi.Pool
	follows bool
	away    bool
	reports []burstapi.Report
}

func newPlanner(t *testing.T) *planner {
	p := &planner{pool: burstapi.Pool{Name: "p"}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

// ServeHTTP implements http.Handler.
func (p *planner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.away:
		http.Error(w, "no planner leads", http.StatusServiceUnavailable)
	case r.Header.Get("X-Nomad-Token") != "planner-secret-token":
		http.Error(w, "Permission denied", http.StatusForbidden)
	case r.Method == http.MethodGet && r.URL.Path == burstapi.PathBurst:
		_ = json.NewEncoder(w).Encode(burstapi.Answer{Now: time.Now(), Leader: !p.follows, Pools: []burstapi.Pool{p.pool}})
	case r.Method == http.MethodPost && r.URL.Path == burstapi.PathReport:
		var rep burstapi.Report
		if err := json.NewDecoder(r.Body).Decode(&rep); err != nil || rep.Check() != nil {
			http.Error(w, "bad report", http.StatusBadRequest)
			return
		}
		p.reports = append(p.reports, rep)
		for i := range p.pool.Purchases {
			b := &p.pool.Purchases[i]
			switch {
			case b.ID != rep.Purchase:
			case rep.Kind == burstapi.ReportFailed:
				b.State = burstapi.Failed
			case rep.Kind == burstapi.ReportGone:
				gone := func(name string) bool { return slices.Contains(rep.Nodes, name) }
				b.Names = slices.DeleteFunc(slices.Clone(b.Names), gone)
				p.pool.GiveBack = slices.DeleteFunc(p.pool.GiveBack, func(g burstapi.GiveBack) bool { return gone(g.Name) })
			}
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		http.NotFound(w, r)
	}
}

// want sets what is wanted.
func (p *planner) want(purchases []burstapi.Purchase, giveBack ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pool.Purchases, p.pool.GiveBack, p.pool.Wanted = purchases, nil, 0
	for _, b := range purchases {
		if b.State != burstapi.Failed {
			p.pool.Wanted += len(b.Names)
		}
	}
	for _, n := range giveBack {
		p.pool.GiveBack = append(p.pool.GiveBack, burstapi.GiveBack{Name: n})
		p.pool.Wanted--
	}
}

func (p *planner) set(f func(*planner)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p)
}

// wanted is how many nodes are to be there, as the strategy would say.
func (p *planner) wanted() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, b := range p.pool.Purchases {
		if b.State != burstapi.Failed {
			n += len(b.Names)
		}
	}
	return int64(n - len(p.pool.GiveBack))
}

// told are the reports, as KIND PURCHASE REASON.
func (p *planner) told() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, r := range p.reports {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Kind, r.Purchase, r.Reason)))
	}
	return out
}

func purchase(id string, names ...string) burstapi.Purchase {
	return burstapi.Purchase{ID: id, Gang: "default/g", Nodes: len(names), Names: names, Market: burstapi.Spot, State: burstapi.Wanted}
}
