package pool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read pools: %w", err)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("read pools: %s has %d bytes, at most %d are allowed", path, info.Size(), maxFile)
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read pools: %w", err)
	}
	return Parse(src, path)
}

// Parse is Load for a file that was read already. A relative path in it is one
// beside the file.
func Parse(src []byte, path string) (*File, error) {
	l := &loader{path: path, told: map[int]bool{}, unread: map[string]bool{}}
	parsed, diags := hclsyntax.ParseConfig(src, path, hcl.InitialPos)
	l.diags(diags)
	var f file
	if parsed != nil {
		l.body, _ = parsed.Body.(*hclsyntax.Body)
	}
	if !diags.HasErrors() {
		l.diags(gohcl.DecodeBody(parsed.Body, nil, &f))
		l.decoded = len(l.faults) == 0
	}
	out := &File{Path: path, Currency: DefaultCurrency}
	set(&out.Currency, f.Currency)
	for i := range f.DataSet {
		out.DataSets = append(out.DataSets, l.dataSet(&f.DataSet[i]))
	}
	for i := range f.Pool {
		out.Pools = append(out.Pools, l.pool(&f.Pool[i]))
	}
	for _, fault := range out.check() {
		// What could not be read has been told of already; it is not at its default
		// by the operator's will.
		line, found := l.line(fault.key)
		if (l.decoded || found && !l.told[line]) && !l.unread[fault.key] {
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

// loader gathers faults on the way.
type loader struct {
	path    string
	body    *hclsyntax.Body
	decoded bool
	faults  []error
	// told are the lines of which HCL has found something.
	told map[int]bool
	// unread are the keys whose values cannot be read.
	unread map[string]bool
}

func (l *loader) diags(diags hcl.Diagnostics) {
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		text, at := d.Summary, l.path
		if d.Detail != "" {
			text += ": " + d.Detail
		}
		if d.Subject != nil {
			at = fmt.Sprintf("%s:%d", d.Subject.Filename, d.Subject.Start.Line)
			l.told[d.Subject.Start.Line] = true
		}
		l.faults = append(l.faults, fmt.Errorf("%s: %s", at, text))
	}
}

func (l *loader) fault(key string, value any, want string) {
	at := l.path
	if line, _ := l.line(key); line > 0 {
		at = fmt.Sprintf("%s:%d", l.path, line)
	}
	if s, ok := value.(string); ok {
		value = strconv.Quote(s)
	}
	l.faults = append(l.faults, fmt.Errorf("%s: %s is %v: %s", at, key, value, want))
}

// line is where a key "pool[NAME].block.key" stands, or the innermost block on the
// way to it, and whether the key itself was found.
func (l *loader) line(key string) (line int, found bool) {
	body := l.body
	for body != nil {
		name, rest, more := strings.Cut(key, ".")
		name, index, _ := strings.Cut(name, "[")
		if attr, ok := body.Attributes[name]; ok && !more {
			return attr.SrcRange.Start.Line, true
		}
		label := strings.TrimSuffix(index, "]")
		at := slices.IndexFunc(body.Blocks, func(b *hclsyntax.Block) bool {
			return b.Type == name && (index == "" || len(b.Labels) > 0 && b.Labels[0] == label)
		})
		if at < 0 {
			return line, false
		}
		line = body.Blocks[at].TypeRange.Start.Line
		if !more {
			return line, true
		}
		body, key = body.Blocks[at].Body, rest
	}
	return line, false
}

func set[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}

func (l *loader) duration(dst *time.Duration, src *string, key string) {
	if src == nil {
		return
	}
	d, err := time.ParseDuration(*src)
	if err != nil {
		l.unread[key] = true
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
		p.VarFiles[i] = l.beside(name)
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
		if price != nil && *price == 0 {
			l.fault(key+"."+name, 0, wantPrice)
			l.unread[key+".on_demand"] = true // nothing more is to be said of it
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
