// Package doctor examines a cluster for what keeps Caravan from working, or
// will: device plugins that are missing or doubled, rights that the planner's
// token lacks, Nomad's own preemption, leftovers. It changes nothing: where a
// right can only be told by using it, it asks for something that Nomad must
// refuse for another reason.
package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
)

// Patient is what is examined.
type Patient struct {
	// Client reaches Nomad with the token whose rights matter, the planner's.
	Client *api.Client
	Config *config.Config
	// View is the cluster; nil where it cannot be read, and ViewError says why.
	View      *observe.View
	ViewError error
	// Leads says that a planner leads, and where, as far as a planner that asks
	// knows it; nil where none asks.
	Leads func() (address string, ok bool)
	// Keys reads the keys that Nomad signs workload identities with, and says from
	// where and how many can be used; nil where no members are served.
	Keys func(context.Context) (url string, keys int, err error)
	// Trust is what the planner has found of its members' identities; nil where
	// none asks.
	Trust func() Trust
	// Now is the clock.
	Now func() time.Time
	// Skew is how far Nomad's clock is ahead of this machine's, to the second;
	// false while it is not known.
	Skew func() (time.Duration, bool)
}

// Examine makes every check, each as far as it can be made.
func Examine(ctx context.Context, p Patient) []httpapi.Check {
	x := &examination{Patient: p, ctx: ctx}
	if !x.nomad() {
		return x.checks
	}
	x.clock()
	x.connections()
	x.rights()
	x.identities()
	if p.View == nil {
		x.fail("cluster", "correct what the other checks say, and look again", "the cluster cannot be read: %v", p.ViewError)
		return x.checks
	}
	x.ok("cluster", "%s, %s, %s", count(len(p.View.Nodes), "node"), count(x.gpus(), "managed GPU"), count(len(p.View.Managed), "managed job"))
	x.versions()
	x.plugins()
	x.doubled()
	x.topology()
	x.health()
	x.gate()
	x.preemption()
	x.leader()
	x.leftovers()
	x.warnings()
	return x.checks
}

// Rights looks only at what the planner's token may do, by its policies where
// they can be read. It needs no View.
func Rights(ctx context.Context, p Patient) []httpapi.Check {
	x := &examination{Patient: p, ctx: ctx, quiet: true}
	x.rights()
	return x.checks
}

// examination gathers the checks of one patient.
type examination struct {
	Patient
	ctx    context.Context
	checks []httpapi.Check
	// quiet: nothing is tried that policies tell, since Nomad logs as an error
	// what it refuses.
	quiet bool
	// seesLocks: the token is shown the locks of Variables.
	seesLocks bool
}

func (x *examination) add(name string, status httpapi.CheckStatus, do, format string, args ...any) {
	x.checks = append(x.checks, httpapi.Check{Name: name, Status: status, Detail: fmt.Sprintf(format, args...), Do: do})
}

func (x *examination) ok(name, format string, args ...any) {
	x.add(name, httpapi.CheckOK, "", format, args...)
}

func (x *examination) warn(name, do, format string, args ...any) {
	x.add(name, httpapi.CheckWarn, do, format, args...)
}

func (x *examination) fail(name, do, format string, args ...any) {
	x.add(name, httpapi.CheckFail, do, format, args...)
}

// query is a read in a namespace.
func (x *examination) query(namespace string) *api.QueryOptions {
	return (&api.QueryOptions{Namespace: namespace, PerPage: 1}).WithContext(x.ctx)
}

// write is a write in a namespace.
func (x *examination) write(namespace string) *api.WriteOptions {
	return (&api.WriteOptions{Namespace: namespace}).WithContext(x.ctx)
}

// gpus counts the cluster's managed devices.
func (x *examination) gpus() int {
	n := 0
	for _, node := range x.View.Nodes {
		n += node.GPUs
	}
	return n
}

// shown is how many names a detail lists.
const shown = 8

// list writes names with their number.
func list(names []string) string {
	if more := len(names) - shown; more > 0 {
		return strings.Join(names[:shown], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func nodeName(n observe.NodeRef) string {
	if n.Name != "" {
		return n.Name
	}
	return n.ID
}
