package doctor

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/httpapi"
)

// nomad says whether Nomad answers, and has a leader.
func (x *examination) nomad() bool {
	leader, err := x.Client.Status().Leader()
	switch {
	case err != nil && statusOf(err) == 0:
		x.fail("nomad", "check nomad.address (NOMAD_ADDR), TLS, and that Nomad runs", "Nomad at %s cannot be reached: %v", x.Client.Address(), err)
		return false
	case err != nil, leader == "":
		x.fail("nomad", "bring a majority of the servers back: nomad server members", "Nomad at %s has no leader: %v", x.Client.Address(), cmp.Or(err, errNoLeader))
		return false
	}
	x.ok("nomad", "Nomad at %s answers; its leader is %s", x.Client.Address(), leader)
	return true
}

var errNoLeader = errors.New("the answer names none")

// The clock's limits. Deadlines and retries are written down by one planner
// and read by another; Nomad's answers tell the time to the second.
const (
	skewWarn = 5 * time.Second
	skewFail = time.Minute
)

func (x *examination) clock() {
	const do = "let chrony or ntpd keep the clocks of the servers and of the planners"
	skew, known := x.Skew()
	switch size := skew.Abs(); {
	case !known:
		x.warn("clock", do, "Nomad's answers do not tell the time, so that its clock cannot be compared")
	case size > skewFail:
		x.fail("clock", do, "Nomad's clock is %v from this planner's; deadlines and waiting times are wrong by that much", skew)
	case size > skewWarn:
		x.warn("clock", do, "Nomad's clock is %v from this planner's", skew)
	default:
		x.ok("clock", "Nomad's clock and this planner's agree within %v", skewWarn)
	}
}

// defaultConnections is Nomad's limit of connections per address, and
// fewConnections what a gateway with many users runs into.
const (
	defaultConnections = 100
	fewConnections     = 500
)

// connections looks at Nomad's limit per client address: behind the gateway all
// users have the gateway's, and every open page of the UI holds several.
func (x *examination) connections() {
	const name, do = "connections", "set limits { http_max_conns_per_client = 2000 } in the agents that the gateway reaches"
	self, err := x.Client.Agent().Self()
	if err != nil {
		x.ok(name, "the agent's limits cannot be read without agent:read; Nomad's default is %d connections per address, and all users of the gateway share one: where it is busy, %s", defaultConnections, do)
		return
	}
	limits, _ := self.Config["Limits"].(map[string]any)
	limit, known := limits["HTTPMaxConnsPerClient"].(float64)
	switch {
	case known && limit > 0 && limit < fewConnections:
		x.warn(name, do, "Nomad takes %d connections per address, and all users of the gateway share one: every blocking query and every page of the UI holds some", int(limit))
	case known:
		x.ok(name, "Nomad takes %d connections per address (0: any number)", int(limit))
	default:
		x.ok(name, "the agent does not tell its limit of connections per address; Nomad's default is %d", defaultConnections)
	}
}

// oldest is the first Nomad whose Variables have locks.
var oldest = [2]int{1, 7}

// versions compares those of the clients; the servers' is told by no request
// that a planner may make, and clients are never newer.
func (x *examination) versions() {
	byVersion := map[string][]string{}
	for _, n := range x.View.Snapshot.Nodes {
		byVersion[n.Attributes["attr.nomad.version"]] = append(byVersion[n.Attributes["attr.nomad.version"]], cmp.Or(n.Name, n.ID))
	}
	delete(byVersion, "")
	names := slices.Sorted(maps.Keys(byVersion))
	var old []string
	for _, v := range names {
		if tooOld(v) {
			old = append(old, byVersion[v]...)
		}
	}
	switch {
	case len(old) > 0:
		x.fail("versions", "upgrade them to Nomad 1.7 or later", "%s too old: %s", count(len(old), "Nomad client")+verb(len(old)), list(old))
	case len(names) > 2:
		x.warn("versions", "upgrade the clients to one version", "the Nomad clients have %d versions: %s", len(names), strings.Join(names, ", "))
	case len(names) == 0:
		x.ok("versions", "no client tells its version")
	default:
		x.ok("versions", "the Nomad clients are at %s", strings.Join(names, " and "))
	}
}

func tooOld(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (major < oldest[0] || major == oldest[0] && minor < oldest[1])
}

// preemption is Nomad's own, per type of scheduler.
func (x *examination) preemption() {
	for _, kind := range []string{api.JobTypeBatch, api.JobTypeService} {
		if x.View.PreemptionOn[kind] {
			x.fail("preemption-"+kind, "nomad operator scheduler set-config -preempt-"+kind+"-scheduler=false",
				"Nomad's own preemption is on for %s jobs: it takes single members out of a gang, so no gang of that type is admitted", kind)
		} else {
			x.ok("preemption-"+kind, "off")
		}
	}
	for _, kind := range []string{api.JobTypeSystem, api.JobTypeSysbatch} {
		switch {
		case !x.View.PreemptionOn[kind]:
			x.ok("preemption-"+kind, "off")
		case kind == api.JobTypeSystem:
			// Nomad's default.
			x.ok("preemption-"+kind, "on: a %s job of a priority that is higher by 10 or more may still take a member's place; give gangs a priority near theirs", kind)
		default:
			x.warn("preemption-"+kind, "nomad operator scheduler set-config -preempt-sysbatch-scheduler=false", "on: a %s job of a priority that is higher by 10 or more may take a member's place", kind)
		}
	}
}

// warnings are what the planner itself found.
func (x *examination) warnings() {
	if len(x.View.Warnings) == 0 {
		x.ok("warnings", "none")
		return
	}
	var texts []string
	for _, w := range x.View.Warnings {
		texts = append(texts, w.Subject+": "+w.Text)
	}
	x.add("warnings", httpapi.CheckWarn, "see each; caravan status lists them all", "%s: %s", count(len(texts), "warning"), strings.Join(texts[:min(len(texts), shown)], "; "))
}

// statusOf is the HTTP status that Nomad answered with, 0 if it did not.
func statusOf(err error) int {
	var answer api.UnexpectedResponseError
	if errors.As(err, &answer) {
		return answer.StatusCode()
	}
	return 0
}
