package machine

import (
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// Action is something to be done. None of them may be waited for: those that
// take time are answered by an Input.
type Action interface{ action() }

type (
	// RunPreflight makes the image ready and looks at the node. CancelPreflight
	// ends it early.
	RunPreflight    struct{}
	CancelPreflight struct{}

	// Join makes one long poll at the barrier, after a wait that grows with
	// Failures, those in a row, and is at least Pause. There is one at a time. The
	// First ones of an attempt are short, so that the user soon learns what the
	// task waits for.
	Join struct {
		Attempt  int
		First    bool
		Failures int
		Pause    time.Duration
		Fault    *gangapi.NodeFault
	}
	// StopJoin ends the poll; its answer does not matter any more.
	StopJoin struct{}

	// Prepare makes the environment and the files for the user's code. The
	// membership is nil for a task that belongs to no gang.
	Prepare struct {
		Attempt    int
		Membership *rendezvous.Membership
	}
	// Launch starts the user's code, with what Prepare made.
	Launch struct{}
	// Clear kills all that an ended user's process left behind.
	Clear struct{}

	// Signal sends a signal, by name, to the user's process.
	Signal struct{ Name string }
	// AskCheckpoint takes note of the checkpoints that there are, and then sends
	// the checkpoint's signal.
	AskCheckpoint struct{ Serial int64 }
	// Kill kills every process of the user's code, also when Signal, Freeze, Thaw
	// or AskCheckpoint have not come to an end. The answer is Ended.
	Kill struct{}
	// Freeze and Thaw suspend and resume every process. They, Signal and
	// AskCheckpoint are done in the order in which they come.
	Freeze struct{}
	Thaw   struct{}

	// Report tells the planner how the task stands, by a long poll, and takes the
	// place of the Report before, which is broken off. It begins after a wait as
	// Join's.
	Report struct {
		Serial     int64
		Failures   int
		Pause      time.Duration
		State      gangapi.MemberState
		Epoch      string
		Generation int
		Seen       int64
		Exit       *gangapi.Exit
		// Soon asks for an answer within a short time.
		Soon bool
		// Final is the last one: it is told until it is heard, for a while, and its
		// answer does not matter.
		Final bool
	}
	// StopReports ends the poll.
	StopReports struct{}

	// Update replaces the files by another membership, and then sends the signal
	// for it, if there is one.
	Update struct {
		Membership *rendezvous.Membership
		Signal     string
	}

	// Tell tells the user something.
	Tell struct {
		Kind    EventKind
		Message string
		Details map[string]string
	}

	// Finish ends the task. It is the last action but for Tell and a final Report.
	Finish struct{ Exit Exit }
)

// Exit is how the task ended.
type Exit struct {
	Code, Signal int
	OOM          bool
	Cause        Cause
	// Fault is a sentence where the task failed for another reason than its
	// code's own exit.
	Fault string
	// Started is set when the user's code ran.
	Started bool
}

func (RunPreflight) action()    {}
func (CancelPreflight) action() {}
func (Join) action()            {}
func (StopJoin) action()        {}
func (Prepare) action()         {}
func (Launch) action()          {}
func (Clear) action()           {}
func (Signal) action()          {}
func (AskCheckpoint) action()   {}
func (Kill) action()            {}
func (Freeze) action()          {}
func (Thaw) action()            {}
func (Report) action()          {}
func (StopReports) action()     {}
func (Update) action()          {}
func (Tell) action()            {}
func (Finish) action()          {}
