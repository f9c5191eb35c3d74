package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/autoscaler/pool"
	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// killPools is the pools file: nodes with four GPUs by the hour, and no others.
const killPools = `
pool "p" {
  provider      = "cloud"
  region        = "here"
  instance_type = "x"
  quota         = 4
  boot_time     = "6m"
  join_timeout  = "15m"
  near          = "block"
  node {
    gpus       = 4
    model      = "H100"
    cpu_mhz    = 8000
    memory_mib = 8000
    disk_mib   = 8000
  }
  price {
    on_demand      = 10
    billing_period = "1h"
  }
  terraform {
    working_directory = "."
  }
}
`

// plannerProcess is what of the planner has to do with purchases: how it keeps them,
// decides and answers. Beside the Variable nothing outlives it.
type plannerProcess struct {
	server    *httptest.Server
	poolsFile string
	bursts    *bursts
	back      time.Time
	index     uint64
}

// shot is the panic of a planner that was killed while it did something.
type shot struct{}

func (w *world) startPlanner() {
	dir := w.t.TempDir()
	p := &plannerProcess{poolsFile: filepath.Join(dir, "pools.hcl")}
	if err := os.WriteFile(p.poolsFile, []byte(killPools), 0o600); err != nil {
		w.t.Fatal(err)
	}
	file, err := pool.Load(p.poolsFile)
	if err != nil {
		w.t.Fatal(err)
	}
	w.pools = (&config.Burst{Pools: file}).BuyPools([]string{"block"})
	w.planner = p
	p.server = httptest.NewServer(http.HandlerFunc(w.serve))
	w.t.Cleanup(p.server.Close)
}

// kill ends the planner; another one leads after a while.
func (p *plannerProcess) kill(w *world) {
	p.bursts, p.back = nil, w.now.Add(mended)
}

// serve answers the autoscaler's plugins.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	p := w.planner
	if p.bursts == nil || w.now.Before(w.leaderless) {
		http.Error(rw, "nobody leads", http.StatusServiceUnavailable)
		return
	}
	defer func() {
		if recover() != nil { // it was killed meanwhile
			panic(http.ErrAbortHandler)
		}
	}()
	if r.Method == http.MethodGet {
		pools, index, v := p.bursts.answer()
		_ = json.NewEncoder(rw).Encode(burstapi.Answer{Now: w.now, Index: index, Leader: v != nil, Pools: pools})
		return
	}
	var report burstapi.Report
	if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	w.say("target: reports %s of %s %s", report.Kind, report.Purchase, report.Message)
	known, err := p.bursts.report(context.Background(), &report, w.now)
	switch {
	case err != nil:
		http.Error(rw, err.Error(), http.StatusServiceUnavailable)
	case !known:
		http.NotFound(rw, r)
	default:
		rw.WriteHeader(http.StatusNoContent)
	}
}

// turn is one cycle of the planner: it sees, decides, writes down and carries out.
func (p *plannerProcess) turn(w *world) {
	if w.now.Before(w.leaderless) {
		p.kill(w) // it leads no more, and forgets what it knew
		return
	}
	if p.bursts == nil {
		if w.now.Before(p.back) {
			return
		}
		p.bursts = &bursts{store: w.store, coolDown: burst.DefaultCoolDown, pools: w.pools}
		w.say("planner: leads")
	}
	defer func() {
		if r := recover(); r != nil && r != any(shot{}) {
			panic(r)
		}
	}()
	ctx := context.Background()
	if err := p.bursts.load(ctx); err != nil {
		w.t.Fatal(err)
	}
	s := w.snapshot()
	s.Burst = p.bursts.at(w.now)
	plan, err := core.Decide(s, core.Policy{Burst: burst.Policy{Default: model.BurstAllow, Ahead: 24 * time.Hour}})
	if err != nil {
		w.t.Fatal(err)
	}
	p.index++
	if err := p.bursts.carry(ctx, &observe.View{Taken: w.now, Index: p.index, Snapshot: s}, plan, w.now); err != nil {
		w.t.Fatal(err)
	}
	for _, d := range plan.Decisions {
		for _, g := range w.gangs {
			if g.ID == d.Job && d.Action == model.ActionAdmit && g.State == model.StateQueued {
				w.admit(g, d.Members)
			}
		}
		if p.bursts == nil {
			return
		}
	}
	for _, m := range w.alive() { // a drain is a trigger: what runs there leaves with a checkpoint
		for _, g := range w.gangs {
			if m.drained && g.State == model.StateRunning && strings.Contains(fmt.Sprint(g.whole), m.id) {
				w.stop(g, true, m.name+" is drained")
			}
		}
	}
}

// killStore is Nomad's Variables.
type killStore struct {
	w     *world
	doc   record.Document
	times int
}

// Get implements documents.
func (s *killStore) Get(context.Context, ...string) (record.Document, error) {
	if s.times == 0 {
		return record.Document{}, record.ErrNotFound
	}
	return s.doc, nil
}

// Put implements documents.
func (s *killStore) Put(_ context.Context, index uint64, doc []byte, _ ...string) (uint64, error) {
	if index != s.doc.Index {
		return 0, record.ErrConflict
	}
	s.times++
	s.doc = record.Document{Index: index + 1, JSON: doc}
	if strings.Contains(string(doc), `"state":"wanted"`) {
		s.w.trigger.reach(s.w, stepRecorded)
		if s.w.planner.bursts == nil {
			panic(shot{})
		}
	}
	return s.doc.Index, nil
}
