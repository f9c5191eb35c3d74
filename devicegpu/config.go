package devicegpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/devicegpu/health"
	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// config is the plugin's configuration in the agent's plugin block.
type config struct {
	// Enabled false makes the plugin offer nothing.
	Enabled bool `codec:"enabled"`
	// Source says where the GPUs come from, see nvml.Sources.
	Source string `codec:"source"`
	// IgnoredGPUIDs are UUIDs that are not offered.
	IgnoredGPUIDs []string `codec:"ignored_gpu_ids"`
	// IgnoredXIDs are errors of the driver that make no GPU unhealthy, beside
	// health.ApplicationXIDs.
	IgnoredXIDs []int64 `codec:"ignored_xids"`
	// IgnoredFaults are health.Ignorable kinds that make no GPU unhealthy.
	IgnoredFaults []string `codec:"ignored_faults"`
	// FingerprintPeriod is how often the GPUs are looked at, as a duration.
	FingerprintPeriod string `codec:"fingerprint_period"`
	// NCCLTopology is "true", "false", or the folder of the files.
	NCCLTopology string `codec:"nccl_topology"`
	// MIG is migFixed or migAuto: whether idle GPUs are divided as the planner
	// says.
	MIG string `codec:"mig"`
	// PlannerAddresses are where it is asked; the files are for TLS.
	PlannerAddresses []string `codec:"planner_addresses"`
	PlannerCAFile    string   `codec:"planner_ca_file"`
	PlannerCertFile  string   `codec:"planner_cert_file"`
	PlannerKeyFile   string   `codec:"planner_key_file"`
	// Sharing says which GPUs several tasks use in turn.
	Sharing []sharing `codec:"sharing"`
	// MockSeed makes the UUIDs of simulated GPUs; "" is the host's name.
	MockSeed string `codec:"mock_seed"`
	// MockMIG divides simulated GPUs, see nvml.ParseMIG.
	MockMIG []string `codec:"mock_mig"`
	// MockFaults is the path of a file with simulated faults.
	MockFaults string `codec:"mock_faults"`
}

// configSchema describes config to Nomad. The keys enabled, ignored_gpu_ids
// and fingerprint_period are nomad-device-nvidia's, with its defaults.
func configSchema() *hclspec.Spec {
	attr := func(name, typ, fallback string) *hclspec.Spec {
		return hclspec.Default(hclspec.Attr(name, typ, false), hclspec.Literal(fallback))
	}
	return hclspec.Object(map[string]*hclspec.Spec{
		"enabled":            attr("enabled", "bool", "true"),
		"source":             attr("source", "string", `"nvml"`),
		"ignored_gpu_ids":    attr("ignored_gpu_ids", "list(string)", "[]"),
		"ignored_xids":       attr("ignored_xids", "list(number)", "[]"),
		"ignored_faults":     attr("ignored_faults", "list(string)", "[]"),
		"fingerprint_period": attr("fingerprint_period", "string", `"1m"`),
		"nccl_topology":      attr("nccl_topology", "string", `"true"`),
		"mig":                attr("mig", "string", `"fixed"`),
		"planner_addresses":  attr("planner_addresses", "list(string)", `["http://127.0.0.1:4656"]`),
		"planner_ca_file":    attr("planner_ca_file", "string", `""`),
		"planner_cert_file":  attr("planner_cert_file", "string", `""`),
		"planner_key_file":   attr("planner_key_file", "string", `""`),
		"sharing":            sharingSchema(),
		"mock_seed":          attr("mock_seed", "string", `""`),
		"mock_mig":           attr("mock_mig", "list(string)", "[]"),
		"mock_faults":        attr("mock_faults", "string", `""`),
	})
}

// defaultConfig is what configSchema makes of an empty block.
func defaultConfig() config {
	return config{Enabled: true, Source: nvml.SourceNVML, FingerprintPeriod: "1m", NCCLTopology: "true", MIG: migFixed, PlannerAddresses: []string{"http://127.0.0.1:4656"}}
}

// shortestPeriod keeps the plugin from asking the driver all the time.
const shortestPeriod = time.Second

// settings is a valid config.
type settings struct {
	enabled bool
	ignored map[string]bool
	period  time.Duration
	source  nvml.Spec

	// ncclDir is where NCCL's topology files are; "" for none.
	ncclDir string

	// divides: idle GPUs are divided as the planners say.
	divides  bool
	planners planners

	// sharing are the blocks about GPUs that are shared.
	sharing []sharing

	ignoredXIDs   []uint64
	ignoredFaults []health.Kind
}

// validate reports every fault at once, with key, value and what is allowed.
func (c config) validate() (settings, error) {
	s := settings{enabled: c.Enabled, ignored: map[string]bool{}, source: nvml.Spec{Source: c.Source, Seed: c.MockSeed, MIG: c.MockMIG, Faults: c.MockFaults}}
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	var err error
	if s.period, err = time.ParseDuration(c.FingerprintPeriod); err != nil || s.period < shortestPeriod {
		fail("fingerprint_period = %q: want a duration of at least %s, such as \"1m\"", c.FingerprintPeriod, shortestPeriod)
	}
	if !nvml.ValidSource(c.Source) {
		fail("source = %q: allowed are %s", c.Source, nvml.Sources())
	}
	for i, id := range c.IgnoredGPUIDs {
		if strings.TrimSpace(id) != id || id == "" {
			fail("ignored_gpu_ids[%d] = %q: want a GPU's UUID, such as \"GPU-5b0c…\"", i, id)
		}
		s.ignored[id] = true
	}
	switch {
	case c.NCCLTopology == "true":
		s.ncclDir = ncclDefaultDir
	case filepath.IsAbs(c.NCCLTopology):
		s.ncclDir = filepath.Clean(c.NCCLTopology)
	case c.NCCLTopology != "false":
		fail("nccl_topology = %q: want true, false or the absolute path of a folder", c.NCCLTopology)
	}
	s.divides = c.MIG == migAuto
	if s.source.Divides = s.divides; !s.divides && c.MIG != migFixed {
		fail("mig = %q: allowed are %s, %s", c.MIG, migFixed, migAuto)
	}
	s.planners = planners{c.PlannerAddresses, c.PlannerCAFile, c.PlannerCertFile, c.PlannerKeyFile}
	if s.divides {
		s.planners.validate(fail)
	}
	s.sharing = c.Sharing
	for i, block := range c.Sharing {
		block.validate(i, fail)
	}
	s.ignoredXIDs, s.ignoredFaults = c.ignored(fail)
	if _, err := nvml.ParseMIG(c.MockMIG); err != nil {
		errs = append(errs, err)
	}
	if c.Source == nvml.SourceNVML && (len(c.MockMIG) > 0 || c.MockFaults != "") {
		fail("mock_mig and mock_faults are for simulated GPUs, and source is %q", c.Source)
	}
	if s.source.Seed == "" {
		if s.source.Seed, err = os.Hostname(); err != nil && c.Source != nvml.SourceNVML {
			fail("mock_seed = \"\": the host's name, its default, cannot be read (%v): set a value that no other node has", err)
		}
	}
	return s, errors.Join(errs...)
}

// ignored are the XIDs and the faults that say nothing about a GPU's health.
func (c config) ignored(fail func(string, ...any)) (xids []uint64, faults []health.Kind) {
	for i, x := range c.IgnoredXIDs {
		if x < 1 || x > 1<<31 {
			fail("ignored_xids[%d] = %d: want the number of an XID, such as 94", i, x)
			continue
		}
		xids = append(xids, uint64(x))
	}
	for i, k := range c.IgnoredFaults {
		if !slices.Contains(health.Ignorable(), health.Kind(k)) {
			fail("ignored_faults[%d] = %q: allowed are %s", i, k, list(health.Ignorable()))
			continue
		}
		faults = append(faults, health.Kind(k))
	}
	return xids, faults
}

func list[T ~string](words []T) string {
	out := make([]string, 0, len(words))
	for _, w := range words {
		out = append(out, string(w))
	}
	return strings.Join(out, ", ")
}
