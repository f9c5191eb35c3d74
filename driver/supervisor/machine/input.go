package machine

import (
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
)

// Input is something that happened.
type Input interface{ input() }

type (
	// Tick says that the time of Next has come.
	Tick struct{}

	// PreflightDone answers RunPreflight, also when it was cancelled.
	PreflightDone struct {
		// Fault is nil for a fit node. Err says why the task cannot start at all,
		// whatever the node is like.
		Fault *gangapi.NodeFault
		Err   error
	}

	// JoinAnswered answers Join. Err is set where no planner gave an answer that
	// could be used.
	JoinAnswered struct {
		Attempt int
		Answer  gangapi.JoinAnswer
		Err     error
	}

	// Prepared answers Prepare.
	Prepared struct {
		Attempt int
		Err     error
	}

	// Launched answers Launch.
	Launched struct {
		PID int
		Err error
	}

	// Ended says that the user's process has ended; it comes after Launched.
	Ended struct {
		Code, Signal int
		OOM          bool
	}

	// Cleared answers Clear: nothing of the user's code is left, or Err says what
	// could not be killed.
	Cleared struct{ Err error }

	// ReportAnswered answers Report, unless another Report came after it.
	ReportAnswered struct {
		Serial int64
		Answer gangapi.ReportAnswer
		Err    error
		// At is the earliest time at which the planner can have said so.
		At time.Duration
	}

	// Updated answers Update.
	Updated struct {
		Epoch      string
		Generation int
		Err        error
	}

	// Asked answers AskCheckpoint.
	Asked struct {
		Serial int64
		Err    error
	}

	// CheckpointSeen says that there is a new complete checkpoint.
	CheckpointSeen struct {
		// Answers is the Serial of the last AskCheckpoint after which it was
		// begun, 0 where there is none.
		Answers int64
		// Step is nil where the user's code does not say.
		Step *int64
		Path string
	}

	// Frozen answers Freeze and Thaw: whether the user's code stands still now.
	Frozen struct {
		Suspended bool
		Err       error
	}

	// AgentSeen says that the local agent had a leader among Nomad's servers at
	// the time At.
	AgentSeen struct{ At time.Duration }

	// StopAsked asks to stop the task.
	StopAsked struct {
		// Timeout is how long the user's code may live on.
		Timeout time.Duration
		// Signal asks it to end; "" is the task's own.
		Signal string
	}

	// SuspendAsked and ResumeAsked come from the node itself; the planner's words
	// come as orders.
	SuspendAsked struct{}
	ResumeAsked  struct{}
)

func (Tick) input()           {}
func (PreflightDone) input()  {}
func (JoinAnswered) input()   {}
func (Prepared) input()       {}
func (Launched) input()       {}
func (Ended) input()          {}
func (Cleared) input()        {}
func (ReportAnswered) input() {}
func (Updated) input()        {}
func (Asked) input()          {}
func (CheckpointSeen) input() {}
func (Frozen) input()         {}
func (AgentSeen) input()      {}
func (StopAsked) input()      {}
func (SuspendAsked) input()   {}
func (ResumeAsked) input()    {}
