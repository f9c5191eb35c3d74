package devrun

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
)

// shower prints for people. It may be used by several goroutines.
type shower struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
	quiet bool
	fault error
	jobs  map[string]jobState
	alloc map[string]string
}

func (s *shower) printf(format string, args ...any) {
	if s.quiet || s.fault != nil {
		return
	}
	_, s.fault = fmt.Fprintf(s.out, format, args...)
}

func (s *shower) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

func (s *shower) step(at time.Duration, subject, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line(at, subject, text)
}

func (s *shower) line(at time.Duration, subject, text string) {
	s.printf("%7.2fs  %-12s %s\n", at.Seconds(), subject, text)
}

func (s *shower) sighting(x sighting, nodes map[string]string, islands islandMap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case x.job != nil:
		s.job(x)
	case x.alloc != nil:
		a := x.alloc
		state := a.client
		if a.desired != api.AllocDesiredStatusRun && a.holds() {
			state = "stopping"
		}
		if s.alloc == nil {
			s.alloc = map[string]string{}
		}
		if s.alloc[a.id] == state {
			return
		}
		s.alloc[a.id] = state
		used := map[string]bool{}
		for _, g := range a.gpus {
			used[islands.of[g]] = true
		}
		where := nodes[a.node]
		if where == "" { // it has joined just now
			where = "node " + a.node[:min(8, len(a.node))]
		}
		s.line(x.at, a.job, fmt.Sprintf("%-8s %s on %s, %s of %s", state, short(a.name), where, count(len(a.gpus), "GPU"), count(len(used), "island")))
	}
}

// job shows a registration; other changes of a job are not of interest.
func (s *shower) job(x sighting) {
	if s.jobs == nil {
		s.jobs = map[string]jobState{}
	}
	j := *x.job
	key := j.namespace + "/" + j.id
	if old, known := s.jobs[key]; known && old.modify == j.modify && old.version == j.version && old.stop == j.stop {
		return
	}
	s.jobs[key] = j
	what := "registered"
	switch {
	case j.stop:
		what = "stopped"
	case j.gated:
		what = "gated"
	case j.pinned:
		what = "pinned"
	}
	s.line(x.at, j.id, fmt.Sprintf("%-8s version %d", what, j.version))
}

// short is an allocation's name without its job's.
func short(name string) string {
	_, rest, found := strings.Cut(name, ".")
	if !found {
		return name
	}
	return rest
}

func (s *shower) report(r *Report, nodes map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range r.Gangs {
		s.printf("\n%s: %s\n", g.Job, g.Reason)
		for _, m := range g.Members {
			var sizes []string
			for _, island := range m.Islands {
				sizes = append(sizes, fmt.Sprint(len(island)))
			}
			s.printf("  rank %d  %-8s %s, by island %s: %s\n", m.Rank, nodes[m.Node], count(len(m.GPUs), "GPU"), strings.Join(sizes, "+"), abbreviate(m.GPUs))
		}
	}
	s.printf("\n")
	width := 0
	for _, c := range r.Checks {
		width = max(width, len(c.Name))
	}
	for _, c := range r.Checks {
		mark := "ok  "
		if !c.OK {
			mark = "FAIL"
		}
		s.printf("%s  %-*s  %s\n", mark, width, c.Name, c.Detail)
	}
	if r.Error != "" {
		s.printf("FAIL  %s\n", r.Error)
	}
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// abbreviate shortens UUIDs to what tells them apart.
func abbreviate(gpus []string) string {
	out := slices.Clone(gpus)
	for i, g := range out {
		out[i] = g[:min(len(g), len("GPU-")+8)]
	}
	return strings.Join(out, " ")
}

// tryIt says what to do with a cluster that stays up.
func (s *shower) tryIt(a Addresses) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.printf(`
The cluster stays up until Ctrl-C. In another terminal:

  export CARAVAN_ADDR=%s NOMAD_ADDR=%s
  caravan topology
  caravan run jobspecs/single-gpu.hcl
  caravan explain train-gang
  nomad job status            # through the gateway; Nomad itself is at %s
`, a.Caravan, a.Caravan, a.Nomad)
}
