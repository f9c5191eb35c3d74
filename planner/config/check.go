package config

import (
	"fmt"
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

var logLevels = []string{"trace", "debug", "info", "warn", "error"}

var (
	levelName     = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)
	metaKey       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	namespaceName = regexp.MustCompile(`^[a-zA-Z0-9-]{1,128}$`)
)

// The bounds of numbers and durations.
const (
	minDeadline    = time.Second
	maxDeadline    = 24 * time.Hour
	maxRetry       = 24 * time.Hour
	minTrouble     = time.Second
	maxTrouble     = 24 * time.Hour
	maxGatewayWait = 5 * time.Minute
	maxMaxWaiting  = 1 << 20
	maxAvoidFor    = 30 * 24 * time.Hour
	maxLevels      = 16
	maxMaxHolds    = 10000
)

// check finds every value that cannot be used.
func (l *loader) check(c *Config) {
	l.checkNomad(c.Nomad)
	l.checkListen(&c.Listen)
	l.checkManaged(c.Managed)
	if orders := queue.Orders(); !slices.Contains(orders, c.Policy.Order) {
		l.fault("policy.order", c.Policy.Order, suggest(c.Policy.Order, orders))
	}
	if c.Policy.MaxHolds < 1 || c.Policy.MaxHolds > maxMaxHolds {
		l.fault("policy.max_holds", c.Policy.MaxHolds, fmt.Sprintf("want 1 to %d; for none, set policy.order to %q", maxMaxHolds, queue.OrderBestEffort))
	}
	l.checkPreempt(c.Policy.Preempt)
	l.checkElastic(c.Policy.Elastic)
	l.checkBackfill(&c.Policy.Policy)
	l.checkReplace(c.Policy.Replace, c.LevelNames())
	l.checkOrders(&c.Policy.Policy)
	l.checkDefrag(c.Policy.Defrag)
	l.between("policy.half_life", c.Policy.HalfLife, 0, maxHalfLife)
	l.between("admission.deadline", c.Admission.Deadline, minDeadline, maxDeadline)
	l.between("admission.retry.initial", c.Admission.RetryInitial, time.Millisecond, maxRetry)
	l.between("admission.retry.max", c.Admission.RetryMax, time.Millisecond, maxRetry)
	if c.Admission.RetryInitial > c.Admission.RetryMax {
		l.fault("admission.retry.initial", c.Admission.RetryInitial.String(), "it must not be greater than admission.retry.max, which is "+c.Admission.RetryMax.String(), "admission.retry.max")
	}
	l.between("trouble.sick_gpu", c.Trouble.SickGPU, minTrouble, maxTrouble)
	l.between("trouble.missing_gpu", c.Trouble.MissingGPU, minTrouble, maxTrouble)
	l.between("gateway.wait", c.Gateway.Wait, 0, maxGatewayWait)
	if c.Barrier.MaxWaiting < 1 || c.Barrier.MaxWaiting > maxMaxWaiting {
		l.fault("barrier.max_waiting", c.Barrier.MaxWaiting, fmt.Sprintf("want 1 to %d", maxMaxWaiting))
	}
	l.between("barrier.avoid_for", c.Barrier.AvoidFor, 0, maxAvoidFor)
	l.checkLevels(c.Levels)
	l.checkFederation(c)
	l.checkReservations(c)
	l.checkBurst(c)
	if !namespaceName.MatchString(c.State.Namespace) {
		l.fault("state.namespace", c.State.Namespace, "want a Nomad namespace: letters, digits and dashes, at most 128")
	}
	if !slices.Contains(logLevels, c.LogLevel) {
		l.fault("log_level", c.LogLevel, suggest(c.LogLevel, logLevels))
	}
}

func (l *loader) between(key string, d, low, high time.Duration) {
	if d < low || d > high {
		l.fault(key, d.String(), fmt.Sprintf("want %s to %s", low, high))
	}
}

func (l *loader) checkNomad(n Nomad) {
	u, err := url.Parse(n.Address)
	switch {
	case err != nil:
		l.fault("nomad.address", n.Address, "want a URL like https://10.0.0.1:4646")
	case u.Scheme == "unix" && u.Path != "":
	case (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		l.fault("nomad.address", n.Address, "want a URL like https://10.0.0.1:4646, or unix:///path/to/socket")
	}
	if n.Token != "" && n.TokenFile != "" {
		l.fault("nomad.token_file", n.TokenFile, "nomad.token is there too; keep one of them")
	}
	if (n.CertFile == "") != (n.KeyFile == "") {
		l.fault("nomad.cert_file", n.CertFile, "cert_file and key_file go together; nomad.key_file is "+strconv.Quote(n.KeyFile), "nomad.key_file")
	}
}

func (l *loader) checkListen(c *Listen) {
	host, port, err := net.SplitHostPort(c.Address)
	number, portErr := strconv.Atoi(port)
	if err != nil || portErr != nil || number < 0 || number > 65535 {
		l.fault("listen.address", c.Address, `want HOST:PORT, like "127.0.0.1:4656" or "[::1]:4656"`)
		return
	}
	scheme := "http"
	if c.CertFile != "" {
		scheme = "https"
	}
	if c.Advertise == "" {
		if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
			l.fault("listen.advertise", "", fmt.Sprintf(`it is needed because listen.address %q is no address that others can dial: want a URL like "%s://10.0.0.5:%s"`, c.Address, scheme, port))
			return
		}
		c.Advertise = scheme + "://" + c.Address
	}
	u, err := url.Parse(c.Advertise)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		l.fault("listen.advertise", c.Advertise, fmt.Sprintf(`want a URL without a path, like "%s://10.0.0.5:4656"`, scheme))
	}
}

func (l *loader) checkManaged(m Managed) {
	if len(m.Devices) == 0 {
		l.fault("managed.devices", "[]", `want at least one device name, like "nvidia/gpu"`)
	}
	for _, d := range m.Devices {
		if d == "" || strings.Count(d, "/") > 2 || slices.Contains(strings.Split(d, "/"), "") {
			l.fault("managed.devices", d, `want TYPE, VENDOR/TYPE or VENDOR/TYPE/MODEL, like "nvidia/gpu"`)
		}
	}
	if len(m.Namespaces) == 0 {
		l.fault("managed.namespaces", "[]", `want at least one namespace, or "*" for all`)
	}
	l.checkPatterns("managed.namespaces", m.Namespaces)
	l.checkPatterns("managed.exempt_namespaces", m.ExemptNamespaces)
	l.checkPatterns("managed.exempt_node_pools", m.ExemptNodePools)
}

func (l *loader) checkPatterns(key string, patterns []string) {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			l.fault(key, p, `want a name, or a pattern with * and ?, like "team-*"`)
		}
	}
}

func (l *loader) checkLevels(levels []Level) {
	if len(levels) == 0 || len(levels) > maxLevels {
		l.fault("levels", fmt.Sprintf("%d names", len(levels)), fmt.Sprintf("want 1 to %d level names, outermost first", maxLevels))
	}
	names, keys := map[string]bool{}, map[string]string{}
	for _, level := range levels {
		key := "level[" + level.Name + "].meta"
		switch {
		case level.Name == model.LevelNode || level.Name == model.LevelIsland:
			l.fault("levels", level.Name, "node and island are always there, inside of the levels listed; leave them out")
		case !levelName.MatchString(level.Name):
			l.fault("levels", level.Name, "want small letters, digits and underscores, a letter first, at most 32")
		case names[level.Name]:
			l.fault("levels", level.Name, "the level is there twice; keep one")
		}
		if !metaKey.MatchString(level.Meta) {
			l.fault(key, level.Meta, "want a node meta key: letters, digits, and _ . -")
		} else if other, ok := keys[level.Meta]; ok && other != level.Name {
			l.fault(key, level.Meta, "level "+other+" has the same meta key; each needs its own")
		}
		names[level.Name], keys[level.Meta] = true, level.Name
	}
}
