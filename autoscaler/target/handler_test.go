package target_test

import (
	"errors"
	"time"

	autoscaler "github.com/hashicorp/nomad-autoscaler/plugins/target"
	"github.com/hashicorp/nomad-autoscaler/sdk"
)

// handler is the autoscaler's policy handler (policy/handler.go of its v0.5.0), with
// the strategy's answer by a function and time by the caller.
type handler struct {
	target   autoscaler.Controller
	policy   map[string]string
	want     func() int64
	min, max int64
	cooldown time.Duration

	status   *sdk.TargetStatus
	outUntil time.Time
	scaled   int
	errs     []error
	noOps    []string
}

// evaluate is one turn of its loop.
func (h *handler) evaluate(now time.Time) {
	s, err := h.target.Status(h.policy)
	if err != nil {
		h.errs = append(h.errs, err)
		return
	}
	h.status = s
	if !s.Ready {
		return
	}
	action := sdk.ScalingAction{Count: h.want(), Reason: "test", Meta: map[string]any{"nomad_policy_id": "id"}}
	switch {
	case action.Count > s.Count:
		action.Direction = sdk.ScaleDirectionUp
	case action.Count < s.Count:
		action.Direction = sdk.ScaleDirectionDown
	}
	action.CapCount(h.min, h.max)
	if action.Direction == sdk.ScaleDirectionNone || action.Count == s.Count || now.Before(h.outUntil) {
		return
	}
	if h.policy["dry-run"] == "true" {
		action.SetDryRun()
	}
	err = h.target.Scale(action, h.policy)
	if noOp, ok := errors.AsType[*sdk.TargetScalingNoOpError](err); ok {
		h.noOps = append(h.noOps, noOp.Error())
		return
	}
	if err != nil {
		h.errs = append(h.errs, err)
		return
	}
	h.scaled++
	h.outUntil = now.Add(h.cooldown)
}
