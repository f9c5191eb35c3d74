package pool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// maxFile bounds a pools file, in bytes.
const maxFile = 4 << 20

// Load reads the pools file at path. The error joins every fault found, each with
// its line.
func Load(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read pools: %w", err)
	}
	defer f.Close()
	// A device or a pipe tells no size.
	src, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read pools: %w", err)
	}
	if len(src) > maxFile {
		return nil, fmt.Errorf("read pools: %s has more bytes than the %d that are allowed", path, maxFile)
	}
	return Parse(src, path)
}

// Parse is Load for a file that was read already. A relative path in it is one
// beside the file.
func Parse(src []byte, path string) (*File, error) { return ParseFor(src, path, nil) }

// ParseFor is Parse for a cluster with levels of its own: level says what is wrong
// with a level's name, "" if nothing is.
func ParseFor(src []byte, path string, level func(name string) string) (*File, error) {
	l := &loader{path: path, src: src, unread: map[place]bool{}, meant: map[place]bool{}}
	parsed, diags := hclsyntax.ParseConfig(src, path, hcl.InitialPos)
	if parsed != nil {
		l.body, _ = parsed.Body.(*hclsyntax.Body)
	}
	l.diags(diags)
	var f file
	if !diags.HasErrors() {
		l.diags(gohcl.DecodeBody(parsed.Body, nil, &f))
	}
	out := &File{Path: path, Currency: DefaultCurrency}
	set(&out.Currency, f.Currency)
	for i := range f.DataSet {
		out.DataSets = append(out.DataSets, l.dataSet(&f.DataSet[i]))
	}
	for i := range f.Pool {
		l.block = i
		out.Pools = append(out.Pools, l.pool(&f.Pool[i]))
	}
	faults := out.check()
	if level != nil {
		faults = append(faults, out.checkLevels(level)...)
	}
	for _, fault := range faults {
		if !l.hides(fault) {
			l.block = fault.block
			l.fault(fault.key, fault.value, fault.want)
		}
	}
	if len(l.faults) > 0 {
		return nil, errors.Join(l.faults...)
	}
	slices.SortFunc(out.Pools, func(a, b Pool) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(out.DataSets, func(a, b DataSet) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func set[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}

func (l *loader) duration(dst *time.Duration, src *string, key string) {
	if src == nil || l.unread[l.at(key)] {
		return
	}
	d, err := time.ParseDuration(*src)
	if err != nil {
		l.unread[l.at(key)] = true
		l.fault(key, *src, `want a duration such as "90s", "6m" or "1h"`)
		return
	}
	*dst = d
}

func (l *loader) dataSet(f *fileDataSet) DataSet {
	d := DataSet{Name: f.Name}
	set(&d.GB, f.GB)
	set(&d.EgressPrice, f.EgressPrice)
	return d
}

func (l *loader) pool(f *filePool) Pool {
	key := "pool[" + f.Name + "]"
	p := Pool{
		Name: f.Name, Vendor: DefaultVendor, Type: DefaultType, NUMANodes: 1, Variable: DefaultVariable,
		Datacenter: DefaultDatacenter, NodePool: DefaultNodePool, BillingPeriod: DefaultBillingPeriod, SpotLifetime: DefaultSpotLifetime,
	}
	set(&p.Provider, f.Provider)
	set(&p.Region, f.Region)
	set(&p.InstanceType, f.InstanceType)
	set(&p.Levels, f.Levels)
	set(&p.Near, f.Near)
	set(&p.TransferGbps, f.TransferGbps)
	set(&p.Quota, f.Quota)
	set(&p.Carbon, f.Carbon)
	set(&p.PowerKW, f.PowerKW)
	set(&p.Data, f.Data)
	l.node(&p, f.Node)
	l.price(&p, f.Price, key+".price")
	l.duration(&p.BootTime, f.BootTime, key+".boot_time")
	l.duration(&p.SpotLifetime, f.SpotLifetime, key+".spot_lifetime")
	p.JoinTimeout = max(minJoinTimeout, 2*min(p.BootTime, maxTime))
	l.duration(&p.JoinTimeout, f.JoinTimeout, key+".join_timeout")
	if t := f.Terraform; t != nil {
		set(&p.WorkingDirectory, t.WorkingDirectory)
		set(&p.Workspace, t.Workspace)
		set(&p.Variable, t.Variable)
		set(&p.VarFiles, t.VarFiles)
	}
	p.WorkingDirectory = l.beside(p.WorkingDirectory)
	for i, name := range p.VarFiles {
		p.VarFiles[i] = l.beside(name) // "" stays, and is a fault
	}
	return p
}

// beside is a path of the file, from where the process runs.
func (l *loader) beside(path string) string {
	if path == "" || filepath.IsAbs(path) || l.path == "" {
		return path
	}
	return filepath.Join(filepath.Dir(l.path), path)
}

func (l *loader) node(p *Pool, f *fileNode) {
	if f == nil {
		return
	}
	set(&p.GPUs, f.GPUs)
	set(&p.Vendor, f.Vendor)
	set(&p.Type, f.Type)
	set(&p.Model, f.Model)
	set(&p.GPUAttributes, f.GPUAttributes)
	p.IslandSize = p.GPUs
	set(&p.IslandSize, f.IslandSize)
	set(&p.NUMANodes, f.NUMANodes)
	set(&p.CPUMHz, f.CPUMHz)
	set(&p.Cores, f.Cores)
	set(&p.MemoryMiB, f.MemoryMiB)
	set(&p.DiskMiB, f.DiskMiB)
	set(&p.Datacenter, f.Datacenter)
	set(&p.NodePool, f.NodePool)
	set(&p.Class, f.Class)
	set(&p.Meta, f.Meta)
	set(&p.Attributes, f.Attributes)
}

func (l *loader) price(p *Pool, f *filePrice, key string) {
	if f == nil {
		return
	}
	// A price that is left out is 0, and one that is written as 0 is a mistake.
	zero := func(name string, price *float64) {
		at := l.at(key + "." + name)
		if price != nil && *price == 0 && !l.unread[at] {
			l.fault(at.key, 0, wantPrice)
			l.unread[at] = true
		}
		if l.unread[at] {
			l.unread[l.at(key+".on_demand")] = true // that there is no price is not to be said besides
		}
	}
	zero("on_demand", f.OnDemand)
	zero("spot", f.Spot)
	set(&p.OnDemand, f.OnDemand)
	set(&p.Spot, f.Spot)
	set(&p.EgressPrice, f.Egress)
	l.duration(&p.MinBilling, f.MinBilling, key+".min_billing")
	l.duration(&p.BillingPeriod, f.BillingPeriod, key+".billing_period")
}
