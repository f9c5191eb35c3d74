package jobspecs

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// elasticGang keeps the membership files of a gang of local processes.
type elasticGang struct {
	t          *testing.T
	dir        string
	generation int
}

func (g *elasticGang) file(alloc string) string { return filepath.Join(g.dir, alloc+".json") }

// set replaces the files of these members, as the supervisors would.
func (g *elasticGang) set(allocs ...string) {
	g.t.Helper()
	g.generation++
	m := rendezvous.Membership{Epoch: "e", Generation: g.generation, Namespace: "default", Job: "train", Min: 1, Max: 3,
		MasterAddr: "127.0.0.1", MasterPort: freePort(g.t)}
	for i, a := range allocs {
		m.Members = append(m.Members, rendezvous.Member{Group: "trainer", Index: i, Alloc: a, Node: a, Address: "127.0.0.1", Processes: 1})
	}
	if err := rendezvous.Validate(m); err != nil {
		g.t.Fatal(err)
	}
	b, err := rendezvous.JSON(m)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, a := range allocs {
		if err := os.WriteFile(g.file(a)+".tmp", b, 0o600); err != nil {
			g.t.Fatal(err)
		}
		if err := os.Rename(g.file(a)+".tmp", g.file(a)); err != nil {
			g.t.Fatal(err)
		}
	}
}

func (g *elasticGang) start(alloc string) *rank {
	g.t.Helper()
	return start(g.t, []string{"NOMAD_ALLOC_ID=" + alloc, "CARAVAN_MEMBERSHIP=" + g.file(alloc)},
		"--dir", filepath.Join(g.dir, "ckpt"), "--steps", "300", "--every", "100000", "--pause", "0.01")
}

// A gang grows, and loses its first rank, while the others run on: they are
// the same processes to the end, and no step is lost.
func TestTrainSurvivesResize(t *testing.T) {
	t.Parallel()
	g := &elasticGang{t: t, dir: t.TempDir()}
	g.set("a", "b")
	a, b := g.start("a"), g.start("b")
	a.says(`^step 1 `)

	// One that is late to hear of it is taken along by the others.
	g.set("a", "b", "c")
	c := g.start("c")
	a.signal(syscall.SIGHUP)
	for _, r := range []*rank{a, b} {
		r.says(`^the gang has 3 ranks now, not 2$`)
	}
	if at := c.says(`^rank 2 of 3 is at step (\d+)$`)[1]; at == "0" {
		t.Errorf("the new member starts at step %s", at)
	}

	a.signal(syscall.SIGKILL)
	for _, r := range []*rank{b, c} {
		r.says(`^waits for the gang: `)
	}
	g.set("b", "c")
	b.signal(syscall.SIGHUP)
	c.signal(syscall.SIGHUP)
	_, want := b.done()
	if _, got := c.done(); got != want {
		t.Errorf("weights %s and %s", want, got)
	}
	b.says(`^rank 0 of 2 is at step [1-9]\d*$`)
}
