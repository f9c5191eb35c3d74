package target

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad-autoscaler/plugins/shared"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
)

// slowNomad answers when the test lets it.
type slowNomad struct {
	cluster
	asked, answer chan struct{}
}

// Leader implements Nomad.
func (n slowNomad) Leader(context.Context) error {
	n.asked <- struct{}{}
	<-n.answer
	return nil
}

// Nodes implements Nomad.
func (slowNomad) Nodes(context.Context, string) ([]*api.Node, map[string][]*api.Allocation, error) {
	return nil, nil, nil
}

// Status answers within the time that the autoscaler gives it, and calls that come
// meanwhile wait for the same look.
func TestStatusInTime(t *testing.T) {
	if !terraform.HasBinary() {
		t.Skip("no terraform and no tofu on the PATH: the state cannot be read")
	}
	dir := t.TempDir()
	pools, err := os.ReadFile("../pool/testdata/pools.hcl")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"pools.hcl": string(pools), "terraform/aws/main.tf": `variable "nodes" { default = {} }`} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := New(hclog.NewNullLogger())
	if err := p.SetConfig(map[string]string{KeyPools: filepath.Join(dir, "pools.hcl")}); err != nil {
		t.Fatal(err)
	}
	nomad := slowNomad{asked: make(chan struct{}, 10), answer: make(chan struct{})}
	p.nomad = nomad
	config := map[string]string{KeyPool: "eu-h100", shared.PluginConfigKeyGRPCTimeout: "1ms"}
	go func() { <-nomad.asked }()
	for range 3 { // one look for all
		s, err := p.Status(config)
		if err != nil || s.Ready || !strings.Contains(s.Meta[MetaWhy], "still being read") {
			t.Fatalf("status is %+v (%v), want it not ready for now", s, err)
		}
	}
	config[shared.PluginConfigKeyGRPCTimeout] = time.Minute.String()
	close(nomad.answer)
	s, err := p.Status(config)
	if err != nil || !s.Ready || s.Count != 0 {
		t.Errorf("status is %+v (%v), want an empty pool", s, err)
	}
	p.Wait()
}
