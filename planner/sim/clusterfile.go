package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// fileCluster is the form of a cluster file; docs/simulator.md describes it.
type fileCluster struct {
	Nodes []fileNodes `hcl:"nodes,block"`
}

type fileNodes struct {
	Name          string  `hcl:"name,label"`
	Count         int     `hcl:"count"`
	GPUs          int     `hcl:"gpus"`
	Model         string  `hcl:"model"`
	NodesPerRack  *int    `hcl:"nodes_per_rack,optional"`
	RacksPerBlock *int    `hcl:"racks_per_block,optional"`
	Datacenter    *string `hcl:"datacenter,optional"`
	// MIG and Instances are as mig and mock_mig of the device plugin, Sharing as its
	// blocks of that name.
	MIG       *string       `hcl:"mig,optional"`
	Instances []string      `hcl:"instances,optional"`
	Sharing   []fileSharing `hcl:"sharing,block"`
}

type fileSharing struct {
	Slices int  `hcl:"slices"`
	Count  *int `hcl:"count,optional"`
}

// models are the GPUs that a cluster file may name, with the names that Nomad
// shows; P100, V100M16 and V100M32 as Alibaba's traces call them, and G1 to G3 are models
// that these do not tell.
var models = map[string]string{
	"P100": "Tesla P100-PCIE-16GB", "V100M16": "Tesla V100-SXM2-16GB", "V100M32": "Tesla V100-SXM2-32GB", "G1": "G1", "G2": "G2", "G3": "G3",
	"V100": "Tesla V100-SXM2-32GB", "T4": "Tesla T4", "A10": "NVIDIA A10", "A100": "NVIDIA A100-SXM4-80GB", "L40S": "NVIDIA L40S",
	"H100": "NVIDIA H100 80GB HBM3", "H200": "NVIDIA H200", "B200": "NVIDIA B200", "GB200": "NVIDIA GB200", "MI300X": "AMD Instinct MI300X",
}

// keyName is what faults call the label of a block.
const keyName = "the name"

// keySharing is what faults call the blocks in a block of nodes.
const keySharing = "sharing"

// Models are the names of the GPUs that a cluster file may have.
func Models() []string { return slices.Sorted(maps.Keys(models)) }

// ParseCluster reads a cluster file. Every fault is in the error, with its line.
func ParseCluster(src []byte, name string) (Cluster, error) {
	file, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	var f fileCluster
	if !diags.HasErrors() {
		diags = append(diags, gohcl.DecodeBody(file.Body, nil, &f)...)
	}
	var faults []error
	for _, d := range diags {
		at := name
		if d.Subject != nil {
			at = fmt.Sprintf("%s:%d", name, d.Subject.Start.Line)
		}
		faults = append(faults, fmt.Errorf("%w: %s: %s: %s", ErrSetup, at, d.Summary, d.Detail))
	}
	body, native := (*hclsyntax.Body)(nil), false
	if file != nil {
		body, native = file.Body.(*hclsyntax.Body)
	}
	if !native || len(faults) > 0 && len(f.Nodes) == 0 {
		return Cluster{}, errors.Join(faults...)
	}
	c := Cluster{Levels: []string{model.LevelBlock, model.LevelRack}, named: true}
	seen := map[string]bool{}
	for i := range f.Nodes {
		faults = append(faults, f.Nodes[i].check(written(body, i, name), seen)...)
	}
	if len(f.Nodes) == 0 {
		faults = append(faults, fmt.Errorf("%w: %s: no nodes block: want one or more", ErrSetup, name))
	}
	total := 0 // each count and number of GPUs is within bounds, or there is a fault
	for i := range f.Nodes {
		total += f.Nodes[i].Count * f.Nodes[i].GPUs
	}
	if len(faults) == 0 && total > maxClusterGPUs {
		faults = append(faults, fmt.Errorf("%w: %s: %d GPUs: want at most %d", ErrSetup, name, total, maxClusterGPUs))
	}
	if len(faults) > 0 {
		return Cluster{}, errors.Join(faults...)
	}
	for i := range f.Nodes {
		f.Nodes[i].add(&c, i)
	}
	return c, nil
}

// block is the text of a nodes block: where its keys are, and whether there is a value
// of the right type in them.
type block struct {
	file string
	text *hclsyntax.Block
}

// written is the text of the i-th nodes block.
func written(body *hclsyntax.Body, i int, file string) block {
	for _, b := range body.Blocks {
		if b.Type != "nodes" {
			continue
		}
		if i == 0 {
			return block{file, b}
		}
		i--
	}
	return block{file: file}
}

// at is where a fault of a key is.
func (b *block) at(key string) string {
	if b.text == nil {
		return b.file
	}
	line := b.text.DefRange().Start.Line
	if attr, there := b.text.Body.Attributes[key]; there {
		line = attr.SrcRange.Start.Line
	}
	for _, inner := range slices.Backward(b.text.Body.Blocks) {
		if inner.Type == key {
			line = inner.DefRange().Start.Line // of the first
		}
	}
	return fmt.Sprintf("%s:%d", b.file, line)
}

// readable reports whether a key has a value of the right type: of any other one more
// was said already.
func (b *block) readable(key string) bool {
	want := map[string]cty.Type{"model": cty.String, "datacenter": cty.String, "mig": cty.String, "instances": cty.List(cty.String)}
	if b.text == nil {
		return false
	}
	attr, there := b.text.Body.Attributes[key]
	if !there {
		return false
	}
	typ, known := want[key]
	if !known {
		typ = cty.Number
	}
	v, diags := attr.Expr.Value(nil)
	if diags.HasErrors() {
		return false
	}
	v, err := convert.Convert(v, typ)
	return err == nil && !v.IsNull() && (typ != cty.Number || v.AsBigFloat().IsInt())
}

func (f *fileNodes) check(text block, seen map[string]bool) (faults []error) {
	add := func(key string, value any, allowed string) {
		if key != keyName && key != keySharing && !text.readable(key) {
			return
		}
		faults = append(faults, fmt.Errorf("%w: %s: nodes %q: %s is %v: want %s", ErrSetup, text.at(key), f.Name, key, value, allowed))
	}
	if f.Name == "" || seen[f.Name] {
		add(keyName, fmt.Sprintf("%q", f.Name), "another for each block")
	}
	seen[f.Name] = true
	if f.Count < 1 || f.Count > maxClusterGPUs {
		add("count", f.Count, fmt.Sprintf("1 to %d", maxClusterGPUs))
	}
	if f.GPUs < 1 || f.GPUs > 64 {
		add("gpus", f.GPUs, "1 to 64")
	}
	if _, known := models[f.Model]; !known {
		add("model", fmt.Sprintf("%q", f.Model), "one of "+strings.Join(Models(), ", "))
	}
	if f.NodesPerRack != nil && *f.NodesPerRack < 1 {
		add("nodes_per_rack", *f.NodesPerRack, "1 or more")
	}
	if f.RacksPerBlock != nil && *f.RacksPerBlock < 1 {
		add("racks_per_block", *f.RacksPerBlock, "1 or more")
	}
	f.checkParts(add)
	return faults
}

func (f *fileNodes) add(c *Cluster, block int) {
	perRack, perBlock := nodesPerRack, racksPerBlock
	if f.NodesPerRack != nil {
		perRack = *f.NodesPerRack
	}
	if f.RacksPerBlock != nil {
		perBlock = *f.RacksPerBlock
	}
	modes := f.modes()
	datacenter := "dc1"
	if f.Datacenter != nil {
		datacenter = *f.Datacenter
	}
	for i := range f.Count {
		n := model.Node{
			ID: fmt.Sprintf("%s-%05d", f.Name, i), Datacenter: datacenter, Pool: "default",
			Levels: map[string]string{
				model.LevelBlock: fmt.Sprintf("%s%d.%d", f.Name, block, i/perRack/perBlock), model.LevelRack: fmt.Sprintf("r%d", i/perRack%perBlock),
			},
			Capacity:   model.Resources{CPUMHz: 1 << 20, MemoryMiB: 1 << 21, DiskMiB: 1 << 24},
			Attributes: map[string]string{modelAttribute: models[f.Model]},
		}
		for g := range f.GPUs {
			n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprintf("%s.%d", n.ID, g), Vendor: "nvidia", Type: "gpu", Model: models[f.Model], NUMA: -1})
		}
		c.Nodes = append(c.Nodes, n)
		c.GPUs += f.GPUs
		if modes != nil {
			c.modes = append(c.modes, make([][]gpuMode, len(c.Nodes)-len(c.modes))...)
			c.modes[len(c.Nodes)-1] = modes
		}
	}
	for node := len(c.Nodes) - f.Count; node < len(c.Nodes); node++ {
		c.PerNode = max(1, c.PerNode, c.wholes(node))
	}
}
