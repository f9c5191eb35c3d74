package devicegpu

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
)

// Dividing GPUs: the plugin asks the planner how its GPUs are to be divided, does
// what is wanted of idle ones, and says in an attribute what became of it. It has
// the last word: a GPU that a task was given lately, or that a process uses, stays
// as it is.

const (
	// askEvery is how often the planner is asked, askPatience for how long an
	// answer is waited for.
	askEvery    = 5 * time.Second
	askPatience = 5 * time.Second
	// lately is for how long after a task was given a GPU it is not divided: its
	// processes may not have begun.
	lately = time.Minute
	// usedFirst is for how long a GPU is left alone that a process uses. It grows
	// usedGrows-fold with each time that it still does, up to usedMost.
	usedFirst = time.Minute
	usedGrows = 4
	usedMost  = 30 * time.Minute
	// maxWanted bounds what is read of an answer.
	maxWanted = 1 << 20
	// maxInstances is how many instances a GPU has at most.
	maxInstances = 7
)

// The values of mig.
const (
	migFixed = "fixed"
	migAuto  = "auto"
)

// wanted is how a GPU is to be divided.
type wanted struct {
	GPU      string   `json:"gpu"`
	Profiles []string `json:"profiles"`
}

// planners are where the planner may be.
type planners struct {
	addresses                 []string
	caFile, certFile, keyFile string
}

// validate reports every fault.
func (c planners) validate(fail func(string, ...any)) {
	if len(c.addresses) == 0 {
		fail("planner_addresses = []: want at least one address, such as \"http://127.0.0.1:4656\"")
	}
	for i, a := range c.addresses {
		u, err := url.Parse(a)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" || u.RawQuery != "" {
			fail("planner_addresses[%d] = %q: want http://HOST:PORT or https://HOST:PORT", i, a)
		}
	}
	if (c.certFile == "") != (c.keyFile == "") {
		fail("planner_cert_file = %q, planner_key_file = %q: want both or none", c.certFile, c.keyFile)
	}
}

// client is made anew for each question, so that certificates that were renewed
// count.
func (c planners) client() (*http.Client, error) {
	t := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if c.caFile != "" {
		pem, err := os.ReadFile(c.caFile)
		if err != nil {
			return nil, fmt.Errorf("read planner_ca_file: %w", err)
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read planner_ca_file: %s holds no PEM certificate", c.caFile)
		}
	}
	if c.certFile != "" {
		pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
		if err != nil {
			return nil, fmt.Errorf("read planner_cert_file: %w", err)
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: t, Timeout: askPatience}, nil
}

// ask asks the planners in order; the first that leads answers.
func (c planners) ask(ctx context.Context, gpus []string) ([]wanted, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, address := range c.addresses {
		list, err := askOne(ctx, client, address, gpus)
		if err == nil {
			return list, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func askOne(ctx context.Context, client *http.Client, address string, gpus []string) ([]wanted, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/caravan/v1/divisions?"+url.Values{"gpu": gpus}.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask the planner: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the planner: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the planner at %s: it answers %s", address, resp.Status)
	}
	var list []wanted
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxWanted)).Decode(&list); err != nil {
		return nil, fmt.Errorf("read the planner's answer: %w", err)
	}
	return list, nil
}

// obey asks the planner now and then until ctx ends, and does what is wanted.
func (p *Plugin) obey(ctx context.Context, cfg settings, changed chan<- struct{}) {
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	complaint := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		list, err := cfg.planners.ask(ctx, p.known())
		if text := fmt.Sprint(err); err != nil && text != complaint && ctx.Err() == nil {
			p.log.Warn("the planner does not say how GPUs are to be divided; they stay as they are", "reason", err)
			complaint = text
		} else if err == nil {
			complaint = ""
		}
		did := false
		for _, w := range list {
			did = p.divideAs(w) || did
		}
		if did {
			select {
			case changed <- struct{}{}:
			default: // a look is due anyway
			}
		}
	}
}

// known are the UUIDs of the GPUs, whole or divided; shared ones stay as they are.
func (p *Plugin) known() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for i, g := range p.inventory.Matrix.GPUs {
		if p.inventory.GPUs[i].Sharing == nil {
			out = append(out, g.UUID)
		}
	}
	return out
}

// divideAs divides a GPU as it is wanted, and notes what became of it. It is false
// if there was nothing to do.
func (p *Plugin) divideAs(w wanted) bool {
	p.mu.Lock()
	source := p.source
	at, ok := p.inventory.Matrix.Index(w.GPU)
	if !ok || p.cfg.ignored[w.GPU] || sameProfiles(p.inventory.GPUs[at], w.Profiles) {
		p.mu.Unlock()
		return false
	}
	since, given := p.reserved[w.GPU]
	why, again := "", time.Time{}
	switch {
	case len(w.Profiles) > maxInstances:
		why = fmt.Sprintf("%d instances: a GPU has at most %d", len(w.Profiles), maxInstances)
	case p.inventory.GPUs[at].Unhealthy != "":
		why = "it is unhealthy: " + p.inventory.GPUs[at].Unhealthy
	case p.inventory.GPUs[at].Sharing != nil:
		why = "it is shared by time slices, as the plugin's configuration has it"
	case given && p.now().Sub(since) < lately:
		why = fmt.Sprintf("a task was given it %s ago", p.now().Sub(since).Round(time.Second))
		again = since.Add(lately)
	}
	if why == "" {
		p.dividing[w.GPU] = true // from here on nobody is given it
	}
	p.mu.Unlock()
	if why == "" {
		err := nvml.Divide(source, w.GPU, w.Profiles)
		if err != nil {
			why = err.Error()
		}
		again = p.leaveAlone(w.GPU, errors.Is(err, nvml.ErrInUse))
	}
	p.scan()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.dividing, w.GPU)
	p.divisions[w.GPU] = topology.Division{GPU: w.GPU, Profiles: w.Profiles, At: p.now().UTC().Truncate(time.Second), Refused: clean(why), Again: wholeSecond(again)}
	if why != "" {
		p.log.Warn("a GPU is not divided as the planner wants it", "gpu", w.GPU, "profiles", strings.Join(w.Profiles, ","), "reason", why)
	} else {
		p.log.Info("a GPU is divided as the planner wants it", "gpu", w.GPU, "profiles", strings.Join(w.Profiles, ","))
	}
	return true
}

// leaveAlone says until when a GPU is left alone that is in use, each time longer;
// zero if it is not in use.
func (p *Plugin) leaveAlone(gpu string, used bool) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !used {
		delete(p.inUse, gpu)
		return time.Time{}
	}
	p.inUse[gpu] = min(max(usedFirst, usedGrows*p.inUse[gpu]), usedMost)
	return p.now().Add(p.inUse[gpu])
}

// wholeSecond is the first whole second that is not before t.
func wholeSecond(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Add(time.Second - 1).Truncate(time.Second)
}

// sameProfiles reports whether a GPU is divided so already.
func sameProfiles(g nvml.GPU, want []string) bool {
	if g.Divided() != (len(want) > 0) {
		return false
	}
	var have []string
	for _, inst := range g.Instances {
		if inst.Gone == 0 {
			have = append(have, inst.Profile)
		}
	}
	return slices.Equal(slices.Sorted(slices.Values(have)), slices.Sorted(slices.Values(want)))
}

// beingDivided says why GPUs cannot be given to a task, and else notes that they
// are.
func (p *Plugin) beingDivided(inv nvml.Inventory, of []unit) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range of {
		if uuid := inv.Matrix.GPUs[u.gpu].UUID; p.dividing[uuid] {
			return fmt.Errorf("GPU %q is being divided; the task is to be placed again", uuid)
		}
	}
	for _, u := range of {
		p.reserved[inv.Matrix.GPUs[u.gpu].UUID] = p.now()
	}
	return nil
}

// addDivisions tells in each group what became of divisions.
func (p *Plugin) addDivisions(groups []device.Group) error {
	list := make([]topology.Division, 0, len(p.divisions))
	for _, gpu := range slices.Sorted(maps.Keys(p.divisions)) {
		list = append(list, p.divisions[gpu])
	}
	encoded, err := topology.EncodeDivisions(list)
	if err != nil {
		return err
	}
	for i := range groups {
		groups[i].Attributes[topology.AttrDivisions] = attr.String(encoded)
	}
	return nil
}
