package config

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/agext/levenshtein"
)

// set copies a value that the file gives.
func set[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}

// merge puts the file's values over the defaults.
func (l *loader) merge(c *Config, f *fileConfig) {
	l.mergeNomad(c, f.Nomad)
	l.mergeListen(c, f.Listen)
	if m := f.Managed; m != nil {
		set(&c.Managed.Devices, m.Devices)
		set(&c.Managed.Namespaces, m.Namespaces)
		set(&c.Managed.ExemptNamespaces, m.ExemptNamespaces)
		set(&c.Managed.ExemptNodePools, m.ExemptNodePools)
	}
	l.mergePolicy(c, f.Policy)
	if a := f.Admission; a != nil {
		l.duration(&c.Admission.Deadline, a.Deadline, "admission.deadline")
		if a.Retry != nil {
			l.duration(&c.Admission.RetryInitial, a.Retry.Initial, "admission.retry.initial")
			l.duration(&c.Admission.RetryMax, a.Retry.Max, "admission.retry.max")
		}
	}
	if f.Trouble != nil {
		l.duration(&c.Trouble.SickGPU, f.Trouble.SickGPU, "trouble.sick_gpu")
		l.duration(&c.Trouble.MissingGPU, f.Trouble.MissingGPU, "trouble.missing_gpu")
	}
	l.mergeLevels(c, f)
	l.mergeRegions(c, f.Region)
	if f.Federation != nil {
		set(&c.Federation, f.Federation.Regions)
		l.federated = true
	}
	l.mergeBurst(c, f.Burst)
	set(&l.topologyFile, f.TopologyFile)
	l.mergeQueues(c, f.Queue)
	l.mergeReservations(c, f.Reservation)
	set(&l.queuesFile, f.QueuesFile)
	if f.State != nil {
		set(&c.State.Namespace, f.State.Namespace)
	}
	if f.Gateway != nil {
		l.duration(&c.Gateway.Wait, f.Gateway.Wait, "gateway.wait")
	}
	if f.Barrier != nil {
		set(&c.Barrier.MaxWaiting, f.Barrier.MaxWaiting)
		l.duration(&c.Barrier.AvoidFor, f.Barrier.AvoidFor, "barrier.avoid_for")
	}
	set(&c.ObserveOnly, f.ObserveOnly)
	set(&c.LogLevel, f.LogLevel)
}

func (l *loader) mergeNomad(c *Config, n *fileNomad) {
	if n == nil {
		return
	}
	set(&c.Nomad.Address, n.Address)
	set(&c.Nomad.Region, n.Region)
	set(&c.Nomad.Token, n.Token)
	set(&c.Nomad.TokenFile, n.TokenFile)
	set(&c.Nomad.CAFile, n.CAFile)
	set(&c.Nomad.CAPath, n.CAPath)
	set(&c.Nomad.CertFile, n.CertFile)
	set(&c.Nomad.KeyFile, n.KeyFile)
	set(&c.Nomad.TLSServerName, n.TLSServerName)
	set(&c.Nomad.TLSSkipVerify, n.TLSSkipVerify)
}

func (l *loader) mergePolicy(c *Config, f *filePolicy) {
	if f == nil {
		return
	}
	set(&c.Policy.Order, f.Order)
	set(&c.Policy.Strict, f.Strict)
	set(&c.Policy.MaxHolds, f.MaxHolds)
	l.mergePreempt(&c.Policy.Preempt, f.Preempt)
	l.mergeElastic(&c.Policy.Elastic, f.Elastic)
	set(&c.Policy.Forecasts, f.Forecasts)
	l.mergeBackfill(&c.Policy.Backfill, f.Backfill)
	l.mergeReplace(&c.Policy.Replace, f)
	l.mergeOrders(&c.Policy.Policy, f)
	l.mergeDefrag(&c.Policy.Defrag, f.Defrag)
	l.duration(&c.Policy.HalfLife, f.HalfLife, "policy.half_life")
}

func (l *loader) mergeListen(c *Config, f *fileListen) {
	c.Listen.Advertise = ""
	if f == nil {
		return
	}
	set(&c.Listen.Address, f.Address)
	set(&c.Listen.Advertise, f.Advertise)
	if t := f.TLS; t != nil {
		set(&c.Listen.CertFile, t.CertFile)
		set(&c.Listen.KeyFile, t.KeyFile)
		set(&c.Listen.ClientCAFile, t.ClientCAFile)
		if c.Listen.CertFile == "" {
			l.fault("listen.tls.cert_file", "", "a tls block needs the path of a PEM certificate")
		}
		if c.Listen.KeyFile == "" {
			l.fault("listen.tls.key_file", "", "a tls block needs the path of a PEM key")
		}
	}
}

func (l *loader) mergeLevels(c *Config, f *fileConfig) {
	if f.Levels != nil {
		c.Levels = nil
		for _, name := range *f.Levels {
			c.Levels = append(c.Levels, Level{Name: name, Meta: MetaPrefix + name})
		}
	}
	seen := map[string]bool{}
	for i, fl := range f.Level {
		key := "level[" + fl.Name + "]"
		at := slices.IndexFunc(c.Levels, func(x Level) bool { return x.Name == fl.Name })
		place := fmt.Sprintf("level[#%d]", i)
		switch {
		case seen[fl.Name]:
			l.faultText(place, fmt.Sprintf("%s is there twice: keep one", key))
		case at < 0:
			l.faultText(place, fmt.Sprintf("%s is no level: %s; or add it to levels", key, suggest(fl.Name, c.LevelNames())), "levels")
		default:
			set(&c.Levels[at].Meta, fl.Meta)
		}
		seen[fl.Name] = true
	}
}

// suggest names the closest of the candidates, and all of them.
func suggest(name string, candidates []string) string {
	text := "allowed are " + strings.Join(candidates, ", ")
	if best := nearest(name, candidates); best != "" {
		text = fmt.Sprintf("did you mean %q? ", best) + text
	}
	return text
}

// nearest is the candidate that a name was meant to be, "" if it is like none.
func nearest(name string, candidates []string) string {
	best, bestDistance := "", 3
	for _, c := range candidates {
		if d := levenshtein.Distance(name, c, nil); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

const wantDuration = `want a duration like "90s", "5m" or "1h30m"`

func (l *loader) duration(dst *time.Duration, src *string, key string) {
	l.durationAt(dst, src, key, key)
}

// durationAt reads a duration that stands at a place, where the key alone does not
// say that: several blocks may have one name.
func (l *loader) durationAt(dst *time.Duration, src *string, key, place string) {
	if src == nil {
		return
	}
	d, err := time.ParseDuration(*src)
	if err != nil {
		l.faultText(place, fmt.Sprintf("%s is %q: %s", key, *src, wantDuration))
		l.unread[key], l.unread[place] = true, true
		return
	}
	*dst = d
}

// environment puts the environment's values over the file's.
func (l *loader) environment(c *Config, env func(string) (string, bool)) {
	l.fromEnv = map[string]string{}
	if env == nil {
		env = func(string) (string, bool) { return "", false }
	}
	keys := map[string]struct {
		key string
		put func(string) bool
	}{
		"CARAVAN_LISTEN":        {"listen.address", text(&c.Listen.Address)},
		"CARAVAN_ADVERTISE":     {"listen.advertise", text(&c.Listen.Advertise)},
		"CARAVAN_LOG_LEVEL":     {"log_level", text(&c.LogLevel)},
		"CARAVAN_TOPOLOGY_FILE": {"topology_file", text(&l.topologyFile)},
		"CARAVAN_QUEUES_FILE":   {"queues_file", text(&l.queuesFile)},
		"CARAVAN_STATE":         {"state.namespace", text(&c.State.Namespace)},
		"CARAVAN_ORDER":         {"policy.order", text(&c.Policy.Order)},
		"CARAVAN_OBSERVE_ONLY": {"observe_only", func(s string) bool {
			b, err := strconv.ParseBool(s)
			c.ObserveOnly = b
			return err == nil
		}},
	}
	names := make([]string, 0, len(keys))
	for name := range keys {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		value, ok := env(name)
		if !ok || value == "" {
			continue
		}
		l.fromEnv[keys[name].key] = name
		if !keys[name].put(value) {
			l.fault(keys[name].key, value, "want true or false")
		}
	}
	l.nomadEnvironment(c, env)
}

func text(dst *string) func(string) bool {
	return func(s string) bool { *dst = s; return true }
}

// nomadEnvironment fills what the file leaves out from Nomad's own variables,
// so that a machine set up for the nomad command needs no nomad block.
func (l *loader) nomadEnvironment(c *Config, env func(string) (string, bool)) {
	for name, f := range map[string]struct {
		key string
		dst *string
	}{
		"NOMAD_ADDR":            {"nomad.address", &c.Nomad.Address},
		"NOMAD_REGION":          {"nomad.region", &c.Nomad.Region},
		"NOMAD_TOKEN":           {"nomad.token", &c.Nomad.Token},
		"NOMAD_CACERT":          {"nomad.ca_file", &c.Nomad.CAFile},
		"NOMAD_CAPATH":          {"nomad.ca_path", &c.Nomad.CAPath},
		"NOMAD_CLIENT_CERT":     {"nomad.cert_file", &c.Nomad.CertFile},
		"NOMAD_CLIENT_KEY":      {"nomad.key_file", &c.Nomad.KeyFile},
		"NOMAD_TLS_SERVER_NAME": {"nomad.tls_server_name", &c.Nomad.TLSServerName},
	} {
		inFile := l.has(f.key)
		if value, ok := env(name); ok && value != "" && !inFile {
			if name == "NOMAD_TOKEN" && c.Nomad.TokenFile != "" {
				continue
			}
			*f.dst = value
			l.fromEnv[f.key] = name
		}
	}
	if value, ok := env("NOMAD_SKIP_VERIFY"); ok && value != "" && !l.has("nomad.tls_skip_verify") {
		b, err := strconv.ParseBool(value)
		if err != nil {
			l.fromEnv["nomad.tls_skip_verify"] = "NOMAD_SKIP_VERIFY"
			l.fault("nomad.tls_skip_verify", value, "want true or false")
		}
		c.Nomad.TLSSkipVerify = b
	}
}
