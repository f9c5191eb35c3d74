package pool

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLoad(t *testing.T) {
	got, err := Load(filepath.Join("testdata", "pools.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	want := &File{
		Path: filepath.Join("testdata", "pools.hcl"), Currency: "EUR",
		DataSets: []DataSet{{Name: "imagenet", GB: 150}},
		Pools: []Pool{{
			Name: "eu-h100", Provider: "aws", Region: "eu-west-1", InstanceType: "p5.48xlarge",
			GPUs: 8, Vendor: "nvidia", Type: "gpu", Model: "NVIDIA H100 80GB HBM3", IslandSize: 8, NUMANodes: 2,
			CPUMHz: 440000, MemoryMiB: 2000000, DiskMiB: 28000000,
			Datacenter: "dc1", NodePool: "default", Class: "burst",
			Attributes: map[string]string{"kernel.name": "linux", "cpu.arch": "amd64", "driver.caravan": "1"},
			Near:       "block", OnDemand: 55.04, Spot: 24.9, SpotLifetime: 24 * time.Hour,
			BootTime: 6 * time.Minute, JoinTimeout: 15 * time.Minute, MinBilling: time.Minute, BillingPeriod: time.Second,
			EgressPrice: 0.09, TransferGbps: 20, Quota: 16, Carbon: 290, PowerKW: 10.2, Data: []string{"laion"},
			WorkingDirectory: filepath.Join("testdata", "terraform", "aws"), Variable: "nodes",
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	if p := got.Find("eu-h100"); p != &got.Pools[0] {
		t.Errorf("Find = %v", p)
	}
	if p := got.Find("us"); p != nil {
		t.Errorf("Find of no pool = %v", p)
	}
}

func TestPoolsAreSortedAndHaveDefaults(t *testing.T) {
	src := strings.ReplaceAll(pools(t), `pool "eu-h100"`, `pool "zz"`) +
		strings.ReplaceAll(strings.ReplaceAll(pools(t), "terraform/aws", "/srv/tf"), `currency = "EUR"`, "")
	src = strings.Replace(src, `join_timeout  = "15m"`, "", 1)
	src = strings.Replace(src, `data_set "imagenet"`, `data_set "laion"`, 1)
	f, err := Parse([]byte(src), "")
	if err != nil {
		t.Fatal(err)
	}
	if f.Pools[0].Name != "eu-h100" || f.Pools[1].Name != "zz" {
		t.Errorf("pools are %q and %q", f.Pools[0].Name, f.Pools[1].Name)
	}
	if got := f.Pools[1].JoinTimeout; got != 12*time.Minute {
		t.Errorf("join timeout = %s, want twice the boot time", got)
	}
	if f.Pools[0].WorkingDirectory != "/srv/tf" || f.Pools[1].WorkingDirectory != "terraform/aws" {
		t.Errorf("working directories %q and %q", f.Pools[0].WorkingDirectory, f.Pools[1].WorkingDirectory)
	}
}

func pools(t testing.TB) string {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("testdata", "pools.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}

// Each change of the file is a fault, and one only.
func TestOneFault(t *testing.T) {
	tests := map[string]struct{ old, new, want string }{
		"no price":        {"on_demand      = 55.04\n    spot           = 24.9", "", "p.hcl:31: pool[eu-h100].price.on_demand is 0: want what a node costs"},
		"no disk":         {"    disk_mib   = 28000000\n", "", "pool[eu-h100].node.disk_mib is 0: want what a node has for jobs, in MiB: each group asks for some"},
		"price 0":         {"55.04", "0", "p.hcl:32: pool[eu-h100].price.on_demand is 0: want what a node costs in an hour, above 0"},
		"price below 0":   {"55.04", "-1", "price.on_demand is -1"},
		"price NaN":       {"55.04", `"NaN"`, `p.hcl:32: pool[eu-h100].price.on_demand is "NaN": Unsuitable value type`},
		"price infinite":  {"24.9", "1e300", "p.hcl:33: pool[eu-h100].price.spot is 1e+300"},
		"price a list":    {"24.9", "[1]", "p.hcl:33: pool[eu-h100].price.spot is [1]: Unsuitable value type"},
		"price of 0/0":    {"24.9", "0/0", "p.hcl:33: pool[eu-h100].price.spot is 0/0: Operation failed"},
		"price too large": {"24.9", "1e400", "p.hcl:33: pool[eu-h100].price.spot is 1e400: Unsuitable value type"},
		"slip in a key":   {"quota ", "qouta ", `Did you mean "quota"?`},
		"slip in a block": {"price {", "prise {", `Did you mean "price"?`},
		"a block twice":   {"price {", "price {}\n price {", "p.hcl:32: Duplicate price block"},
		"var files":       {`working_directory = "terraform/aws"`, "working_directory = \"terraform/aws\"\n var_files = [\"\"]", "p.hcl:41: pool[eu-h100].terraform.var_files is \"\""},
		"unknown key":     {"carbon ", "carbno ", "Unsupported argument"},
		"boot time":       {`"6m"`, `"six"`, `pool[eu-h100].boot_time is "six": want a duration`},
		"join before":     {`"15m"`, `"5m"`, "join_timeout is \"5m0s\": want 6m0s to"},
		"name":            {`"eu-h100"`, `"EU_1"`, `is "EU_1": want small letters`},
		"name ends":       {`"eu-h100"`, `"eu-"`, `is "eu-": want small letters`},
		"name too long":   {`"eu-h100"`, `"abcdefghijklmnopqrstuvwxyz"`, "at most 24"},
		"quota":           {"quota         = 16", "quota = 0", "quota is 0: want how many nodes"},
		"quota missing":   {"quota         = 16", "", "p.hcl:7: pool[eu-h100].quota is 0"},
		"no GPUs":         {"gpus       = 8", "", "node.gpus is 0"},
		"islands":         {"gpus       = 8", "gpus = 8\nisland_size = 3", "node.island_size is 3: want how many GPUs NVLink joins, a divisor of 8"},
		"NUMA":            {"numa_nodes = 2", "numa_nodes = 0", "node.numa_nodes is 0"},
		"near and levels": {`near          = "block"`, "near = \"block\"\nlevels = { block = \"b1\" }", "near is \"block\": levels gives"},
		"level's value":   {`near          = "block"`, `levels = { block = "a/b" }`, "want a value without a slash"},
		"own meta":        {`class      = "burst"`, `meta = { caravan_pool = "x" }`, "it is set for each node when it is bought"},
		"no directory":    {`working_directory = "terraform/aws"`, "", "terraform.working_directory is \"\""},
		"data":            {`["laion"]`, `[""]`, "want names of data sets"},
		"data set":        {"gb = 150", "gb = -1", "data_set[imagenet].gb is -1"},
		"no HCL":          {`currency = "EUR"`, "currency = ", "p.hcl:1: Invalid expression"},
		"egress":          {"egress         = 0.09", "egress = -1", "price.egress is -1"},
		"period":          {`billing_period = "1s"`, `billing_period = "0s"`, "billing_period is \"0s\": want 1s to 168h0m0s"},
		"currency":        {`"EUR"`, `""`, "p.hcl:1: currency is \"\""},
		"model":           {`"NVIDIA H100 80GB HBM3"`, `" "`, "node.model is \" \""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			src := strings.Replace(pools(t), test.old, test.new, 1)
			if src == pools(t) {
				t.Fatalf("the file has no %q", test.old)
			}
			f, err := Parse([]byte(src), "p.hcl")
			if err == nil {
				t.Fatalf("no fault: %+v", f)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v\nwant %q", err, test.want)
			}
			if n := strings.Count(err.Error(), "\n") + 1; n != 1 {
				t.Errorf("%d faults:\n%v", n, err)
			}
		})
	}
}

func TestEveryFaultAtOnce(t *testing.T) {
	src := pools(t)
	for _, change := range [][2]string{
		{"55.04", "0"}, {`"6m"`, `"6"`}, {"quota         = 16", `quota = "many"`}, {`"aws"`, `""`}, {"power_kw      = 10.2", "power_kw = -1"}, {"class ", "klass "},
	} {
		src = strings.Replace(src, change[0], change[1], 1)
	}
	src += "\npool \"eu-h100\" {}\n"
	_, err := Parse([]byte(src), "p.hcl")
	if err == nil {
		t.Fatal("no fault")
	}
	for _, want := range []string{"p.hcl:32: pool[eu-h100].price.on_demand", `boot_time is "6"`, "p.hcl:11: pool[eu-h100].quota is \"many\": Unsuitable value type", "p.hcl:8: pool[eu-h100].provider", "power_kw", "Unsupported argument", "p.hcl:44: pool[eu-h100] is \"eu-h100\": the pool is there twice", "p.hcl:44: pool[eu-h100].quota is 0"} {
		if n := strings.Count(err.Error(), want); n != 1 {
			t.Errorf("%d faults of %q, want 1:\n%v", n, want, err)
		}
	}
}

// One fault does not keep others back, whatever it is.
func TestFaultsBesideEachOther(t *testing.T) {
	tests := map[string]struct {
		changes [][2]string
		want    []string
	}{
		"islands": {
			[][2]string{{"gpus       = 8", "gpus = 8\nisland_size = 3"}, {`["laion"]`, `[""]`}, {`working_directory = "terraform/aws"`, `var_files = [""]`}, {`near          = "block"`, `near = "blok"`}},
			[]string{"p.hcl:22: pool[eu-h100].node.island_size is 3", "p.hcl:18: pool[eu-h100].data is", "p.hcl:41: pool[eu-h100].terraform.var_files is", "p.hcl:40: pool[eu-h100].terraform.working_directory is", `p.hcl:14: pool[eu-h100].near is "blok": unknown`},
		},
		"a type": {
			[][2]string{{"gpus       = 8", "gpus = 8\nisland_size = []"}, {`["laion"]`, `[""]`}, {`working_directory = "terraform/aws"`, `var_files = [""]`}},
			[]string{"p.hcl:22: pool[eu-h100].node.island_size is []: Unsuitable", "p.hcl:18: pool[eu-h100].data is", "p.hcl:41: pool[eu-h100].terraform.var_files is", "p.hcl:40: pool[eu-h100].terraform.working_directory is"},
		},
		"a second pool's": {
			[][2]string{{`"eu-h100" {`, "\"eu-h100\" {}\npool \"eu-h100\" {"}, {"24.9", "-1"}},
			[]string{"p.hcl:7: pool[eu-h100].quota is 0", "p.hcl:8: pool[eu-h100] is \"eu-h100\": the pool is there twice", "p.hcl:34: pool[eu-h100].price.spot is -1"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			src := pools(t)
			for _, change := range test.changes {
				src = strings.Replace(src, change[0], change[1], 1)
			}
			_, err := ParseFor([]byte(src), "p.hcl", func(level string) string {
				if level == "block" {
					return ""
				}
				return "unknown"
			})
			if err == nil {
				t.Fatal("no fault")
			}
			for _, want := range test.want {
				if strings.Count(err.Error(), want) != 1 {
					t.Errorf("error = %v\nwant %q once", err, want)
				}
			}
		})
	}
}

func TestTwoPoolsInOneMap(t *testing.T) {
	second := strings.Replace(pools(t)[strings.Index(pools(t), "pool "):], "eu-h100", "us", 1)
	_, err := Parse([]byte(pools(t)+second), "")
	if err == nil || !strings.Contains(err.Error(), `pool "eu-h100" has the same working directory`) {
		t.Errorf("error = %v", err)
	}
	if _, err := Parse([]byte(pools(t)+strings.Replace(second, `"terraform/aws"`, "\"terraform/aws\"\nworkspace = \"us\"", 1)), ""); err != nil {
		t.Errorf("another workspace: %v", err)
	}
}

func TestCheckRefusesNaN(t *testing.T) {
	f, err := Parse([]byte(pools(t)), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	for _, price := range []float64{math.NaN(), math.Inf(1), -1} {
		f.Pools[0].OnDemand = price
		if err := f.Check(); err == nil || !strings.Contains(err.Error(), "price.on_demand") {
			t.Errorf("price %v: error = %v", price, err)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.hcl")); err == nil {
		t.Error("a file that is not there is read")
	}
	path := filepath.Join(t.TempDir(), "large.hcl")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, maxFile+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "are allowed") {
		t.Errorf("a file that is too large: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(pools(f))
	f.Add(`pool "a" { price { on_demand = 1/0 } }`)
	f.Add(`currency = null`)
	f.Fuzz(func(t *testing.T, src string) {
		got, err := Parse([]byte(src), "p.hcl")
		if err != nil {
			return
		}
		if err := got.Check(); err != nil {
			t.Fatalf("accepted, yet: %v", err)
		}
		for i := range got.Pools {
			if p := &got.Pools[i]; !(p.OnDemand > 0 || p.Spot > 0) || p.Quota < 1 || p.GPUs < 1 {
				t.Fatalf("accepted: %+v", p)
			}
		}
	})
}
