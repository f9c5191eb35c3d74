package gateway

import (
	"cmp"
	"net/http"
	"strings"
	"sync"

	"github.com/hashicorp/nomad/api"
)

// Locator tells in which region of a federation something is; "" where that is not
// known.
type Locator interface {
	// Job is where a job is that was submitted in the region.
	Job(region, namespace, id string) string
	// Alloc and Node are the regions of what has an ID that begins so, if there is
	// one such region only.
	Alloc(prefix string) string
	Node(prefix string) string
}

// Regions is the gateway of a federation: one Gateway for each region, and requests
// that name none go to the own one, except for what is read of a job, an allocation
// or a node that is elsewhere. So a job that was sent to another region shows where
// it was submitted as if it ran there.
type Regions struct {
	own     string
	byName  map[string]*Gateway
	locator Locator
	evals   movedEvals
}

// NewRegions joins gateways, by the names of their regions. own is the region whose
// Nomad they all talk to.
func NewRegions(own string, gateways map[string]*Gateway, locator Locator) *Regions {
	f := &Regions{own: own, byName: gateways, locator: locator}
	for _, g := range gateways {
		g.moved = f.evals.put
	}
	return f
}

// ServeHTTP serves one request of Nomad's API.
func (f *Regions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	region := r.URL.Query().Get("region")
	if region == "" {
		if region = f.of(r); region != "" && region != f.own {
			r = inRegion(r, region)
		}
	}
	g := f.byName[region]
	if g == nil {
		g = f.byName[f.own]
	}
	g.ServeHTTP(w, r)
}

// inRegion is the request to another region.
func inRegion(r *http.Request, region string) *http.Request {
	out := r.Clone(r.Context())
	q := out.URL.Query()
	q.Set("region", region)
	out.URL.RawQuery = q.Encode()
	return out
}

// of is the region of what a request is about that names none; "" is the own one.
func (f *Regions) of(r *http.Request) string {
	path, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	if !ok {
		return ""
	}
	kind, rest, _ := strings.Cut(path, "/")
	read := r.Method == http.MethodGet
	switch kind {
	case "job":
		if !read {
			return "" // where it was submitted it is changed, and stopped
		}
		for _, s := range subResources {
			if id, ok := strings.CutSuffix(rest, s); ok {
				rest = id
				break
			}
		}
		return f.locator.Job(f.own, cmp.Or(r.URL.Query().Get("namespace"), api.DefaultNamespace), rest)
	case "allocations":
		if prefix := r.URL.Query().Get("prefix"); read && prefix != "" {
			return f.locator.Alloc(prefix)
		}
	case "allocation":
		id, _, _ := strings.Cut(rest, "/")
		return f.locator.Alloc(id)
	case "client":
		return f.locator.Alloc(clientAlloc(rest))
	case "node":
		if id, _, _ := strings.Cut(rest, "/"); read {
			return f.locator.Node(id)
		}
	case "evaluation":
		if id, _, _ := strings.Cut(rest, "/"); read {
			return f.evals.get(id)
		}
	}
	return ""
}

// clientAlloc is the allocation that a request to a client is about, by what
// follows /v1/client/; "" if it is about none.
func clientAlloc(rest string) string {
	parts := strings.Split(rest, "/")
	switch {
	case len(parts) == 3 && parts[0] == "fs":
		return parts[2]
	case len(parts) == 3 && parts[0] == "allocation":
		return parts[1]
	}
	return ""
}

// maxMovedEvals bounds how many evaluations are remembered.
const maxMovedEvals = 4096

// movedEvals are evaluations of other regions that registrations were answered
// with, the latest of them.
type movedEvals struct {
	mu     sync.Mutex
	region map[string]string
	order  []string
}

func (m *movedEvals) put(id, region string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.region == nil {
		m.region = map[string]string{}
	}
	if _, known := m.region[id]; !known {
		m.order = append(m.order, id)
	}
	m.region[id] = region
	if len(m.order) > maxMovedEvals {
		delete(m.region, m.order[0])
		m.order = m.order[1:]
	}
}

func (m *movedEvals) get(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.region[id]
}
