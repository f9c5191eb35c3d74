package product

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
)

// joiner is a trainer that shows what caravan join has left for it, and runs
// until it is told to fail.
const joiner = `set -a; . "$NOMAD_ALLOC_DIR/caravan/env"
echo "rank $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT, $CARAVAN_SOCKET"
while [ ! -e "$NOMAD_ALLOC_DIR/fail" ]; do sleep 0.1; done
exit 3`

// wrote is the start of what a task has written to its standard output.
func (p *product) wrote(a *api.Allocation, task string) string {
	r, err := p.nomad.AllocFS().Cat(a, "alloc/logs/"+task+".stdout.0", nil)
	if err != nil {
		return ""
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, 1<<16))
	if err != nil {
		return ""
	}
	return string(b)
}

// TestJoin starts a gang of plain raw_exec tasks together: ranks and addresses
// come from a prestart task, progress goes through a sidecar, and when one
// member fails, the other does not run on alone.
func TestJoin(t *testing.T) {
	onEach(t, func(t *testing.T, p *product) {
		p.must(0, "run", "--wait", "-var", "caravan="+filepath.Join(bin, caravanBin), "-var", "planners="+p.address, "-var", "trainer="+joiner, file(t, "join-prestart.hcl"))
		allocs := p.allocs("join-prestart")
		if len(allocs) != 2 {
			t.Fatalf("%d allocations, want 2", len(allocs))
		}
		line := regexp.MustCompile(`^rank (\d+) of 16 at (\S+), (\S+)\n$`)
		var ranks, meet, sockets []string
		for _, a := range allocs {
			p.until("the trainer starts with its gang", func() (bool, any) {
				m := line.FindStringSubmatch(p.wrote(a, "train"))
				if m == nil {
					return false, p.wrote(a, "train")
				}
				ranks, meet, sockets = append(ranks, m[1]), append(meet, m[2]), append(sockets, m[3])
				return true, nil
			})
		}
		slices.Sort(ranks)
		if diff := cmp.Diff([]string{"0", "8"}, ranks); diff != "" || meet[0] != meet[1] {
			t.Errorf("ranks (-want +got):\n%s\nthey meet at %v", diff, meet)
		}

		// Both clusters' clients run on this machine, so their files are here.
		p.until("the sidecar listens", func() (bool, any) {
			conn, err := net.Dial("unix", sockets[1])
			if err != nil {
				return false, err
			}
			defer conn.Close()
			_, err = io.WriteString(conn, "step=7 checkpoint\n")
			return err == nil, err
		})
		p.until("the planner knows of the step", func() (bool, any) {
			got, err := p.caravan.Progress(t.Context(), "default", "join-prestart")
			if err != nil || len(got.Gangs) != 1 {
				return false, err
			}
			for _, m := range got.Gangs[0].Members {
				if m.Alloc == allocs[1].ID && m.Step != nil && *m.Step == 7 && m.CheckpointStep != nil {
					return true, nil
				}
			}
			return false, got.Gangs
		})

		dir := filepath.Dir(regexp.MustCompile(`(?m): (/.*/env)$`).FindStringSubmatch(p.wrote(allocs[1], "join"))[1])
		if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "fail"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p.until("the other member is stopped too", func() (bool, any) {
			a, _, err := p.nomad.Allocations().Info(allocs[0].ID, nil)
			if err != nil {
				return false, err
			}
			return a.ClientTerminalStatus(), a.ClientStatus
		})
	})
}
