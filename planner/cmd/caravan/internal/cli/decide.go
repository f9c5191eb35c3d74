package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/recording"
)

// decided is one decision as `decide` prints it: the plan's, with lists that
// are there even when they are empty, so that programs need no special cases.
type decided struct {
	Namespace string         `json:"namespace,omitempty"`
	Job       string         `json:"job"`
	Action    model.Action   `json:"action"`
	Reason    string         `json:"reason"`
	Detail    model.Detail   `json:"detail,omitzero"`
	Members   []model.Member `json:"members"`
}

func (a *app) decideCommand() *cobra.Command {
	var named, strict = config.DefaultOrder, false
	var whole bool
	cmd := &cobra.Command{
		Use:   "decide SNAPSHOT",
		Short: "Decide on a snapshot of a cluster, offline",
		Long: `Decide reads a snapshot (docs/snapshot.md describes it) and prints what the
planner would decide on it: one decision for each job that waits, then who gives
way and which elastic gangs get another size. With --json it prints the decisions,
with --plan all of the plan, as JSON. SNAPSHOT may be - for standard input. A
planner's own snapshot is at /caravan/v1/snapshot.

It decides by the policy of a planner that nobody has configured, but for its order
and --strict, or by that of a file with a policy block.`,
		Example: "  caravan decide --json cluster.json\n  caravan decide --policy policy.hcl cluster.json\n  curl -s $CARAVAN_ADDR/caravan/v1/snapshot | caravan decide -",
		Args:    args(1, 1, "one snapshot"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			policy, err := a.policyNamed(config.Default().Policy.Policy, named)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("strict") {
				policy.Strict = strict
			}
			return a.decide(argv[0], policy, whole)
		},
	}
	cmd.Flags().StringVar(&named, "policy", named, "the queue's `order`: "+strings.Join(queue.Orders(), ", ")+"; or a file.hcl")
	cmd.Flags().BoolVar(&strict, "strict", false, "nobody passes a job that waits for room")
	cmd.Flags().BoolVar(&whole, "plan", false, "print the whole plan, as JSON")
	return cmd
}

// policyNamed is a policy with another order, or the one of a file with a policy block,
// in which nothing is said of when nodes are bought.
func (a *app) policyNamed(policy core.Policy, named string) (core.Policy, error) {
	if !strings.HasSuffix(named, ".hcl") {
		policy.Order = named
		return policy, nil
	}
	src, err := readFile(a.env, named)
	if err != nil {
		return policy, fmt.Errorf("read policy: %w", err)
	}
	own, err := config.ParsePolicy(src, named, config.Default().Levels)
	own.Burst = policy.Burst
	return own.Policy, err
}

// isRecording reports whether a file is what caravan snapshot saves.
func isRecording(src []byte) bool {
	_, bare, err := recording.Decode(src)
	return err == nil && !bare
}

func (a *app) decide(name string, policy core.Policy, whole bool) error {
	if err := policy.Validate(); err != nil {
		return usage("%w", err)
	}
	src, err := readAtMost(a.env, name, maxSnapshot)
	if err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	snapshot, err := model.DecodeSnapshot(bytes.NewReader(src))
	if err != nil && isRecording(src) {
		return fmt.Errorf("%s: it is what caravan snapshot saved, with a policy and a plan; decide on it again with: caravan replay %s", name, name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	plan, err := core.Decide(snapshot, policy)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if whole {
		a.json = true
		return a.print(plan, nil)
	}
	out := []decided{}
	for _, d := range plan.Decisions {
		members := append([]model.Member{}, d.Members...)
		for i := range members {
			if members[i].GPUs == nil {
				members[i].GPUs = []string{}
			}
		}
		out = append(out, decided{d.Namespace, d.Job, d.Action, d.Reason, d.Detail, members})
	}
	return a.print(out, func(w io.Writer, s render.Style) error {
		s.Nodes = map[string]string{}
		for _, n := range snapshot.Nodes {
			s.Nodes[n.ID] = n.Name
		}
		if err := render.Decisions(w, s, plan.Decisions); err != nil {
			return err
		}
		if err := render.Preemptions(w, s, plan.Preemptions); err != nil {
			return err
		}
		return render.Resizes(w, s, plan.Resizes)
	})
}
