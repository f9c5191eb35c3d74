package pool

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The bounds of a pools file. MaxName leaves room for a purchase's ID in a host
// name of 63 letters.
const (
	MaxName     = 24
	maxNodes    = 100_000
	maxGPUs     = 64
	maxPrice    = 1e6
	maxQuantity = 1 << 50
	maxCPU      = 1 << 31
	maxTime     = 7 * 24 * time.Hour
	maxLifetime = 366 * 24 * time.Hour
)

var (
	poolName = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)
	variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)
)

// fault is one thing that is wrong, with the key as it is in the file.
type fault struct {
	// block counts the pools, or the data sets: two may have one name.
	block int
	key   string
	value any
	want  string
}

// Check reports every fault of a file that was made in another way than by Load.
func (f *File) Check() error {
	var out []error
	for _, fault := range f.check() {
		out = append(out, fmt.Errorf("%s is %v: %s", fault.key, fault.value, fault.want))
	}
	return errors.Join(out...)
}

type checker struct {
	block  int
	at     string
	faults []fault
}

func (c *checker) add(key string, value any, want string) {
	c.faults = append(c.faults, fault{c.block, c.at + key, value, want})
}

// number checks a number's bounds, both included. NaN is in none.
func number[T int | float64](c *checker, key string, value, low, high T, want string) {
	if !(value >= low && value <= high) {
		c.add(key, value, want)
	}
}

func (c *checker) time(key string, d, low, high time.Duration) {
	if d < low || d > high {
		c.add(key, d.String(), fmt.Sprintf("want %s to %s", low, high))
	}
}

func (f *File) check() []fault {
	c := &checker{}
	if f.Currency == "" || len(f.Currency) > 8 {
		c.add("currency", f.Currency, `want what people are to read behind a price, such as "EUR"`)
	}
	names := map[string]bool{}
	for i := range f.DataSets {
		d := &f.DataSets[i]
		c.block, c.at = i, "data_set["+d.Name+"]"
		if d.Name == "" || names[d.Name] {
			c.add("", d.Name, "want each data set once, with the name that jobs write in caravan_data")
		}
		names[d.Name] = true
		number(c, ".gb", d.GB, 0, 1e9, "want its size in GB, 0 to 1e9")
		number(c, ".egress_price", d.EgressPrice, 0, maxPrice, "want what a GB costs to leave where it is kept, 0 or more")
	}
	names, applied := map[string]bool{}, map[string]string{}
	for i := range f.Pools {
		p := &f.Pools[i]
		c.block, c.at = i, "pool["+p.Name+"]"
		if names[p.Name] {
			c.add("", p.Name, "the pool is there twice; give each a name of its own")
		}
		names[p.Name] = true
		p.check(c)
		target := p.WorkingDirectory + "\x00" + p.Workspace + "\x00" + p.Variable
		if other, taken := applied[target]; taken && other != p.Name && p.WorkingDirectory != "" {
			c.add(".terraform", p.WorkingDirectory, fmt.Sprintf("pool %q has the same working directory, workspace and variable; give each a variable or a workspace of its own", other))
		}
		applied[target] = cmp.Or(applied[target], p.Name)
	}
	return c.faults
}

func (p *Pool) check(c *checker) {
	if !poolName.MatchString(p.Name) || len(p.Name) > MaxName {
		c.add("", p.Name, fmt.Sprintf("want small letters, digits and dashes, a letter first, at most %d: nodes are named after it", MaxName))
	}
	for _, word := range []struct{ key, value, want string }{
		{".provider", p.Provider, `want the cloud's name, such as "aws"`},
		{".region", p.Region, `want where its nodes are, such as "eu-west-1"`},
		{".instance_type", p.InstanceType, `want what the cloud calls such a node, such as "p5.48xlarge"`},
		{".node.vendor", p.Vendor, `want the device's vendor, such as "nvidia"`},
		{".node.type", p.Type, `want the device's type, such as "gpu"`},
		{".node.model", p.Model, `want the GPU's model as the device plugin names it, such as "NVIDIA H100 80GB HBM3"`},
		{".node.datacenter", p.Datacenter, "want the Nomad datacenter that its nodes join"},
		{".node.node_pool", p.NodePool, "want the Nomad node pool that its nodes join"},
		{".terraform.working_directory", p.WorkingDirectory, "want the directory with the pool's Terraform files"},
	} {
		if strings.TrimSpace(word.value) == "" {
			c.add(word.key, word.value, word.want)
		}
	}
	if !variable.MatchString(p.Variable) {
		c.add(".terraform.variable", p.Variable, "want the name of the Terraform variable that is the map of nodes")
	}
	p.checkNode(c)
	p.checkPrice(c)
	c.time(".boot_time", p.BootTime, time.Second, maxTime)
	c.time(".join_timeout", p.JoinTimeout, max(time.Second, min(p.BootTime, maxTime)), 2*maxTime)
	number(c, ".transfer_gbps", p.TransferGbps, 0, 1e6, "want 10^9 bits a second, all nodes together; 0: it takes no time")
	number(c, ".quota", p.Quota, 1, maxNodes, fmt.Sprintf("want how many nodes there may be at most, 1 to %d", maxNodes))
	number(c, ".carbon", p.Carbon, 0, 1e5, "want grams of CO2 per kWh, 0 (unknown) to 1e5")
	number(c, ".power_kw", p.PowerKW, 0, 1e4, "want kW a node, 0 (unknown) to 1e4")
	if slices.Contains(p.VarFiles, "") {
		c.add(".terraform.var_files", "", "want paths of files with values of Terraform variables")
	}
	if slices.Contains(p.Data, "") {
		c.add(".data", "", "want names of data sets, as jobs write them in caravan_data")
	}
	for _, level := range slices.Sorted(maps.Keys(p.Levels)) {
		if v := p.Levels[level]; level == "" || v == "" || strings.Contains(v, "/") {
			c.add(".levels", level+" = "+v, "want a value without a slash for each level")
		}
	}
	if p.Near != "" && p.Levels[p.Near] != "" {
		c.add(".near", p.Near, "levels gives all nodes one value there already; leave one of them out")
	}
}

func (p *Pool) checkNode(c *checker) {
	number(c, ".node.gpus", p.GPUs, 1, maxGPUs, fmt.Sprintf("want how many GPUs a node has, 1 to %d", maxGPUs))
	if p.GPUs >= 1 && (p.IslandSize < 1 || p.GPUs%p.IslandSize != 0) {
		c.add(".node.island_size", p.IslandSize, fmt.Sprintf("want how many GPUs NVLink joins, a divisor of %d; 1: none", p.GPUs))
	}
	if p.GPUs >= 1 && (p.NUMANodes < 1 || p.GPUs%p.NUMANodes != 0) {
		c.add(".node.numa_nodes", p.NUMANodes, fmt.Sprintf("want a divisor of the %d GPUs", p.GPUs))
	}
	number(c, ".node.cpu_mhz", p.CPUMHz, 1, maxCPU, "want what a node has for jobs, all its cores together, in MHz")
	number(c, ".node.cores", p.Cores, 0, maxCPU, "want how many cores jobs may reserve, 0 or more")
	number(c, ".node.memory_mib", p.MemoryMiB, 1, maxQuantity, "want what a node has for jobs, in MiB")
	number(c, ".node.disk_mib", p.DiskMiB, 1, maxQuantity, "want what a node has for jobs, in MiB: each group asks for some (ephemeral_disk)")
	for _, m := range []struct {
		key    string
		values map[string]string
	}{{".node.meta", p.Meta}, {".node.attributes", p.Attributes}, {".node.gpu_attributes", p.GPUAttributes}} {
		if _, empty := m.values[""]; empty {
			c.add(m.key, "", "want a name for each")
		}
	}
	for _, own := range []string{"caravan_pool", "caravan_node", "caravan_market", "caravan_purchase"} {
		if _, taken := p.Meta[own]; taken {
			c.add(".node.meta", own, "it is set for each node when it is bought; leave it out")
		}
	}
}

const wantPrice = "want what a node costs in an hour, above 0 and at most 1e6; leave it out if there is no such offer"

func (p *Pool) checkPrice(c *checker) {
	number(c, ".price.on_demand", p.OnDemand, 0, maxPrice, wantPrice)
	number(c, ".price.spot", p.Spot, 0, maxPrice, wantPrice)
	if p.OnDemand == 0 && p.Spot == 0 {
		c.add(".price.on_demand", 0, "want what a node costs in an hour, above 0, on demand, spot or both")
	}
	number(c, ".price.egress", p.EgressPrice, 0, maxPrice, "want what a GB costs that leaves the region, 0 or more")
	c.time(".price.min_billing", p.MinBilling, 0, maxTime)
	c.time(".price.billing_period", p.BillingPeriod, time.Second, maxTime)
	c.time(".spot_lifetime", p.SpotLifetime, time.Minute, maxLifetime)
}
