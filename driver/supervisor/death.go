package supervisor

import (
	"context"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// TellDeath tells the planner, in the place of a supervisor that has died, that
// its member's code was killed, so that the others need not wait for the task's
// restart to learn it. Nothing is told where no code can have run.
func (c *Client) TellDeath(ctx context.Context) error {
	if c.start.Role != RoleRank {
		return nil
	}
	var m rendezvous.Membership
	known, err := readJSON(filepath.Join(c.start.Files.Dir, fileMembership), &m)
	if err != nil || !known {
		return err
	}
	planner, err := newPlannerClient(c.start.Barrier)
	if err != nil {
		return fmt.Errorf("tell of the supervisor's death: %w", err)
	}
	defer planner.Close()
	_, err = planner.Report(ctx, gangapi.ReportRequest{
		Run: c.start.Run, State: gangapi.MemberExited, Epoch: m.Epoch, Generation: m.Generation,
		Exit: &gangapi.Exit{Signal: int(unix.SIGKILL)},
	})
	if err != nil {
		return fmt.Errorf("tell of the supervisor's death: %w", err)
	}
	return nil
}
