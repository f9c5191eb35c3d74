package daemon_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/autoscaler/pool"
	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/config"
)

// A cluster without a GPU, a pool, and a gang that runs on bought nodes only: it is
// bought for once, whoever leads, and what the target says is kept.
func TestPurchaseThroughTheAPI(t *testing.T) {
	c, err := devnomad.Start(t.Context(), devcluster.Spec{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	pools, err := pool.Parse([]byte(`
pool "eu" {
  provider      = "aws"
  region        = "eu-west-1"
  instance_type = "p5"
  quota         = 4
  boot_time     = "6m"
  node {
    gpus       = 8
    model      = "H100"
    cpu_mhz    = 100000
    memory_mib = 100000
    disk_mib   = 100000
    attributes = { "driver.raw_exec" = "1" }
  }
  price { on_demand = 10 }
  terraform { working_directory = "/srv/tf" }
}
`), "pools.hcl")
	if err != nil {
		t.Fatal(err)
	}
	withPools := func(cfg *config.Config) { cfg.Burst.Pools = pools }
	first := run(t, c, withPools)
	eventually(t, "the first leads", func() bool { return leads(t, first) })
	job := gpuJob()
	job.Meta = map[string]string{"caravan_burst": "only", "caravan_duration": "1h", "caravan_gang": "job"}
	job.TaskGroups[0].Count = ptrTo(16)
	nomad, err := api.NewClient(&api.Config{Address: first.daemon.Address()})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := nomad.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	var bought burstapi.Purchase
	eventually(t, "nodes are bought", func() bool {
		a, err := first.client.Burst(t.Context())
		if err != nil || !a.Leader || len(a.Pools) != 1 || len(a.Pools[0].Purchases) != 1 {
			return false
		}
		bought = a.Pools[0].Purchases[0]
		return a.Pools[0].Wanted == 2
	})
	if bought.Gang != "default/j" || bought.Nodes != 2 || len(bought.Names) != 2 || bought.State != burstapi.Wanted || bought.Market != burstapi.OnDemand {
		t.Fatalf("purchase = %+v", bought)
	}
	report(t, first.daemon.Address(), burstapi.Report{Pool: "eu", Purchase: bought.ID, Kind: burstapi.ReportOrdered}, http.StatusNoContent)
	report(t, first.daemon.Address(), burstapi.Report{Pool: "eu", Purchase: "eu-none", Kind: burstapi.ReportOrdered}, http.StatusNotFound)

	second := run(t, c, withPools)
	eventually(t, "the second sees the cluster", func() bool {
		st, err := second.client.Status(t.Context())
		return err == nil && !st.ViewTaken.IsZero()
	})
	first.stop()
	eventually(t, "the second leads, and knows of the purchase", func() bool {
		a, err := second.client.Burst(t.Context())
		return err == nil && a.Leader && len(a.Pools[0].Purchases) == 1 && a.Pools[0].Purchases[0].ID == bought.ID && a.Pools[0].Purchases[0].State == burstapi.Coming
	})
	eventually(t, "the gang is told", func() bool {
		e, err := second.client.Explain(t.Context(), "default", "j")
		return err == nil && strings.Contains(e.Reason, "waits for purchase "+bought.ID)
	})
	report(t, second.daemon.Address(), burstapi.Report{Pool: "eu", Purchase: bought.ID, Kind: burstapi.ReportFailed, Reason: burstapi.ReasonQuota, Message: "16 of 16 in use"}, http.StatusNoContent)
	eventually(t, "the pool is left alone for a while", func() bool {
		a, err := second.client.Burst(t.Context())
		return err == nil && a.Pools[0].Wanted == 0 && a.Pools[0].BlockedUntil != nil && a.Pools[0].BlockedUntil.After(time.Now())
	})
	eventually(t, "the gang is told why", func() bool {
		e, err := second.client.Explain(t.Context(), "default", "j")
		return err == nil && strings.Contains(e.Reason, "quota: 16 of 16 in use")
	})
	resp, err := http.Get(second.daemon.Address() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(text), `caravan_burst_purchases_total{outcome="failed_quota",pool="eu"} 1`) {
		t.Errorf("the metrics do not count the failure: %v", err)
	}
}

func report(t *testing.T, address string, r burstapi.Report, want int) {
	t.Helper()
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(address+burstapi.PathReport, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != want {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("report %+v: %s: %s; want %d", r, resp.Status, text, want)
	}
}

func ptrTo[T any](x T) *T { return &x }
